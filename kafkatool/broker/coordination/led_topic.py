"""The coming and going of an internal topic's partitions: loaded when they are led here, else let go (GRP-6 to 17)."""

import logging
import threading
from collections.abc import Callable, Iterable

from kafkatool.broker.coordination.ownership import OwnedPartitions, Term
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.gc_pause import gc_paused
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_LONGEST_RETRY_MS = 60_000  # between attempts to load a partition (GRP-14)

Load = Callable[[Log, Term], None]
"""Given the log and the term that begins: reads it and takes it over. Raises."""


class LedTopic:
    """The partitions of one topic that a coordinator owns, by the news of the controller. Thread-safe.

    Beside these come, by other threads, a log dir's failure and the end of strays, in either order: what is led is led by
    the replica that the replica manager has, and by no other.
    """

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
        self._changing = threading.Lock()  # an unload ends before the partition is led again
        self._replicas: dict[int, Partition] = {}  # told of last

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def on_leadership_change(self, leaders: Iterable[Partition], followers: Iterable[Partition]) -> None:
        """Load and unload, called while LeaderAndIsr is handled, before it is answered (BRK-32)."""
        with self._changing:
            for partition in followers:
                if partition.tp.topic == self.topic:
                    self._change(partition, leads=False)
            for partition in leaders:
                if partition.tp.topic == self.topic:
                    self._change(partition, leads=True)

    def _change(self, partition: Partition, *, leads: bool) -> None:
        number, epoch = partition.tp.partition, partition.leader_epoch
        if self._replica_manager.partitions.get(partition.tp) is not partition:
            return  # gone since; who tells of that may have been here already
        if self._replicas.get(number) is not partition:
            self._end(number)  # of a deleted topic of this name
            self._replicas[number] = partition
        if not leads:
            if self.partitions.end(number, epoch):
                self._unload(number)
        elif (term := self.partitions.begin_load(number, epoch)) is not None:
            self._scheduler.submit(lambda: self.load(term), self._task)

    def on_partitions_stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """End ownership: StopReplica with delete, or a failed log dir, does too (GRP-15).

        It is said after the replica has gone; where there is another meanwhile, that one was told of, or will be.
        """
        with self._changing:
            for partition in partitions:
                if partition.topic == self.topic:
                    here = self._replica_manager.partitions.get(partition)
                    if here is None or here is not self._replicas.get(partition.partition):
                        self._end(partition.partition)

    def _end(self, number: int) -> None:
        self._replicas.pop(number, None)
        if self.partitions.end(number, None):
            self._unload(number)

    def load(self, term: Term, retry_ms: float = 1000) -> None:
        """Load a partition; what fails is tried again, ever later, and nothing of it is served meanwhile."""
        partition = self._replica_manager.partitions.get(self.partition(term.partition))
        source = partition.log if partition is not None else None
        if source is None or not self.partitions.still_loading(term):
            return
        try:
            with gc_paused():
                self._load(source, term)
        except Exception as e:
            known = isinstance(e, KafkatoolError | OSError)
            log.error("loading %s failed, again in %d ms: %s", source.partition, retry_ms, e, exc_info=not known)
            again = min(retry_ms * 2, _LONGEST_RETRY_MS)
            self._scheduler.schedule(self._task, lambda: self.load(term, again), delay_ms=retry_ms)
