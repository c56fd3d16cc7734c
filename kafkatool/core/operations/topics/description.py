"""The values that ``describe`` shows of topics, and the filters that select among them (TOP-9 to TOP-13, TOP-25X, 26X).

Both ways to a cluster fill them: what one of them cannot tell is None.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkatool.core.model.values import TopicPartition

if TYPE_CHECKING:
    from kafkatool.core.zookeeper.view import ClusterView


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. In ZooKeeper no state node yet: no leader, no epochs, empty ISR (TOP-10).

    What brokers alone tell: ``adding`` and ``removing`` of one that moves, leaders that are eligible out of the ISR.
    """

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int | None
    controller_epoch: int | None
    available: bool
    """It has a leader, and that broker is registered."""
    min_isr: int
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    eligible: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None

    @property
    def preferred(self) -> int | None:
        return self.replicas[0] if self.replicas else None

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < self.replication_factor

    @property
    def replication_factor(self) -> int:
        """Return the number of replicas, less those that a move is to add (ADM-24)."""
        return len(self.replicas) - len(self.adding or ())


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's header and partitions, ascending. ``configs`` None: they cannot be read."""

    topic: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str] | None
    marked_for_deletion: bool | None
    topic_id: str | None = None

    @property
    def replication_factor(self) -> int:
        """Return that of the first partition (TOP-9)."""
        return self.partitions[0].replication_factor if self.partitions else 0


FILTERS: Final[Mapping[str, Callable[[PartitionDescription], bool]]] = {
    "under-replicated-partitions": lambda p: p.under_replicated,
    "unavailable-partitions": lambda p: not p.available,
    "leader-not-preferred": lambda p: p.leader != p.preferred,
    "under-min-isr-partitions": lambda p: p.leader is None or len(p.isr) < p.min_isr,
    "at-min-isr-partitions": lambda p: len(p.isr) == p.min_isr,  # also without leader, by its last ISR (ADM-28)
}
"""The filters of ``describe``, of which one may be given."""


def describe(view: "ClusterView") -> list[TopicDescription]:
    """Describe every topic of the view, by name. The view must have states and configs."""
    return [_topic(view, name) for name in sorted(view.topics)]


def _topic(view: "ClusterView", name: str) -> TopicDescription:
    configs = dict(sorted(view.configs.get(name, {}).items()))
    min_isr = configs.get("min.insync.replicas", "1")  # the broker's default is not in ZooKeeper
    wanted = int(min_isr) if min_isr.isdecimal() else 1
    partitions = tuple(
        _partition(view, TopicPartition(name, p), replicas, wanted)
        for p, replicas in sorted(view.topics[name].assignment.items())
    )
    return TopicDescription(name, partitions, configs, name in view.marked_for_deletion)


def _partition(
    view: "ClusterView", partition: TopicPartition, replicas: tuple[int, ...], min_isr: int
) -> PartitionDescription:
    found = view.states.get(partition)
    in_sync = found.leader_and_isr.isr if found else ()
    # a move by znode tells what is wanted: of that, what is not in sync yet may be new
    target = set((view.reassignment or {}).get(partition, ())).difference(in_sync)
    added = view.topics[partition.topic].added(partition.partition, target)
    adding = tuple(b for b in replicas if b in added) or None
    if found is None:
        return PartitionDescription(partition, None, replicas, (), None, None, False, min_isr, adding)
    state = found.leader_and_isr
    led, epochs = state.leader in view.brokers, (state.leader_epoch, state.controller_epoch)
    return PartitionDescription(partition, state.leader, replicas, state.isr, *epochs, led, min_isr, adding)
