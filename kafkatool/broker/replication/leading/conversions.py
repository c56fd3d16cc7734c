"""The one thread on which records are turned into other formats, request by request, in bounded memory (ADM-97).

Handlers and processors go on meanwhile: a request of an old client waits for its turn here, not the others for it. What
was made for it counts until it is sent, or dropped with its connection. Source: KIP-283 (purpose).
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kafkatool.broker.runtime.timer import monotonic_ms

log = logging.getLogger(__name__)


class Converted(bytearray):
    """Records made for one answer; a class of its own, as of a ``bytearray`` nobody is told when it goes."""


class _Job(NamedTuple):
    work: Callable[[], None]
    until_ms: float
    otherwise: Callable[[], None] | None
    """None: it makes nothing that stays, and need not wait for memory."""


class Conversions:
    """Does one job at a time, in the order they came. Any thread may submit."""

    def __init__(self, max_bytes: int, name: str = "record-conversion") -> None:
        self._max_bytes = max_bytes
        self._name = name
        self._held_bytes = 0
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(
        self, work: Callable[[], None], *, until_ms: float = 0, otherwise: Callable[[], None] | None = None
    ) -> None:
        """Have ``work`` done on the thread, in turn.

        With ``otherwise`` it also waits for memory: while as much is held as may be, until that monotonic time, at which
        ``otherwise`` is done instead.
        """
        with self._changed:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.append(_Job(work, until_ms, otherwise))
            self._changed.notify()

    def hold(self, made: Converted) -> Converted:
        """Count the bytes for as long as somebody refers to them."""
        size = len(made)
        with self._changed:
            self._held_bytes += size
        weakref.finalize(made, self._release, size).atexit = False
        return made

    def shutdown(self) -> None:
        """End the thread after the job under way; what waits is not done, its connections are closed anyway."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _release(self, size: int) -> None:
        with self._changed:
            self._held_bytes -= size
            self._changed.notify()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            try:
                do()
            except Exception:
                log.exception("a conversion of records failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopping:
                now_ms, first_end_ms = monotonic_ms(), float("inf")
                full = self._held_bytes >= self._max_bytes
                for index, job in enumerate(self._jobs):
                    if not full or job.otherwise is None:
                        del self._jobs[index]
                        return job.work
                    if job.until_ms <= now_ms:
                        del self._jobs[index]
                        return job.otherwise
                    first_end_ms = min(first_end_ms, job.until_ms)
                self._changed.wait(None if first_end_ms == float("inf") else (first_end_ms - now_ms) / 1000)
            return None
