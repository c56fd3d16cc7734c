"""The bytes of requests received and not yet answered, over the whole broker, and their bound (SEC-98, KIP-72)."""

import threading
import time
from collections.abc import Callable, Set
from typing import Final, Protocol

_TURN_S: Final = 10.0


class Reader(Protocol):
    """A connection that reads requests."""

    def end(self) -> None:
        """Have it closed."""


class RequestMemory:
    """Counts them; beyond ``limit_bytes`` nobody reads on until it falls. Thread-safe.

    Whole requests are answered, be it late, as those that wait for others are. Halves fall only when somebody reads on: if
    they are as much as half of the limit, and whole ones are below it, then one connection after the other, the first that
    asks, may read its request to the end. One that has not done so after ten seconds is closed, as it holds up all others.
    So there are never more bytes than twice the limit and a request.
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
        self._whole_bytes = 0  # of these
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
            if self._gives_turns():
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

    def _gives_turns(self) -> bool:
        half_bytes = self._bytes - self._whole_bytes
        return self._whole_bytes < self._limit_bytes <= 2 * half_bytes

    def receive(self, size_bytes: int, *, whole_bytes: int | None = None) -> None:
        """Count bytes that have come; ``whole_bytes``: all those of the request, if it is complete with them."""
        with self._lock:
            self._bytes += size_bytes
            if whole_bytes is not None:
                self._whole_bytes += whole_bytes
                self._turn = None
            waiting = self._to_wake()
        for wake in waiting:
            wake()

    def forget(self, size_bytes: int, *, whole: bool, reader: Reader) -> None:
        """Count those of a request no longer: it is answered, or its connection closed before or after it was ``whole``."""
        with self._lock:
            self._bytes -= size_bytes
            if whole:
                self._whole_bytes -= size_bytes
            if self._bytes < self._limit_bytes or (self._turn is not None and self._turn[0] is reader):
                self._turn = None
            waiting = self._to_wake()
        for wake in waiting:
            wake()

    def _to_wake(self) -> Set[Callable[[], None]]:
        """Take who may read on now, or one of them."""
        if not self._waiting:
            return frozenset()  # as nearly always
        if self._bytes >= self._limit_bytes and (self._turn is not None or not self._gives_turns()):
            return frozenset()
        waiting, self._waiting = self._waiting, set()
        return waiting
