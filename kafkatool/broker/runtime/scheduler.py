"""Background work that may block: periodic tasks (retention, checkpoints, ISR checks), one-off jobs, expiries.

A Timer says when, a pool of threads does the work. A task's exception is logged; a periodic task goes on.
Source: Kafka 1.1.1 utils/KafkaScheduler.scala.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from kafkatool.broker.runtime.timer import Timer, TimerTask

log = logging.getLogger(__name__)


@dataclass(eq=False)
class ScheduledTask:
    """Handle of a scheduled function."""

    _timer: Timer  # hands its tasks to threads that may block
    _name: str
    _fn: Callable[[], object]
    _period_ms: float | None
    _cancelled: bool = field(default=False, init=False)
    _timer_task: TimerTask | None = field(default=None, init=False)

    def cancel(self) -> None:
        """Let no further run begin; one under way ends by itself."""
        self._cancelled = True
        if self._timer_task is not None:
            self._timer_task.cancel()

    def start(self, delay_ms: float) -> None:
        """Have it run after that time."""
        self._timer_task = self._timer.add(delay_ms, self.run)

    def run(self) -> None:
        """Call the function, unless cancelled, and start the next period."""
        if self._cancelled:
            return
        try:
            self._fn()
        except Exception:  # a worker's top: the next period may well succeed
            log.exception("background task %s failed", self._name)
        if self._period_ms is not None and not self._cancelled:
            self.start(self._period_ms)


class Scheduler:
    """A pool of at most ``threads`` workers, each started when there is work for it. ``set_limit`` changes how many."""

    def __init__(self, threads: int, name: str = "scheduler") -> None:
        self._name = name
        self._limit = threads
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._timer = Timer(f"{name}-timer", self._work.put)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._workers = 0  # of those that have not been told to end
        self._closed = False

    def schedule(
        self, name: str, fn: Callable[[], object], *, delay_ms: float = 0, period_ms: float | None = None
    ) -> ScheduledTask:
        """Run ``fn`` after ``delay_ms`` and, with ``period_ms``, again that long after each run has ended."""
        task = ScheduledTask(self._timer, name, fn, period_ms)
        self._grow()
        task.start(delay_ms)
        return task

    def once(self, name: str, fn: Callable[[], object], *, delay_ms: float) -> TimerTask:
        """Run ``fn`` once after ``delay_ms``. Cancelling is for before: what is due runs, however long it has to queue."""
        self._grow()
        return self._timer.add(delay_ms, ScheduledTask(self._timer, name, fn, None).run)

    def submit(self, fn: Callable[[], object], name: str = "job") -> None:
        """Run ``fn`` once, as soon as a worker is free. Dropped after ``shutdown``."""
        self._grow()
        self._work.put(ScheduledTask(self._timer, name, fn, None).run)

    def set_limit(self, threads: int) -> None:
        """Have at most so many workers; those too many end behind the work that is queued."""
        with self._lock:
            self._limit = threads
            for _ in range(self._workers - threads):
                self._work.put(None)
                self._workers -= 1

    def _grow(self) -> None:
        with self._lock:
            if self._closed or self._workers >= self._limit:
                return
            self._workers += 1
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while (job := self._work.get()) is not None:
            job()
        with self._lock:
            if not self._closed:
                self._threads.remove(threading.current_thread())

    def shutdown(self) -> None:
        """Cancel what has not begun, wait for what has. Safe to call twice; not from a task."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        self._timer.close()
        while not self._work.empty():
            self._work.get()
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join()
