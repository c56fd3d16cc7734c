"""Free ports on loopback, for servers of tests."""

import socket
from collections import deque
from typing import Final

from kafkatool.broker.embedded.ports import free_ports, hold

_HELD: Final[deque[socket.socket]] = deque(maxlen=200)  # more than one test has; a process has descriptors for so many


def free_port() -> int:
    """Return a port nobody listens on now, and that no outgoing connection gets while its server is down.

    It is held after that, beside its server: of seven ports picked one by one and let go two are the same now and then,
    and a broker then ends at its start.
    """
    port = next(free_ports(1))
    if (held := hold(port)) is not None:
        _HELD.append(held)
    return port
