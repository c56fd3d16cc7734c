"""The status of a plan, and the reassignments under way, as ZooKeeper tells them (RSN-12, RSN-35X, RSN-38X)."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.throttles import ConfigWrite
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster, read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode


class Status(enum.StrEnum):
    """The status of one partition of a plan (RSN-35X)."""

    PENDING = "pending"  # not written yet
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    NOOP = "noop"  # the plan is what is there already


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one partition: ``current`` replicas (empty: no such partition), ``target`` of the plan; ISR if read."""

    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]
    status: Status
    isr: tuple[int, ...] = ()


def running(zk: ZooKeeper) -> Moves | None:
    """Read the reassignment under way; None: no such znode."""
    node = zk.get(ReassignmentZnode.PATH)
    return ReassignmentZnode.decode(node.data) if node else None


@dataclass(frozen=True, slots=True)
class Verification:
    """The status of a plan. ``removal`` takes the throttles off: empty unless every partition completed (RSN-13).

    ``awaited`` are brokers that partitions in progress are to be on, and that are not registered.
    """

    items: tuple[Move, ...]
    removal: tuple[ConfigWrite, ...]
    awaited: tuple[int, ...] = ()

    @property
    def completed(self) -> bool:
        return all(move.status is Status.COMPLETED for move in self.items)


def verify(zk: ZooKeeper, plan: Moves, *, preserve_throttles: bool = False) -> Verification:
    """Compare a plan with the cluster (RSN-12); writes nothing: ``throttles.apply(zk, removal)`` does."""
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    items = tuple(Move(p, replicas_of(view, p), target, _status(view, p, target)) for p, target in plan.items())
    done = all(move.status is Status.COMPLETED for move in items)
    removal = throttles.plan_removal(zk, {p.topic for p in plan}) if done and not preserve_throttles else []
    return Verification(items, tuple(removal), _awaited(items, view))


def list_running(zk: ZooKeeper) -> tuple[Move, ...]:
    """Read /admin/reassign_partitions, with current replicas and ISR (RSN-38X); empty: nothing runs."""
    moves = running(zk) or {}
    view = read_cluster(zk, {p.topic for p in moves}, states=False)
    states = read_states(zk, moves)
    return tuple(
        Move(p, replicas_of(view, p), moves[p], Status.IN_PROGRESS, states[p].leader_and_isr.isr if p in states else ())
        for p in sorted(moves)
    )


def _awaited(moves: Iterable[Move], view: ClusterView) -> tuple[int, ...]:
    """Return the brokers without which those moves do not end."""
    targets = {broker for move in moves if move.status is Status.IN_PROGRESS for broker in move.target}
    return tuple(sorted(targets.difference(view.brokers)))


def _status(view: ClusterView, partition: TopicPartition, target: tuple[int, ...]) -> Status:
    if partition in (view.reassignment or {}):
        return Status.IN_PROGRESS
    return Status.COMPLETED if replicas_of(view, partition) == target else Status.FAILED


def replicas_of(view: ClusterView, partition: TopicPartition) -> tuple[int, ...]:
    topic = view.topics.get(partition.topic)
    return tuple(topic.assignment.get(partition.partition, ())) if topic else ()
