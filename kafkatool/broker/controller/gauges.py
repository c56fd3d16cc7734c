"""Gauges of the controller (CTL-29), most of them times that its work takes and waits; and ``controller-gauges.json``.

The file lies beside state-change.log, for those who cannot ask the process: ``kt cluster status`` shows it. It is
written when events have been handled, at most every two seconds, so that an idle controller costs nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from kafkatool.broker.runtime.timer import Timer

log = logging.getLogger(__name__)

FILE_NAME = "controller-gauges.json"
_PERIOD_S = 2.0


@dataclass(slots=True)
class Durations:
    """The durations of one kind of work, in milliseconds. One thread adds, any may read."""

    count: int = 0
    last_ms: float = 0.0
    longest_ms: float = 0.0
    total_ms: float = 0.0

    def add(self, ms: float) -> None:
        """Count one more."""
        self.count += 1
        self.last_ms = ms
        self.longest_ms = max(self.longest_ms, ms)
        self.total_ms += ms

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time that the block takes, however it ends."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add((time.perf_counter() - started) * 1000)

    @property
    def mean_ms(self) -> float:
        """Return the mean; 0 before the first."""
        return self.total_ms / self.count if self.count else 0.0


@dataclass(slots=True)
class Gauges:
    """The controller's durations since it was started, over all its terms."""

    queue_waits: Durations = field(default_factory=Durations)  # of events, from being put in to being taken out
    events: Durations = field(default_factory=Durations)
    batches: Durations = field(default_factory=Durations)  # from the first line logged to the last request queued
    failovers: Durations = field(default_factory=Durations)  # CTL-24 steps 2 to 12
    broker_changes: Durations = field(default_factory=Durations)  # LeaderElectionRateAndTimeMs

    def values(self) -> dict[str, float]:
        """Return them by names like Kafka's own, the times in ms."""
        return {
            "EventQueueTimeMs": self.queue_waits.mean_ms,
            "EventQueueTimeMaxMs": self.queue_waits.longest_ms,
            "EventTimeMs": self.events.mean_ms,
            "EventTimeMaxMs": self.events.longest_ms,
            "RequestBatchTimeMs": self.batches.mean_ms,
            "RequestBatchTimeMaxMs": self.batches.longest_ms,
            "FailoverCount": self.failovers.count,
            "FailoverTimeMs": self.failovers.last_ms,
            "LeaderElectionCount": self.broker_changes.count,
            "LeaderElectionTimeMs": self.broker_changes.total_ms,
        }


class GaugesFile:
    """The file with the gauges. ``path`` None: there is none.

    A thread of its own for each time writes it: a disk that hangs must not hold up what else the timer has to start.
    """

    def __init__(self, path: Path | None, timer: Timer, read: Callable[[], Mapping[str, float]]) -> None:
        self._path = path
        self._timer = timer
        self._read = read
        self._due = False  # set by the event thread, taken back by who writes before it reads
        self._failing = False
        self._writing = threading.Lock()  # the event thread writes it too, at the end

    def changed(self) -> None:
        """Have the file written soon, since something was handled."""
        if self._path is not None and not self._due:
            self._due = True
            self._timer.add(_PERIOD_S * 1000, self._write_due)

    def _write_due(self) -> None:
        # at most one writes and one waits for it: the next is due when the waiting one has its turn
        threading.Thread(target=self.write, name="controller-gauges", daemon=True).start()

    def write(self) -> None:
        """Write the file now; never raises."""
        if self._path is None:
            return
        with self._writing:
            self._due = False
            self._replace(self._path)

    def _replace(self, path: Path) -> None:
        values = {name: round(value, 3) for name, value in self._read().items()}
        written = path.with_suffix(".tmp")
        try:
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(orjson.dumps({"timestamp_ms": int(time.time() * 1000), **values}))
            written.replace(path)
            self._failing = False
        except OSError as e:
            if not self._failing:
                log.warning("cannot write %s: %s", path, e)
            self._failing = True
