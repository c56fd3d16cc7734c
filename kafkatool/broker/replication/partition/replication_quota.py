"""The throttle of replication traffic in one direction: sent by this leader, or fetched by this follower (BRK-76).

Only replicas that the topic lists are ever held back, and only while they are behind. Unset, it costs one comparison.
Source: Kafka 1.1.1 server/ReplicationQuotaManager.scala.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.storage.log_config import LogConfig

ALL_REPLICAS = "*"
NO_RATE = 2**63 - 1


@dataclass(eq=False)
class RateWindow:
    """The rate in bytes per second over the last so many windows of that length."""

    _samples: int
    _window_ms: float
    _clock_ms: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _counts: dict[int, int] = field(default_factory=dict, init=False)

    def add(self, size_bytes: int) -> None:
        """Count that many bytes."""
        with self._lock:
            window = int(self._clock_ms() // self._window_ms)
            self._counts[window] = self._counts.get(window, 0) + size_bytes
            if len(self._counts) > self._samples:
                self._counts = {w: n for w, n in self._counts.items() if w > window - self._samples}

    def bytes_per_second(self) -> float:
        """Return the rate over the full windows that count and the one under way."""
        with self._lock:
            now_ms = self._clock_ms()
            window = int(now_ms // self._window_ms)
            total = sum(n for w, n in self._counts.items() if w > window - self._samples)
            span_ms = (self._samples - 1) * self._window_ms + (now_ms - window * self._window_ms)
        return total * 1000 / max(span_ms, self._window_ms)


@dataclass(eq=False)
class ReplicationQuota:
    """The limit of one direction. ``_listed`` takes from a topic's config the replicas: ``*`` or ``partition:broker``."""

    _broker_id: int
    _listed: Callable[[LogConfig], tuple[str, ...]]
    _window: RateWindow
    _limit: int = field(default=NO_RATE, init=False)

    def set_rate(self, bytes_per_second: int) -> None:
        """Set the limit; NO_RATE: unlimited."""
        self._limit = bytes_per_second

    @property
    def limited(self) -> bool:
        """Tell whether there is a rate to keep to."""
        return self._limit != NO_RATE

    def count(self, partition: Partition, size_bytes: int) -> None:
        """Count bytes of a listed replica, also when it is in sync."""
        if self._is_listed(partition):
            self._window.add(size_bytes)

    def holds_back(self, partition: Partition, *, in_sync: bool) -> bool:
        """Tell whether that partition's data must wait now. One in sync never waits (KAFKA-6937)."""
        if self._limit == NO_RATE or in_sync or not self._is_listed(partition):
            return False
        return self._window.bytes_per_second() > self._limit

    def _is_listed(self, partition: Partition) -> bool:
        listed = self._listed(partition.log.config)
        if not listed:
            return False
        return ALL_REPLICAS in listed or f"{partition.tp.partition}:{self._broker_id}" in listed
