"""Tells the controller which partitions changed their in-sync replicas, many at a time (BRK-78, 79)."""

import logging
import threading
from collections.abc import Callable

from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import IsrChangeZnode

log = logging.getLogger(__name__)

PERIOD_MS = 2500
QUIET_MS = 5000  # no change for that long: tell
LONGEST_MS = 60_000  # or tell at the latest after that, however much goes on
_PARTITIONS_PER_NODE = 3000  # keeps the node far below ZooKeeper's limit of 1 MiB


class IsrPropagation:
    """The changes not told yet. Recorded by any thread; ``run`` is the periodic task."""

    def __init__(self, zookeeper: ZooKeeper, clock_ms: Callable[[], float]) -> None:
        self._zookeeper = zookeeper
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._changed: dict[TopicPartition, None] = {}
        self._last_change_ms = self._last_told_ms = clock_ms()

    def record(self, partition: TopicPartition) -> None:
        """Note that its in-sync replicas were changed here."""
        with self._lock:
            self._changed[partition] = None
            self._last_change_ms = self._clock_ms()

    def run(self) -> None:
        """Tell what there is to tell if it is time; what cannot be told stays for the next run."""
        now_ms = self._clock_ms()
        with self._lock:
            due = now_ms - self._last_change_ms > QUIET_MS or now_ms - self._last_told_ms > LONGEST_MS
            if not self._changed or not due:
                return
            partitions = list(self._changed)
        for start in range(0, len(partitions), _PARTITIONS_PER_NODE):
            told = partitions[start : start + _PARTITIONS_PER_NODE]
            try:
                self._zookeeper.create(IsrChangeZnode.PREFIX, IsrChangeZnode.encode(told), sequential=True)
            except ZooKeeperError as e:
                log.warning("ISR changes of %d partitions could not be told, trying again: %s", len(partitions), e)
                return
            with self._lock:
                for partition in told:
                    self._changed.pop(partition, None)
                self._last_told_ms = now_ms
