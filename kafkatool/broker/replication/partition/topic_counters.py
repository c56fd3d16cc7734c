"""Counters of what clients wrote to and read from each topic that has partitions here (BRK-157)."""

from collections import Counter
from dataclasses import dataclass

from kafkatool.core.model.values import TopicPartition


@dataclass(slots=True, eq=False)
class TopicCounts:
    """One topic's counters since its first partition came. Approximate when two threads count at once."""

    appends: int = 0
    failed_appends: int = 0
    bytes_in: int = 0
    reads: int = 0
    bytes_out: int = 0


class TopicCounters:
    """The counters by topic. Written when a partition comes or goes; whoever counts has the topic's own object."""

    def __init__(self) -> None:
        self._counts: dict[str, TopicCounts] = {}
        self._partitions: Counter[str] = Counter()

    def add(self, partition: TopicPartition) -> TopicCounts:
        """Note that a partition is here; return its topic's counters."""
        self._partitions[partition.topic] += 1
        return self._counts.setdefault(partition.topic, TopicCounts())

    def remove(self, partition: TopicPartition) -> None:
        """Note that it is here no more; with a topic's last one its counters go."""
        self._partitions[partition.topic] -= 1
        if self._partitions[partition.topic] <= 0:
            del self._partitions[partition.topic]
            self._counts.pop(partition.topic, None)

    def all(self) -> dict[str, TopicCounts]:
        """Return them by topic, as of now."""
        return dict(self._counts)
