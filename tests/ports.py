"""Free ports on loopback."""

from kafkatool.broker.embedded.ports import free_ports


def free_port() -> int:
    """Return a port nobody listens on now, and that no outgoing connection gets while its server is down."""
    return next(free_ports(1))
