"""The coming and going of an internal topic's partitions: loaded when they are led here, else let go (GRP-6 to 17)."""

import logging
from collections.abc import Callable, Iterable

from kafkatool.broker.coordination.ownership import OwnedPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.gc_pause import gc_paused
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_LONGEST_RETRY_MS = 60_000  # between attempts to load a partition (GRP-14)

Load = Callable[[Log, int, int], None]
"""Given the log, the partition's number and the epoch in which the load began: reads it and takes it over. Raises."""


class LedTopic:
    """The partitions of one topic that a coordinator owns, by the news of the controller. Thread-safe."""

    def __init__(
        self,
        topic: str,
        replica_manager: ReplicaManager,
        scheduler: Scheduler,
        *,
        what: str,
        load: Load,
        unload: Callable[[int], None],
    ) -> None:
        """Take ``what`` the coordinator keeps, for the names of tasks; ``unload(number)`` runs before the controller is
        answered."""
        self.topic = topic
        self.partitions = OwnedPartitions()
        self._replica_manager = replica_manager
        self._scheduler = scheduler
        self._task = f"{what}-load"
        self._load = load
        self._unload = unload

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def on_leadership_change(self, leaders: Iterable[Partition], followers: Iterable[Partition]) -> None:
        """Load and unload, called while LeaderAndIsr is handled, before it is answered (BRK-32)."""
        for partition in followers:
            if partition.tp.topic == self.topic and self.partitions.end(partition.tp.partition, partition.leader_epoch):
                self._unload(partition.tp.partition)
        for partition in leaders:
            if partition.tp.topic == self.topic:
                number, epoch = partition.tp.partition, partition.leader_epoch
                if self.partitions.begin_load(number, epoch):
                    self._scheduler.submit(lambda n=number, e=epoch: self.load(n, e), self._task)  # type: ignore[misc]

    def on_partitions_stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """End ownership: StopReplica with delete, or a failed log dir, does too (GRP-15)."""
        for partition in partitions:
            if partition.topic == self.topic and self.partitions.end(partition.partition, None):
                self._unload(partition.partition)

    def load(self, number: int, epoch: int, retry_ms: float = 1000) -> None:
        """Load a partition; what fails is tried again, ever later, and nothing of it is served meanwhile."""
        partition = self._replica_manager.partitions.get(self.partition(number))
        source = partition.log if partition is not None else None
        if source is None or not self.partitions.still_loading(number, epoch):
            return
        try:
            with gc_paused():
                self._load(source, number, epoch)
        except Exception as e:
            known = isinstance(e, KafkatoolError | OSError)
            log.error("loading %s failed, again in %d ms: %s", source.partition, retry_ms, e, exc_info=not known)
            again = min(retry_ms * 2, _LONGEST_RETRY_MS)
            self._scheduler.schedule(self._task, lambda: self.load(number, epoch, again), delay_ms=retry_ms)
