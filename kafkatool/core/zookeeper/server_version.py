"""The version of the server at the other end: from 3.6 on ZooKeeper takes many reads in one request.

An older one ends the connection at such a request (Kafka up to 2.8 comes with 3.4 or 3.5), so the version is asked for
first, with the four letters that are allowed by default. A server that does not answer them gets the reads one by one.
"""

import re
import socket
from collections.abc import Callable
from typing import Final

_FIRST_VERSION: Final = (3, 6)
_TIMEOUT_S: Final = 1.0
_ANSWER: Final = re.compile(rb"Zookeeper version: (\d+)\.(\d+)\D")


class MultiRead:
    """Support for reads of many nodes, asked for once for each connection, as the next may lead to an older server."""

    def __init__(self, connected: Callable[[], socket.socket | None]) -> None:
        """Take the function that returns the socket of the connection, None while there is none."""
        self._connected = connected
        self._asked: socket.socket | None = None  # the connection's socket when it was asked
        self._is_served = False
        self._was_refused = False

    def is_served(self) -> bool:
        """Tell whether the server knows the request. Takes a round trip when the connection is new."""
        connected = self._connected()
        if connected is None or self._was_refused:
            return False
        if connected is not self._asked:
            self._is_served = (_version(connected) or (0, 0)) >= _FIRST_VERSION
            self._asked = connected
        return self._is_served

    def refused(self) -> None:
        """Never try again: a server did not know the request after all, as when an address leads to several."""
        self._was_refused = True


def _version(connected: socket.socket) -> tuple[int, int] | None:
    """Ask the server that this socket leads to for its version; None: it does not say."""
    try:
        with socket.create_connection(connected.getpeername()[:2], timeout=_TIMEOUT_S) as own:
            own.sendall(b"srvr")
            answer = _ANSWER.match(own.recv(256))
    except OSError:
        return None
    return (int(answer[1]), int(answer[2])) if answer else None
