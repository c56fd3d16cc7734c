"""The values that ``describe`` shows of topics, and the filters that select among them (TOP-9 to TOP-13, TOP-25X, 26X)."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as ZooKeeper has it. No state node yet: no leader, no epochs, empty ISR (TOP-10)."""

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int | None
    controller_epoch: int | None
    available: bool
    """It has a leader, and that broker is registered."""
    min_isr: int

    @property
    def preferred(self) -> int | None:
        return self.replicas[0] if self.replicas else None

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's header and partitions, ascending."""

    topic: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    marked_for_deletion: bool

    @property
    def replication_factor(self) -> int:
        """Return that of the first partition (TOP-9)."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class Filter(enum.Enum):
    """The filters of ``describe``, of which one may be given."""

    UNDER_REPLICATED = "under-replicated-partitions"
    UNAVAILABLE = "unavailable-partitions"
    LEADER_NOT_PREFERRED = "leader-not-preferred"
    UNDER_MIN_ISR = "under-min-isr-partitions"
    AT_MIN_ISR = "at-min-isr-partitions"

    def selects(self, partition: PartitionDescription) -> bool:
        match self:
            case Filter.UNDER_REPLICATED:
                return partition.under_replicated
            case Filter.UNAVAILABLE:
                return not partition.available
            case Filter.LEADER_NOT_PREFERRED:
                return partition.leader != partition.preferred
            case Filter.UNDER_MIN_ISR:
                return partition.leader is None or len(partition.isr) < partition.min_isr
            case Filter.AT_MIN_ISR:
                return partition.leader is not None and len(partition.isr) == partition.min_isr


def describe(view: ClusterView) -> list[TopicDescription]:
    """Describe every topic of the view, by name. The view must have states and configs."""
    return [_topic(view, name) for name in sorted(view.topics)]


def _topic(view: ClusterView, name: str) -> TopicDescription:
    configs = dict(sorted(view.configs.get(name, {}).items()))
    min_isr = configs.get("min.insync.replicas", "1")  # the broker's default is not in ZooKeeper
    wanted = int(min_isr) if min_isr.isdecimal() else 1
    assignment = view.topics[name].assignment
    partitions = tuple(
        _partition(view, TopicPartition(name, p), replicas, wanted) for p, replicas in sorted(assignment.items())
    )
    return TopicDescription(name, partitions, configs, name in view.marked_for_deletion)


def _partition(
    view: ClusterView, partition: TopicPartition, replicas: tuple[int, ...], min_isr: int
) -> PartitionDescription:
    found = view.states.get(partition)
    if found is None:
        return PartitionDescription(partition, None, replicas, (), None, None, False, min_isr)
    state = found.leader_and_isr
    return PartitionDescription(
        partition=partition,
        leader=state.leader,
        replicas=replicas,
        isr=state.isr,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        available=state.leader in view.brokers,
        min_isr=min_isr,
    )
