"""The cap on connections per remote address (BRK-20)."""

import socket
import threading
from collections import Counter
from collections.abc import Mapping


class ConnectionQuotas:
    """The connections by address. Thread-safe. Names among the overrides are resolved once, at the start."""

    def __init__(self, limit: int, overrides: Mapping[str, int]) -> None:
        self._limit = limit
        self._overrides = {address: n for host, n in overrides.items() for address in _addresses(host)}
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def admit(self, host: str) -> bool:
        """Count one more connection of that address, unless it has its share already."""
        with self._lock:
            if self._counts[host] >= self._overrides.get(host, self._limit):
                return False
            self._counts[host] += 1
            return True

    def release(self, host: str) -> None:
        """Count one connection less: one that was admitted is closed."""
        with self._lock:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]


def _addresses(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}
