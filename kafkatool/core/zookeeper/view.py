"""A snapshot of a cluster, whichever way it was read: from znodes, or from what brokers tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkatool.core.model.values import BrokerInfo, PartitionState, TopicPartition
from kafkatool.core.zookeeper.znodes import TopicZnode


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot of the cluster. ``topics``, ``states`` and ``configs`` cover the topics asked for, the rest the cluster.

    ``topic_ids`` tell a topic from an earlier one of its name: its id, where it has none the transaction that made its node.
    Topics of which neither is told are not in it.
    ``unreadable``: paths of nodes of brokers, topics, partitions and configs that are there, and not in the snapshot.
    """

    brokers: Mapping[int, BrokerInfo]
    controller_id: int | None
    cluster_id: str | None
    topics: Mapping[str, TopicZnode]
    states: Mapping[TopicPartition, PartitionState]
    configs: Mapping[str, Mapping[str, str]]
    marked_for_deletion: frozenset[str]
    reassignment: Mapping[TopicPartition, tuple[int, ...]] | None
    election: tuple[TopicPartition, ...] | None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    _staying: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def partitions(self) -> list[TopicPartition]:
        """Return every partition of the topics read, sorted."""
        return [TopicPartition(t, p) for t in sorted(self.topics) for p in sorted(self.topics[t].assignment)]

    def staying(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """Return the replicas of every partition of topics that are not being deleted, sorted by partition."""
        if not self._staying:  # several checks of kt health ask for it, of 10,000 partitions
            staying = {
                p: tuple(self.topics[p.topic].assignment[p.partition])
                for p in self.partitions()
                if p.topic not in self.marked_for_deletion
            }
            self._staying.update(staying)
        return self._staying

    def dead_holders(self) -> frozenset[int]:
        """Return the brokers that hold replicas of what stays, and are not live."""
        return frozenset(b for replicas in self.staying().values() for b in replicas).difference(self.brokers)

    def adding(self, partition: TopicPartition) -> frozenset[int]:
        """Return the replicas that a move adds, or may: those need not be in sync yet (ADM-75)."""
        topic = self.topics.get(partition.topic, TopicZnode({}))
        return topic.added(partition.partition, (self.reassignment or {}).get(partition, ()))

    @property
    def moving(self) -> frozenset[TopicPartition]:
        """Return the partitions that are moved, by either way (RSN-10, KIP-455)."""
        noted = {TopicPartition(t, p) for t, node in self.topics.items() for p in node.being_moved}
        return frozenset(noted.union(self.reassignment or ()))

    @property
    def requested(self) -> frozenset[TopicPartition]:
        """Return those of them that a request to the controller moves, and not the znode."""
        return self.moving.difference(self.reassignment or ())

    def origin(self, partition: TopicPartition) -> tuple[int, ...] | None:
        """Return the replicas from before the move of a partition, all of one at rest; None: nothing tells of its move.

        Before Kafka 2.4 the controller adds the target to what is assigned, and notes nowhere what of it is new.
        """
        topic = self.topics[partition.topic]
        if topic.is_moved(partition.partition):
            return topic.move_of(partition.partition).origin
        assigned = tuple(topic.assignment[partition.partition])
        asked = (self.reassignment or {}).get(partition)
        return assigned if asked is None or not set(asked) <= set(assigned) else None

    def target(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the replicas that a partition on the move is to have."""
        asked = (self.reassignment or {}).get(partition)
        return self.topics[partition.topic].move_of(partition.partition).target if asked is None else asked
