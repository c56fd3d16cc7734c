"""Gauges of the controller (CTL-29), most of them times that its work takes and waits; and ``controller-gauges.json``.

The file lies beside state-change.log; ``kt cluster status`` shows it. It is written when events have been handled.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FILE_NAME = "controller-gauges.json"


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
