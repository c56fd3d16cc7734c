"""The server's side of each SASL mechanism: tokens in, answers out, at the end a user (SEC-64, 65, 68).

An exchange is one login's; it is asked by one thread. What it refuses it says twice: to the client in Kafka's words,
which tell nothing of users, and to the log.
"""

import hmac
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.security import scram
from kafkatool.core.security.scram import MECHANISMS, ClientFirst, Credential, ScramError, ScramMechanism

log = logging.getLogger(__name__)

PLAIN: Final = "PLAIN"
SERVED: Final = (PLAIN, *MECHANISMS)
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginRefusedError(KafkatoolError):
    """A token that is not accepted: the text for the client; ``why`` and the ``user`` claimed are for the log alone."""

    def __init__(self, text: str, *, why: str, user: str = "") -> None:
        super().__init__(text)
        self.why = why
        self.user = user


class Reply(NamedTuple):
    """The answer to a token; ``user`` once the login is done."""

    token: bytes
    user: str | None


class Exchange(Protocol):
    """One login's tokens."""

    def take(self, token: bytes) -> Reply:
        """Answer a token. Raises LoginRefusedError."""


# --- PLAIN -----------------------------------------------------------------------------------------------------------


class PlainUsers:
    """Users and passwords of one listener, of which only hashes under a key of this object's life are kept."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._hashes = {user: self._hash(password.encode()) for user, password in passwords.items()}
        self._nobody = secrets.token_bytes(32)

    def __repr__(self) -> str:
        return f"PlainUsers of {len(self._hashes)}"

    def _hash(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")

    def knows(self, user: str, password: bytes) -> bool:
        """Tell whether that is the user's password, an unknown user's in the same time as a wrong one."""
        return hmac.compare_digest(self._hash(password), self._hashes.get(user, self._nobody))


class PlainExchange:
    """RFC 4616: one token."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def take(self, token: bytes) -> Reply:
        """Hold user and password against those known. Raises LoginRefusedError."""
        parts = token.split(b"\0")
        if len(parts) != 3:
            count = min(len(parts), 4)
            raise LoginRefusedError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}", why=f"{count} parts instead of 3"
            )
        authorization_id, name, password = parts
        user = name.decode(errors="replace")
        if not name:
            raise LoginRefusedError("Authentication failed: username not specified", why="no user")
        if not password:
            raise LoginRefusedError("Authentication failed: password not specified", why="no password", user=user)
        if user.encode() != name or not self._users.knows(user, password):
            raise LoginRefusedError(
                "Authentication failed: Invalid username or password", why="unknown user or wrong password", user=user
            )
        if authorization_id not in (b"", name):
            raise LoginRefusedError(_OTHER_ID, why="an authorization id of somebody else", user=user)
        return Reply(b"", user)


# --- SCRAM -----------------------------------------------------------------------------------------------------------


class ScramUsers:
    """The credentials of ``/config/users``, kept for the mechanisms that some listener has (SEC-66, 67). Thread-safe.

    Each user's entry is replaced as a whole, by whoever follows the changes; logins look it up without a lock.
    """

    def __init__(self, mechanisms: Collection[str]) -> None:
        self._mechanisms = [m for m in mechanisms if m in MECHANISMS]
        self._credentials: dict[str, dict[str, Credential]] = {}
        self._key = secrets.token_bytes(32)

    def put(self, entity: str, config: Mapping[str, str]) -> None:
        """Take over what ``/config/users/<entity>`` holds now; other entities below it hold no credentials."""
        if "/" in entity or entity == "<default>":
            return
        user = unquote(entity)
        found = {}
        for mechanism in self._mechanisms:
            if (text := config.get(mechanism)) is not None:
                try:
                    found[mechanism] = Credential.decode(text)
                except ScramError as e:
                    log.error("user %r cannot log in by %s: %s", user, mechanism, e)
        if found:
            self._credentials[user] = found
        else:
            self._credentials.pop(user, None)

    def find(self, user: str, mechanism: str) -> Credential | None:
        """Return the user's credential; None for who has none, or one that is too weak."""
        credential = self._credentials.get(user, {}).get(mechanism)
        if credential is not None and credential.iterations < scram.MIN_ITERATIONS:
            log.warning("user %r cannot log in by %s: %d iterations", user, mechanism, credential.iterations)
            return None
        return credential

    def stand_in(self, user: str, mechanism: ScramMechanism) -> Credential:
        """Return what an unknown user is asked with, always the same of a mechanism: users cannot be listed (SEC-65).

        Its keys are as long as real ones, so that holding a proof against them takes as long.
        """
        made_up = mechanism.hmac(self._key, f"{mechanism.name} {user}".encode())
        return Credential(scram.make_salt(made_up[:17]), made_up, made_up, scram.MIN_ITERATIONS)


class ScramExchange:
    """RFC 5802: two tokens. A user nobody knows fails as late as one with a wrong password."""

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._users = users
        self._first: ClientFirst | None = None
        self._known = False
        self._credential: Credential
        self._server_first = b""

    def take(self, token: bytes) -> Reply:
        """Answer the first message, then the final one. Raises LoginRefusedError."""
        user = "" if self._first is None else self._first.user
        try:
            if self._first is None:
                self._first = first = scram.read_client_first(token)
                return Reply(self._answer(first), None)
            last = scram.verify(self._mechanism, self._credential, self._first, self._server_first, token)
            if not self._known:
                raise ScramError("unknown user")
            return Reply(last, user)
        except ScramError as e:
            why = str(e) if self._known or self._first is None else "unknown user"
            raise self._refused(why, user) from None

    def _answer(self, first: ClientFirst) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise LoginRefusedError(_OTHER_ID, why="an authorization id of somebody else", user=first.user)
        if first.extensions.get("tokenauth") == "true":
            raise self._refused("delegation tokens are not served", first.user)
        known = self._users.find(first.user, self._mechanism.name)
        self._known = known is not None
        self._credential = known or self._users.stand_in(first.user, self._mechanism)
        self._server_first = scram.server_first(first, scram.make_nonce(), self._credential)
        return self._server_first

    def _refused(self, why: str, user: str) -> LoginRefusedError:
        text = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism.name}"
        )
        return LoginRefusedError(text, why=why, user=user)


def exchanges(
    enabled: Collection[str], plain_users: PlainUsers, scram_users: ScramUsers
) -> dict[str, Callable[[], Exchange]]:
    """Return what makes an exchange, by the mechanisms that are enabled."""
    made: dict[str, Callable[[], Exchange]] = {}
    for name in enabled:
        if name == PLAIN:
            made[name] = lambda: PlainExchange(plain_users)
        else:
            made[name] = lambda mechanism=MECHANISMS[name]: ScramExchange(mechanism, scram_users)  # type: ignore[misc]
    return made
