"""A clock thread that starts tasks at their time: expiry of waiting requests, heartbeats, delayed work.

A binary heap with lazy cancellation, swept when most of it is cancelled (a waiting fetch is nearly always cancelled).
The thread is notified only when a new task comes before the one it waits for, and waits for none that was cancelled:
otherwise it would wake up half a time for each produced record, beside the threads that serve it.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

_SWEEP_AT = 1000  # cancelled tasks


def monotonic_ms() -> float:
    """Read the clock that is never set back."""
    return time.monotonic() * 1000


class TimerTask:
    """A callback to be started. ``cancel`` is cheap and may be called from any thread, at any time, repeatedly."""

    __slots__ = ("_callback", "_timer")

    def __init__(self, timer: "Timer", callback: Callable[[], None]) -> None:
        self._timer = timer
        self._callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        """Tell whether it was neither started nor cancelled yet."""
        return self._callback is not None

    def cancel(self) -> None:
        """Keep the callback from being started (it may be running right now)."""
        if self._callback is not None:
            self._callback = None
            self._timer.cancelled += 1

    def take(self) -> Callable[[], None] | None:
        """Return the callback, once: whoever gets it runs it."""
        callback, self._callback = self._callback, None
        return callback


class Timer:
    """Starts callbacks when they are due, by handing them to ``executor``.

    Without one they run on the timer's own thread, one after the other: then they must be short and must not block.
    """

    def __init__(self, name: str, executor: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._name = name
        self._executor = executor
        self._heap: list[tuple[float, int, TimerTask]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._wakes_at = float("inf")
        self._closed = False
        self.cancelled = 0  # tasks still in the heap; approximate, only decides when to sweep
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        """Return how many tasks are held, with those cancelled that were not swept yet."""
        return len(self._heap)

    def add(self, delay_ms: float, callback: Callable[[], None]) -> TimerTask:
        """Start ``callback`` ``delay_ms`` from now. After ``close`` nothing is started any more."""
        task = TimerTask(self, callback)
        due = time.monotonic() + delay_ms / 1000
        with self._lock:
            if self._closed:
                return task
            if self._thread.ident is None:
                self._thread.start()
            if self.cancelled > _SWEEP_AT and self.cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].pending]
                heapq.heapify(self._heap)
                self.cancelled = 0
            heapq.heappush(self._heap, (due, next(self._order), task))
            if due < self._wakes_at:
                self._condition.notify()
        return task

    def close(self) -> None:
        """Drop what is pending and wait for the thread, unless called on it."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _due(self) -> bool:
        """Tell whether a task is to be started. Under the lock; drop cancelled ones first, which are not waited for."""
        heap = self._heap
        while heap and not heap[0][2].pending:
            heapq.heappop(heap)
        return bool(heap) and heap[0][0] <= time.monotonic()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._closed and not self._due():
                    self._wakes_at = self._heap[0][0] if self._heap else float("inf")
                    self._condition.wait(self._wakes_at - time.monotonic() if self._heap else None)
                self._wakes_at = 0
                if self._closed:
                    return
                callback = heapq.heappop(self._heap)[2].take()
            if callback is None:
                continue
            try:
                if self._executor is None:
                    callback()
                else:
                    self._executor(callback)
            except Exception:  # one task's fault must not stop the clock for all others
                log.exception("a task of timer %s failed", self._name)
