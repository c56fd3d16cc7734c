"""Where the replicas of brokers that are to be emptied go, and what speaks against it (ADM-106). Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import BrokerInfo, TopicPartition, first_of, in_number, join_ids
from kafkatool.core.planner.minimal import plan_minimal
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView

NAMED: Final = 5  # partitions in a refusal


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """The replicas of all partitions before and after. ``targets`` hold them then.

    ``less_spread``: partitions that will be on fewer racks than they are.
    """

    current: Moves
    proposed: Moves
    targets: Mapping[int, BrokerInfo]
    less_spread: tuple[TopicPartition, ...]

    @property
    def moves(self) -> Moves:
        """Return what changes."""
        return {p: to for p, to in self.proposed.items() if self.current[p] != to}


def held_by(view: ClusterView, brokers: Collection[int]) -> list[TopicPartition]:
    """Return the partitions that are assigned to any of those brokers; topics being deleted do not count."""
    return [p for p, replicas in view.staying().items() if not set(brokers).isdisjoint(replicas)]


def plan_drain(view: ClusterView, drained: Sequence[int], *, rack_aware: bool) -> DrainPlan:
    """Plan all partitions over the other brokers, evenly and with the fewest moves (RSN-26X, RSN-28X).

    The view must have states. Raises RefusedError: a broker nobody knows, something moves, a broker that would have to be
    filled is dead, the rest cannot hold some partition's replicas, one that would move has no live replica in sync to be
    copied from.
    """
    check_known(view, drained)
    current = {p: replicas for p, replicas in view.staying().items() if replicas}
    if moving := view.moving:
        raise RefusedError(
            f"{in_number(len(moving), 'partition is', 'partitions are')} being moved: wait until that has ended",
            now="kt reassign --list shows what moves",
        )
    if dead := sorted(view.dead_holders().difference(drained)):
        raise RefusedError(
            f"{in_number(len(dead), 'broker is', 'brokers are')} assigned replicas and not live: {join_ids(dead)}",
            now="start them, or drain them too: their replicas cannot be moved without being rebuilt",
        )
    targets = {b: info for b, info in view.brokers.items() if b not in drained}
    most = max(map(len, current.values()), default=0)
    if len(targets) < most:
        example = min(p for p, replicas in current.items() if len(replicas) == most)
        left = in_number(len(targets), "broker is", "brokers are")
        raise RefusedError(f"{example} has {most} replicas, and {left} left to hold them")
    proposed = plan_minimal(list(targets.values()), current, rack_aware=rack_aware)
    _check_copies(view, sorted(p for p, to in proposed.items() if current[p] != to))
    spread = sorted(p for p, to in proposed.items() if _racks(to, view.brokers) < _racks(current[p], view.brokers))
    return DrainPlan({p: current[p] for p in proposed}, proposed, targets, tuple(spread))


def check_known(view: ClusterView, drained: Collection[int]) -> None:
    """Raise RefusedError for a broker that is neither registered nor assigned anything: a mistyped id proves nothing."""
    held = {b for replicas in view.staying().values() for b in replicas}
    if unknown := sorted(set(drained) - held - set(view.brokers)):
        live = join_ids(sorted(view.brokers)) or "none"
        raise RefusedError(f"no such broker: {join_ids(unknown)}, neither registered (those are {live}) nor assigned")


def _check_copies(view: ClusterView, moved: Sequence[TopicPartition]) -> None:
    isrs = {p: set(view.states[p].leader_and_isr.isr) for p in moved if p in view.states}
    lost = [p for p in moved if isrs.get(p, set()).isdisjoint(view.brokers)]
    if lost:
        what = in_number(len(lost), "partition has", "partitions have")
        holders = sorted({b for p in lost for b in view.topics[p.topic].assignment[p.partition]} - set(view.brokers))
        raise RefusedError(
            f"{what} no live replica in sync, so nothing could be copied: {first_of(lost, NAMED)}",
            now=f"start broker {join_ids(holders, ', ')}: the only copy may be there" if holders else None,
        )


def _racks(replicas: Collection[int], brokers: Mapping[int, BrokerInfo]) -> int:
    return len({brokers[b].rack for b in replicas if b in brokers} - {None})
