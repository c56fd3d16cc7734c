"""Who is let in, and how many: by address, by listener, before and after the login (BRK-20, SEC-95, 96)."""

import socket
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.network.connection import Connection

LARGE_LOGINS: Final = 16
"""So many may send a frame of more than 32 KB before their login at one time: of half a megabyte each, unless set."""


class ConnectionQuotas:
    """The connections by address, and their cap (BRK-20). Thread-safe. Names among the overrides are resolved once."""

    def __init__(self, limit: int, overrides: Mapping[str, int]) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.set_limits(limit, overrides)

    def set_limits(self, limit: int, overrides: Mapping[str, int]) -> None:
        """Admit by other limits from now on; who is in stays."""
        by_address = {address: n for host, n in overrides.items() for address in _addresses(host)}
        with self._lock:
            self._limit, self._overrides = limit, by_address

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


class Places:
    """The connections that a listener may have, within those of the broker (SEC-95). Thread-safe. ``kind``: which it is."""

    def __init__(self, limit: int, kind: Limit, broker: "Places | None" = None) -> None:
        self._limit = limit
        self._kind = kind
        self._broker = broker
        self._taken = 0
        self._changed = threading.Condition()

    def set_limit(self, limit: int) -> None:
        """Have so many places from now on; who has one keeps it."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> Limit | None:
        """Wait until there is one, here and in the broker; return the limit that leaves none."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._taken < self._limit, timeout_s):
                return self._kind
        return None if self._broker is None else self._broker.wait(timeout_s)

    def take(self) -> None:
        """Count one more."""
        with self._changed:
            self._taken += 1
        if self._broker is not None:
            self._broker.take()

    def give_back(self) -> None:
        """Count one less."""
        with self._changed:
            self._taken -= 1
            self._changed.notify()
        if self._broker is not None:
            self._broker.give_back()


class PendingLogins:
    """The connections that have not logged in yet, over the whole broker, the oldest of an address first (SEC-96).

    Thread-safe. A quarter of all places is the most that one address has. Each costs less than 64 KB, but for those few
    that send a large frame: ``large`` are their places.
    """

    def __init__(self, limit: int, limits: Limits) -> None:
        self._limits = limits
        self._limit = limit
        self._of_one = max(1, limit // 4)
        self.large = threading.Semaphore(LARGE_LOGINS)
        self._by_host: dict[str, dict[Connection, None]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def admit(self, connection: Connection) -> bool:
        """Count it until it is ready. Beyond the limits the oldest of its address is ended, else it is not let in."""
        host = connection.remote_host
        with self._lock:
            waiting = self._by_host.setdefault(host, {})
            oldest = None
            if len(waiting) >= self._of_one or (self._count >= self._limit and waiting):
                oldest = next(iter(waiting))
                self._drop(host, oldest)
            admitted = self._count < self._limit
            if admitted:
                self._by_host.setdefault(host, {})[connection] = None
                self._count += 1
            elif not waiting:
                self._by_host.pop(host, None)
        for closed in (oldest, None if admitted else connection):
            if closed is not None:
                self._limits.reached(Limit.UNAUTHENTICATED, closed)
        if oldest is not None:
            oldest.end()
        connection.on_ready = (lambda: self._release(connection)) if admitted else (lambda: None)
        return admitted

    def _release(self, connection: Connection) -> None:
        with self._lock:
            self._drop(connection.remote_host, connection)

    def _drop(self, host: str, connection: Connection) -> None:
        waiting = self._by_host.get(host, {})
        if connection in waiting:
            del waiting[connection]
            self._count -= 1
            if not waiting:
                self._by_host.pop(host, None)
