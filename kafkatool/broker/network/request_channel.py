"""The bounded queue between processors and handlers (BRK-15)."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from kafkatool.broker.network.connection import Connection


class Request(NamedTuple):
    """A whole frame, without its length prefix, and the connection it came from."""

    connection: Connection
    frame: bytearray


class RequestChannel:
    """A FIFO of ``capacity`` requests. A SimpleQueue does the work in C; one processor at a time looks and puts."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._stalled: set[Callable[[], None]] = set()  # wake-ups of processors that wait for room
        self._lock = threading.Lock()

    def offer(self, request: Request, wake: Callable[[], None]) -> bool:
        """Queue the request; or, when full, refuse and call ``wake`` once there may be room."""
        with self._lock:
            if self._queue.qsize() >= self._capacity:
                self._stalled.add(wake)
                if self._queue.qsize() >= self._capacity:
                    return False  # a handler that takes a request from now on sees the wake-up
            self._queue.put(request)
            return True

    @property
    def is_empty(self) -> bool:
        """Tell whether no request waits for a handler."""
        return not self._queue.qsize()

    def take(self) -> Request | None:
        """Wait for the next request; None tells one handler to end."""
        request = self._queue.get()
        if self._stalled:
            with self._lock:
                waiting, self._stalled = self._stalled, set()
            for wake in waiting:
                wake()
        return request

    def end_handlers(self, number: int) -> None:
        """Tell that many handlers to end, behind everything queued."""
        for _ in range(number):
            self._queue.put(None)
