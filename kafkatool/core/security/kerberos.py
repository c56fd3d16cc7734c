"""Kerberos: tickets of a cache or by a keytab, and the messages of SASL GSSAPI (SEC-17). Source: RFC 4752.

``gssapi``, the extra `kerberos`, binds the machine's Kerberos library, which reads krb5.conf and asks the KDC: it may wait
for it, letting other threads run, as long as it sees fit. Imported by who logs in so, as the extra may be missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import gssapi

from kafkatool.core.errors import ZooKeeperRefusedError

_NO_LAYER: Final = 1  # the bit, and the answer, that nothing after the login is wrapped


@dataclass(frozen=True, slots=True)
class Tickets:
    """Where a login's tickets come from: a cache; a keytab, if there is no ticket in the cache; or a keytab alone."""

    keytab: str | None = None
    cache: str | None = None
    """Its name, empty the library's own; None: none is looked at."""

    def owner(self) -> str:
        """Return whose tickets the cache has. Raises ZooKeeperRefusedError when there are none."""
        with _failures():
            return str(_credentials(None, self._of_cache()).name)

    def credentials(self, principal: str) -> Any:
        """Return the tickets of a principal; the KDC is asked where a keytab is used. Raises ZooKeeperRefusedError."""
        with _failures():
            if self.cache is not None:
                try:
                    return _credentials(principal, self._of_cache())
                except gssapi.exceptions.GSSError:
                    if self.keytab is None:
                        raise
            # The tickets are kept in memory: nobody's cache is written to. As for a server too, so that the library
            # looks into the keytab first, and says what is wrong there.
            store = {"keytab": self.keytab, "client_keytab": self.keytab, "ccache": f"MEMORY:{principal}"}
            return _credentials(principal, store, "both")

    def _of_cache(self) -> dict[str, str] | None:
        return {"ccache": self.cache} if self.cache else None


class GssapiMechanism:
    """The client's side of one login. Its members are those of pure-sasl's mechanisms, which know none of this library."""

    def __init__(self, sasl: Any, *, principal: str, tickets: Tickets) -> None:
        self.complete = False
        self._service = f"{sasl.service}@{sasl.host}"
        self._principal = principal
        self._tickets = tickets
        self._context: Any = None

    def process(self, challenge: bytes | None = None) -> bytes:
        """Answer the server's message, of which there is none at first. Raises ZooKeeperRefusedError."""
        with _failures():
            if self._context is None:
                self._context = _context(self._service, self._tickets.credentials(self._principal))
                return self._context.step() or b""
            if not challenge:
                return b""  # so a server without SASL answers, without end: who carries the messages ends it
            if not self._context.complete:
                return self._context.step(challenge) or b""
            offered = self._context.unwrap(challenge).message
            if len(offered) != 4 or not offered[0] & _NO_LAYER:
                raise ZooKeeperRefusedError("it wants to have all that follows wrapped, which is not served")
            self.complete = True
            # no layer, so no size of its messages; no name: who the ticket says
            answer: bytes = self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
            return answer

    def dispose(self) -> None:
        """Forget the keys of the exchange."""
        self._context = None


def whole_name(principal: str) -> str:
    """Return a principal with its realm. Raises ZooKeeperRefusedError."""
    with _failures():
        return str(_name(principal))


def _name(principal: str) -> Any:
    return gssapi.Name(principal, gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)


def _credentials(principal: str | None, store: Any, usage: str = "initiate") -> Any:
    """Return tickets that hold still."""
    found = gssapi.Credentials(
        name=None if principal is None else _name(principal),
        usage=usage,
        mechs=[gssapi.MechType.kerberos],
        store=store,
    )
    _ = found.lifetime  # which is an error when it has passed
    return found


def _context(service: str, credentials: Any) -> Any:
    return gssapi.SecurityContext(
        name=gssapi.Name(service, gssapi.NameType.hostbased_service),
        creds=credentials,
        mech=gssapi.MechType.kerberos,
        flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        usage="initiate",
    )


@contextmanager
def _failures() -> Iterator[None]:
    """Make the library's errors ours."""
    try:
        yield
    except gssapi.exceptions.GSSError as e:
        raise ZooKeeperRefusedError(_why(e)) from e


def _why(error: Any) -> str:
    """Say what the library says of it: the mechanism, or where that knows of nothing the library itself."""
    said = ": ".join(error.get_all_statuses(error.min_code, False))
    return said if said and said != "Success" else ": ".join(error.get_all_statuses(error.maj_code, True))
