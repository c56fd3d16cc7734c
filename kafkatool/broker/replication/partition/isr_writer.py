"""Writes changed in-sync sets to ZooKeeper, all that are due in one pipelined pass, and tells the controller (BRK-53 to 55).

Expansions come from fetch requests: they are queued, so that no fetch waits for ZooKeeper. Each write is bound to the
version of the node; whoever wrote in between is read and taken seriously (KAFKA-2729).
Source: Kafka 1.1.1 utils/ReplicationUtils.scala.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.replication.partition.partition import IsrChange
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.core.errors import NoNodeError, VersionConflictError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.values import PartitionState, TopicPartition
from kafkatool.core.zookeeper.session import SetData, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import IsrChangeZnode, PartitionStateZnode

log = logging.getLogger(__name__)

PROPAGATION_PERIOD_MS = 2500
_QUIET_MS = 5000  # no change for that long: tell
_LONGEST_MS = 60_000  # or tell at the latest after that, however much goes on
_PARTITIONS_PER_NODE = 3000  # keeps the node far below ZooKeeper's limit of 1 MiB


@dataclass(eq=False)
class IsrWriter:
    """The queue of ISR changes and their writer. Thread-safe."""

    _zookeeper: ZooKeeper
    _scheduler: Scheduler
    _on_written: Callable[[TopicPartition], None]  # an ISR changed, tell the controller
    _check_delayed: Callable[[TopicPartition], None]  # try the requests that wait for something of that partition
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _queue: list[IsrChange] = field(default_factory=list, init=False)
    _draining: bool = field(default=False, init=False)
    expansions: int = field(default=0, init=False)  # counters of BRK-157; approximate when two threads write at once
    shrinks: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)

    def submit(self, change: IsrChange) -> None:
        """Write it soon, in the background."""
        with self._lock:
            self._queue.append(change)
            if self._draining:
                return
            self._draining = True
        self._scheduler.submit(self._drain, "isr-writes")

    def _drain(self) -> None:
        while changes := self._take():
            try:
                self.write(changes)
            except Exception:  # those that come after must be written all the same
                log.exception("in-sync replicas of %d partitions could not be written", len(changes))

    def _take(self) -> list[IsrChange]:
        """Take what there is to write; with nothing left the run is over, and the next change starts another."""
        with self._lock:
            changes, self._queue = self._queue, []
            self._draining = bool(changes)
            return changes

    def write(self, changes: Sequence[IsrChange]) -> None:
        """Write them now, pipelined; every change is settled one way or the other when this returns."""
        if not changes:
            return
        writes = []
        for change in changes:
            _log_intention(change)
            path = PartitionStateZnode.path(change.partition.tp)
            writes.append([SetData(path, PartitionStateZnode.encode(change.state), change.version)])
        try:
            outcomes = self._zookeeper.commit_many(writes)
        except ZooKeeperError as e:
            log.warning("in-sync replicas of %d partitions could not be written: %s", len(changes), e)
            for change in changes:
                self._failed(change, None, outcome_known=False)
            return
        refused: list[IsrChange] = []
        for change, outcome in zip(changes, outcomes, strict=True):
            if not isinstance(outcome, TransactionError):
                self._written(change, outcome[0] or 0)
            elif isinstance(outcome.cause, VersionConflictError):
                refused.append(change)
            else:
                self._failed(change, None, outcome_known=isinstance(outcome.cause, NoNodeError))
        self._read_again(refused)

    def _read_again(self, refused: Sequence[IsrChange]) -> None:
        if not refused:
            return
        partitions = [change.partition.tp for change in refused]
        try:
            nodes = self._zookeeper.get_many([PartitionStateZnode.path(p) for p in partitions])
        except ZooKeeperError as e:
            log.warning("states of %d partitions could not be read again: %s", len(refused), e)
            nodes = [None] * len(refused)
        for change, topic_partition, node in zip(refused, partitions, nodes, strict=True):
            found = None
            if node is not None:
                try:
                    found = PartitionState(PartitionStateZnode.decode(topic_partition, node.data), node.version)
                except ZnodeFormatError as e:
                    log.error("%s", e)
            self._failed(change, found, outcome_known=True)

    def _written(self, change: IsrChange, version: int) -> None:
        topic_partition = change.partition.tp
        change.partition.isr_written(change, version)
        self._count(change)
        self._on_written(topic_partition)
        self._check_delayed(topic_partition)  # a raised high watermark, or another follower that waits to join

    def _failed(self, change: IsrChange, found: PartitionState | None, *, outcome_known: bool) -> None:
        partition = change.partition
        if partition.isr_not_written(change, found, outcome_known=outcome_known):
            self._count(change)  # a reply had been lost
            self._on_written(partition.tp)
        else:
            self.failures += 1
            log.warning(
                "%s: in-sync replicas stay %s; its state node is not at version %d but holds %s",
                partition.tp,
                list(partition.isr),
                change.version,
                found,
            )
        self._check_delayed(partition.tp)

    def _count(self, change: IsrChange) -> None:
        if change.grows:
            self.expansions += 1
        else:
            self.shrinks += 1


def _log_intention(change: IsrChange) -> None:
    """Say in the documents' words what is about to be written."""
    topic_partition = change.partition.tp
    before, after = (",".join(map(str, members)) for members in (change.before, change.state.isr))
    if change.grows:
        log.info("Expanding ISR for partition %s from %s to %s", topic_partition, before, after)
    else:
        topic, number = topic_partition
        log.info("Shrinking ISR for partition [%s,%d] from %s to %s", topic, number, before, after)


class IsrPropagation:
    """The changes of which the controller is not told yet, many at a time (BRK-78, 79).

    Recorded by any thread; ``run`` is the periodic task.
    """

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
            due = now_ms - self._last_change_ms > _QUIET_MS or now_ms - self._last_told_ms > _LONGEST_MS
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
