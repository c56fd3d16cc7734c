"""A snapshot of a cluster, whichever way it was read: from znodes, or from what brokers tell."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkatool.core.model.values import BrokerInfo, PartitionState, TopicPartition
from kafkatool.core.zookeeper.znodes import TopicZnode


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot of the cluster. ``topics``, ``states`` and ``configs`` cover the topics asked for, the rest the cluster."""

    brokers: Mapping[int, BrokerInfo]
    controller_id: int | None
    cluster_id: str | None
    topics: Mapping[str, TopicZnode]
    states: Mapping[TopicPartition, PartitionState]
    configs: Mapping[str, Mapping[str, str]]
    marked_for_deletion: frozenset[str]
    reassignment: Mapping[TopicPartition, tuple[int, ...]] | None
    election: tuple[TopicPartition, ...] | None

    def partitions(self) -> list[TopicPartition]:
        """Return every partition of the topics read, sorted."""
        return [TopicPartition(t, p) for t in sorted(self.topics) for p in sorted(self.topics[t].assignment)]
