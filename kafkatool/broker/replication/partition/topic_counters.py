"""Counters of what clients wrote to and read from each topic that has partitions here (BRK-157)."""

from collections import Counter

from kafkatool.core.model.values import TopicPartition


class TopicCounts:
    """One topic's counters since its first partition came. Approximate when two threads count at once."""

    __slots__ = ("appends", "bytes_in", "bytes_out", "failed_appends", "reads")

    def __init__(self) -> None:
        self.appends = 0
        self.failed_appends = 0
        self.bytes_in = 0
        self.reads = 0
        self.bytes_out = 0


class TopicCounters:
    """The counters by topic. Written when a partition comes or goes; whoever counts has the topic's own object."""

    def __init__(self) -> None:
        self._counts: dict[str, TopicCounts] = {}
        self._partitions: Counter[str] = Counter()

    def add(self, partition: TopicPartition) -> TopicCounts:
        """Note that a partition is here; return its topic's counters."""
        self._partitions[partition.topic] += 1
        counts = self._counts.get(partition.topic)
        if counts is None:
            counts = self._counts[partition.topic] = TopicCounts()
        return counts

    def remove(self, partition: TopicPartition) -> None:
        """Note that it is here no more; with a topic's last one its counters go."""
        self._partitions[partition.topic] -= 1
        if self._partitions[partition.topic] <= 0:
            del self._partitions[partition.topic]
            self._counts.pop(partition.topic, None)

    def all(self) -> dict[str, TopicCounts]:
        """Return them by topic, as of now."""
        return dict(self._counts)
