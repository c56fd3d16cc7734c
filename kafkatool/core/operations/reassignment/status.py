"""The status of a plan, and the moves under way, as ZooKeeper tells them (RSN-12, RSN-35X, RSN-38X).

A move is begun by the znode /admin/reassign_partitions, or by a request to the controller. Kafka >= 2.4 notes both in the
node of their topic, our controller those by request, older ones none: so what moves is told by both nodes together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.moves import Move, Replicas, Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.hindrances import missing
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster, read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode


def running(zk: ZooKeeper) -> Moves | None:
    """Read what the znode asks for; None: no such znode."""
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
    """Compare a plan with the cluster (RSN-12); writes nothing: ``throttles.apply(zk, removal)`` does.

    Throttles are read first: where there are some, it must be known whether anything of the whole cluster moves.
    """
    topics = {p.topic for p in plan}
    removal = [] if preserve_throttles else throttles.plan_removal(zk, topics)
    view = read_cluster(zk, None if removal else topics, states=False)
    moving = view.moving
    items = tuple(_move(p, replicas_of(view, p), target, is_moving=p in moving) for p, target in plan.items())
    done = all(move.status is Status.COMPLETED for move in items)
    awaited = missing((move.target for move in items if move.status is Status.IN_PROGRESS), view.brokers)
    stays = done and bool(removal) and bool(moving)  # rates are of brokers, not of plans
    return Verification(items, tuple(removal) if done and not moving else (), awaited, stays)


def find_requested(zk: ZooKeeper, plan: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """Read which of the plan's partitions a request to the controller moves, and not the znode, wherever to."""
    partitions = frozenset(plan)
    return read_cluster(zk, {p.topic for p in partitions}, states=False).requested & partitions


def find_requested_as_planned(zk: ZooKeeper, plan: Moves) -> frozenset[TopicPartition]:
    """Read which of them a request is moving to where the plan wants them."""
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    return frozenset(p for p in view.requested.intersection(plan) if view.target(p) == plan[p])


def copying(zk: ZooKeeper, plan: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions of the plan on the move that have replicas to catch up with, wherever they are going.

    Those that the topic's node names count too: Kafka's controllers go on copying to them though the znode asks for the
    way back, until the next one is elected (RSN-37X).
    """
    wanted = set(plan)
    view = read_cluster(zk, {p.topic for p in wanted}, states=False)
    moves = {p: view.target(p) for p in view.moving.intersection(wanted)}
    states = read_states(zk, moves)
    return frozenset(
        p
        for p, to in moves.items()
        if p not in states or not {*to, *replicas_of(view, p)} <= set(states[p].leader_and_isr.isr)
    )


def list_running(zk: ZooKeeper) -> tuple[Move, ...]:
    """Read what moves, with current replicas and ISR (RSN-38X); empty: nothing does."""
    view = read_cluster(zk, states=False)
    moving = sorted(view.moving)
    isrs = {p: state.leader_and_isr.isr for p, state in read_states(zk, moving).items()}
    return tuple(Move(p, replicas_of(view, p), view.target(p), Status.IN_PROGRESS, isrs.get(p, ())) for p in moving)


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
    view = read_cluster(zk, states=False)
    if moving := {p.topic for p in view.moving}:
        topics = tuple(t for t in listed if t not in moving)
        return LeftThrottle((), topics, {}) if topics else None
    names = set(listed or sorted(view.topics)[:1])
    first = {t: min(node.assignment) for t, node in view.topics.items() if t in names and node.assignment}
    way_off = {TopicPartition(t, p): view.topics[t].assignment[p] for t, p in first.items()}
    return LeftThrottle(tuple(brokers), tuple(listed), way_off)


def _move(partition: TopicPartition, current: Replicas, target: Replicas, *, is_moving: bool) -> Move:
    ended = Status.COMPLETED if current == target else Status.FAILED
    return Move(partition, current, target, Status.IN_PROGRESS if is_moving else ended)


def replicas_of(view: ClusterView, partition: TopicPartition) -> tuple[int, ...]:
    topic = view.topics.get(partition.topic)
    return tuple(topic.assignment.get(partition.partition, ())) if topic else ()
