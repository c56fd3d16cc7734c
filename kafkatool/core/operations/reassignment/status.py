"""The status of a plan, and the reassignments under way, as ZooKeeper tells them (RSN-12, RSN-35X, RSN-38X)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.hindrances import missing
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster, read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicsZnode


def running(zk: ZooKeeper) -> Moves | None:
    """Read the reassignment under way; None: no such znode."""
    node = zk.get(ReassignmentZnode.PATH)
    return ReassignmentZnode.decode(node.data) if node else None


@dataclass(frozen=True, slots=True)
class Verification:
    """The status of a plan. ``removal`` takes the throttles off: empty unless every partition completed (RSN-13).

    ``awaited`` are brokers that partitions in progress are to be on, and that are not registered. ``throttle_stays``:
    there are throttles to take off, but others still move under them (ADM-38).
    """

    items: tuple[Move, ...]
    removal: tuple[ConfigWrite, ...]
    awaited: tuple[int, ...] = ()
    throttle_stays: bool = False

    @property
    def completed(self) -> bool:
        return all(move.status is Status.COMPLETED for move in self.items)


def verify(zk: ZooKeeper, plan: Moves, *, preserve_throttles: bool = False) -> Verification:
    """Compare a plan with the cluster (RSN-12); writes nothing: ``throttles.apply(zk, removal)`` does."""
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    items = tuple(Move(p, replicas_of(view, p), target, _status(view, p, target)) for p, target in plan.items())
    done = all(move.status is Status.COMPLETED for move in items)
    removal = throttles.plan_removal(zk, {p.topic for p in plan}) if done and not preserve_throttles else []
    others = bool(view.reassignment)  # rates are of brokers, not of plans
    awaited = missing((move.target for move in items if move.status is Status.IN_PROGRESS), view.brokers)
    return Verification(items, () if others else tuple(removal), awaited, others and bool(removal))


def moved_by_request(view: ClusterView, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those that are moved, but not by the znode: by a request to the controller, as Kafka >= 2.4 takes it."""
    moving = {TopicPartition(t, p) for t, node in view.topics.items() for p in node.being_moved}
    return sorted(moving.intersection(partitions).difference(view.reassignment or ()))


def requested_as_planned(zk: ZooKeeper, plan: Moves) -> frozenset[TopicPartition]:
    """Return those that a request to the controller is moving to where the plan wants them."""
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    found = ((p, view.topics[p.topic].moves.get(p.partition)) for p in moved_by_request(view, plan))
    return frozenset(p for p, move in found if move is not None and move.target == plan[p])


def copying(zk: ZooKeeper, plan: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions of the plan in the znode that have replicas to catch up with, wherever they are going.

    Those that the topic's node names count too: Kafka's controllers go on copying to them though the znode asks for the
    way back, until the next one is elected (RSN-37X).
    """
    wanted = set(plan)
    moves = {p: to for p, to in (running(zk) or {}).items() if p in wanted}
    view = read_cluster(zk, {p.topic for p in moves}, states=False)
    states = read_states(zk, moves)
    return frozenset(
        p
        for p, to in moves.items()
        if p not in states or not {*to, *replicas_of(view, p)} <= set(states[p].leader_and_isr.isr)
    )


def list_running(zk: ZooKeeper) -> tuple[Move, ...]:
    """Read /admin/reassign_partitions, with current replicas and ISR (RSN-38X); empty: nothing runs."""
    moves = running(zk) or {}
    view = read_cluster(zk, {p.topic for p in moves}, states=False)
    states = read_states(zk, moves)
    return tuple(
        Move(p, replicas_of(view, p), moves[p], Status.IN_PROGRESS, states[p].leader_and_isr.isr if p in states else ())
        for p in sorted(moves)
    )


@dataclass(frozen=True, slots=True)
class LeftThrottle:
    """A throttle under which nothing moves, it seems: rates of ``brokers``, and lists of replicas of ``topics``.

    ``way_off``: a plan that is carried out already, so that verifying it takes the throttle off; empty while others move
    under the rates, which are theirs too.
    """

    brokers: tuple[int, ...]
    topics: tuple[str, ...]
    way_off: Moves

    @property
    def configs(self) -> list[tuple[str, Sequence[str], tuple[str, ...]]]:
        """Return the kind of entity, the names of the configs, and of which entities they are."""
        rates = ("broker", throttles.RATES, tuple(map(str, self.brokers)))
        return [kind for kind in (rates, ("topic", throttles.REPLICAS, self.topics)) if kind[2]]


def left_throttle(zk: ZooKeeper) -> LeftThrottle | None:
    """Find what an earlier plan has left that nobody has verified; None: nothing, or nothing that may be read."""
    try:
        listed, brokers = throttles.listed_topics(zk), list(throttles.rates_by_broker(zk))
    except NoPermissionError:
        return None
    if not listed and not brokers:
        return None
    names = listed or sorted(zk.children(TopicsZnode.PATH) or ())[:1]
    view = read_cluster(zk, names, states=False)
    moving = {p.topic for p in view.reassignment or ()} | {t for t, node in view.topics.items() if node.being_moved}
    if moving:
        topics = tuple(t for t in listed if t not in moving)
        return LeftThrottle((), topics, {}) if topics else None
    first = {t: min(node.assignment) for t, node in view.topics.items() if node.assignment}
    way_off = {TopicPartition(t, p): view.topics[t].assignment[p] for t, p in first.items()}
    return LeftThrottle(tuple(brokers), tuple(listed), way_off)


def _status(view: ClusterView, partition: TopicPartition, target: tuple[int, ...]) -> Status:
    if partition in (view.reassignment or {}):
        return Status.IN_PROGRESS
    return Status.COMPLETED if replicas_of(view, partition) == target else Status.FAILED


def replicas_of(view: ClusterView, partition: TopicPartition) -> tuple[int, ...]:
    topic = view.topics.get(partition.topic)
    return tuple(topic.assignment.get(partition.partition, ())) if topic else ()
