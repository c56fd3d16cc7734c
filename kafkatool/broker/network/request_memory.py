"""The bytes of requests received and not yet answered, over the whole broker, and their bound (SEC-98, KIP-72)."""

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

_TURN_S: Final = 10.0


class Reader(Protocol):
    """A connection that reads requests."""

    def end(self) -> None:
        """Have it closed."""


class RequestMemory:
    """Counts them; beyond ``limit_bytes`` nobody reads on until it falls. Thread-safe.

    If no whole request is in work, nothing could fall: then one connection after the other, the first that asks, may read
    its request to the end. One that has not done so after ten seconds is closed, as it holds up all others.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        on_full: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take ``on_full``: called when the first has to wait."""
        self._limit_bytes = limit_bytes
        self._on_full = on_full
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._in_work = 0  # whole requests
        self._turn: tuple[Reader, float] | None = None  # whose it is to read beyond the limit, and until when
        self._waiting: set[Callable[[], None]] = set()  # wake-ups of processors that do not read

    @property
    def received_bytes(self) -> int:
        """Return the bytes counted now."""
        return self._bytes

    def may_read(self, reader: Reader, wake: Callable[[], None]) -> bool:
        """Tell whether it may read on; if not, ``wake`` is called once it may be worth asking again."""
        if self._bytes < self._limit_bytes:  # without the lock: a request more does not matter
            return True
        late = None
        with self._lock:
            if not self._in_work:
                holder, until = self._turn or (reader, self._clock() + _TURN_S)
                if holder is reader:
                    self._turn = (holder, until)
                    return True
                if self._clock() >= until:
                    late, self._turn = holder, None
            is_first = not self._waiting
            self._waiting.add(wake)
            may_read = self._bytes < self._limit_bytes  # it has fallen meanwhile, perhaps before there was a wake-up
        if late is not None:
            late.end()
        if is_first and not may_read:
            self._on_full()
        return may_read

    def receive(self, size_bytes: int, *, whole: bool) -> None:
        """Count bytes that have come; ``whole``: a request is complete with them."""
        with self._lock:
            self._bytes += size_bytes
            self._in_work += whole
            if whole:
                self._turn = None

    def forget(self, size_bytes: int, *, whole: bool, reader: Reader) -> None:
        """Count those of a request no longer: it is answered, or its connection closed before or after it was ``whole``."""
        with self._lock:
            self._bytes -= size_bytes
            self._in_work -= whole
            if self._turn is not None and self._turn[0] is reader:
                self._turn = None
            if not self._waiting or (self._bytes >= self._limit_bytes and self._in_work):
                return
            waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()
