"""SCRAM credentials read and changed on behalf of clients (SEC-90, ADM-79; KIP-554)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kafkatool.broker.administration.topics import AdminError
from kafkatool.core.errors import RefusedError, ZooKeeperError
from kafkatool.core.operations.users import (
    MAX_ITERATIONS,
    NoSuchCredentialError,
    ScramUser,
    alter_user,
    read_users,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.security.scram import MECHANISMS, MIN_ITERATIONS, SCRAM_SHA_256, SCRAM_SHA_512, Credential
from kafkatool.core.zookeeper.session import ZooKeeper

MECHANISM_NAMES: Final[Mapping[int, str]] = {1: SCRAM_SHA_256.name, 2: SCRAM_SHA_512.name}
"""By their numbers on the wire."""
_LEAST_SALT_BYTES: Final = 16


class Deletion(NamedTuple):
    """A credential to delete; ``mechanism`` as on the wire."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to set."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class UserAdmin:
    """The users of the cluster, in ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    def find(self, names: Collection[str] | None) -> list[ScramUser]:
        """Return those users, or all that have credentials; one that cannot be read has none. Raises ZooKeeperError."""
        return read_users(self._zookeeper, names)

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], *, is_private: bool
    ) -> dict[str, AdminError | None]:
        """Change each user's credentials in one write, or not at all; return what went wrong by user.

        ``is_private``: nobody on the way could read what was sent.
        """
        changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
        listed = Counter((one.user, one.mechanism) for one in changes)
        outcomes: dict[str, AdminError | None] = {}
        for one in changes:
            error = _fault(one, listed[one.user, one.mechanism], is_private=is_private)
            outcomes[one.user] = outcomes.get(one.user) or error
        gone: dict[str, list[str]] = defaultdict(list)
        made: dict[str, dict[str, Credential]] = defaultdict(dict)
        for one in changes:
            if outcomes[one.user] is None:
                if isinstance(one, Deletion):
                    gone[one.user].append(MECHANISM_NAMES[one.mechanism])
                else:
                    made[one.user][MECHANISM_NAMES[one.mechanism]] = _credential(one)
        for user in [user for user, error in outcomes.items() if error is None]:
            try:
                alter_user(self._zookeeper, user, made[user], gone[user])
            except NoSuchCredentialError:
                text = "Attempt to delete a user credential that does not exist"
                outcomes[user] = AdminError(ErrorCode.RESOURCE_NOT_FOUND, text)
            except (RefusedError, ZooKeeperError) as e:
                outcomes[user] = AdminError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e))
        return outcomes


def _fault(one: Deletion | Upsertion, times_listed: int, *, is_private: bool) -> AdminError | None:
    if not one.user:
        return AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in MECHANISM_NAMES:
        return AdminError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if times_listed > 1:
        text = "A user credential cannot be altered twice in the same request"
        return AdminError(ErrorCode.DUPLICATE_RESOURCE, text)
    if isinstance(one, Deletion):
        return None
    text = ""
    if one.iterations < MIN_ITERATIONS:
        text = "Too few iterations"
    elif one.iterations > MAX_ITERATIONS:
        text = "Too many iterations"
    elif len(one.salt) < _LEAST_SALT_BYTES:
        text = f"The salt is shorter than {_LEAST_SALT_BYTES} bytes"
    elif not is_private:
        text = "The salted password is as good as the password: send it over TLS"
    return AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text) if text else None


def _credential(one: Upsertion) -> Credential:
    mechanism = MECHANISMS[MECHANISM_NAMES[one.mechanism]]
    return mechanism.credential_of_salted(one.salted_password, one.salt, one.iterations)
