"""How a tool reaches brokers: by which of their listeners, and with which security (SEC-33, SEC-38)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.security.client_security import ClientSecurity


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """Without ``listener`` the only one of the security's protocol is taken. The rest is what kt says it is."""

    security: ClientSecurity = field(default_factory=ClientSecurity)
    listener: str | None = None
    client_id: str = "kt"
    software_version: str = "0"

    def endpoint(self, broker: BrokerInfo) -> Endpoint | None:
        """Return where to connect to; None: the broker has no such listener, or several."""
        if self.listener is not None:
            return broker.endpoint(self.listener.upper())
        fitting = [e for e in broker.endpoints if e.protocol == self.security.protocol]
        return fitting[0] if len(fitting) == 1 else None

    def check(self, brokers: Iterable[BrokerInfo]) -> None:
        """Raise RefusedError, which names the listeners there are, where no broker can be reached."""
        known = list(brokers)
        if known and not any(self.endpoint(broker) for broker in known):
            raise RefusedError(self.why_not(known[0]))

    def why_not(self, broker: BrokerInfo) -> str:
        """Say why a broker without ``endpoint`` cannot be reached, and what would help."""
        listeners = ", ".join(f"{e.listener} {e.protocol} {e.host}:{e.port}" for e in broker.endpoints)
        there = f"broker {broker.id} has {listeners}"
        if self.listener is not None:
            return f"no listener {self.listener}: {there}"
        protocols = {e.protocol for e in broker.endpoints}
        if self.security.protocol in protocols:
            return f"several listeners speak {self.security.protocol}: name one by --listener; {there}"
        if self.security.protocol == "PLAINTEXT":
            return (
                f"brokers have no PLAINTEXT listener but {', '.join(sorted(protocols))}: give --command-config; {there}"
            )
        return f"no listener speaks {self.security.protocol} ({self.security.source}): {there}"


PLAINTEXT_ACCESS = BrokerAccess()
