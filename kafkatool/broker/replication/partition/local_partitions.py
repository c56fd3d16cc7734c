"""The partitions with a replica on this broker, and what to answer about those without one (BRK-83, 93, 111)."""

from collections.abc import Iterable

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.topic_counters import TopicCounters
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class LocalPartitions:
    """The partitions here, those whose disk failed, and the high watermarks of those not heard of yet.

    Two write: the one control request under way and, beside it, a disk failure's job. All read, without a lock.
    Each step of a writer is one operation on a dict or a set, whole to everybody else. A partition made in the very
    moment its dir fails can stay here: its log is closed then, so appends to it fail.
    """

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()
        self.counters = TopicCounters()
        self.checkpointed: dict[TopicPartition, int] = {}
        """High watermarks the last run wrote, of partitions the controller has not told of yet."""

    def all(self) -> list[Partition]:
        """Return those that are online, as of now."""
        return list(self._partitions.values())

    def get(self, partition: TopicPartition) -> Partition | None:
        """Return the partition, or None when it is not here or its disk failed."""
        return self._partitions.get(partition)

    def find(
        self, partition: TopicPartition, *, missing: ErrorCode = ErrorCode.NOT_LEADER_FOR_PARTITION
    ) -> Partition | ErrorCode:
        """Return the partition, or the code to answer: ``missing`` for one that lives elsewhere."""
        found = self._partitions.get(partition)
        if found is not None:
            return found
        if partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._metadata_cache.contains(partition):
            return missing
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader(self, partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is led here, or the code to answer."""
        found = self.find(partition)
        if isinstance(found, Partition) and not found.is_leader:
            return ErrorCode.NOT_LEADER_FOR_PARTITION
        return found

    def add(self, partition: Partition) -> None:
        """Have it here from now on."""
        self._offline.discard(partition.tp)
        if partition.tp not in self._partitions:
            partition.counts = self.counters.add(partition.tp)
        self._partitions[partition.tp] = partition
        self.checkpointed.pop(partition.tp, None)

    def remove(self, partition: TopicPartition) -> Partition | None:
        """Forget a deleted partition; return it if it was here. Made anew, its high watermark begins at 0."""
        self._offline.discard(partition)
        self.checkpointed.pop(partition, None)
        return self._pop(partition)

    def _pop(self, partition: TopicPartition) -> Partition | None:
        found = self._partitions.pop(partition, None)
        if found is not None:
            self.counters.remove(partition)
        return found

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks to checkpoint; those of partitions not yet heard of are as they were read."""
        return self.checkpointed | {partition.tp: partition.high_watermark.offset for partition in self.all()}

    def is_offline(self, partition: TopicPartition) -> bool:
        """Tell whether its log dir has failed."""
        return partition in self._offline

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Answer 56 for them from now on: their log dir has failed (BRK-146)."""
        for topic_partition in partitions:
            self._offline.add(topic_partition)
            if (partition := self._pop(topic_partition)) is not None:
                partition.retire()
