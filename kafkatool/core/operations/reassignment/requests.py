"""Move replicas: propose a plan, check it, start it, follow it, verify it (RSN-1 to RSN-38X).

One reassignment runs at a time: it is the znode /admin/reassign_partitions, which the controller empties as partitions
finish. Starting is one exclusive create, so of two that start together one wins and the other is told (RSN-31X).
"""

import enum
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafkatool.core.errors import NodeExistsError, RefusedError, ZnodeTooLargeError
from kafkatool.core.model.values import BrokerInfo, TopicPartition, join_ids
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.throttles import ConfigWrite
from kafkatool.core.planner.kafkas import plan_like_new
from kafkatool.core.planner.minimal import plan_minimal
from kafkatool.core.planner.plan_files import Moves, PartitionName, bracketed, split_plan
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster, read_states
from kafkatool.core.zookeeper.session import Create, Op, ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from kafkatool.core.zookeeper.znodes import ReassignmentZnode

MAX_BATCH_BYTES = 512_000  # of one znode, half of ZooKeeper's limit (RSN-19X)
SHOWN_BY_LIST = "kt reassign --list shows what runs; kt waits for it with --verify --wait and its plan"
POLL_MS = 1000  # how often the progress of a running move is read; the end itself is watched


class Status(enum.StrEnum):
    """What became of one partition of a plan (RSN-35X)."""

    PENDING = "pending"  # not written yet
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    NOOP = "noop"  # the plan is what is there already


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: ``current`` replicas (empty: no such partition), ``target`` of the plan; ISR where it was read."""

    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]
    status: Status
    isr: tuple[int, ...] = ()


# --- generate --------------------------------------------------------------------------------------------------


class Strategy(enum.StrEnum):
    """How ``generate`` plans (RSN-26X)."""

    KAFKA = "kafka"  # every topic spread anew, as by Kafka's own tool
    MINIMAL = "minimal"  # the fewest moves that even out all topics together


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for whole topics. ``uneven_topics`` have partitions of different replica counts (RSN-3).

    ``targets`` are the brokers planned for, ``brokers`` all that are registered.
    """

    current: Moves
    proposed: Moves
    uneven_topics: tuple[str, ...]
    targets: Mapping[int, BrokerInfo]
    brokers: Mapping[int, BrokerInfo]

    @property
    def copies(self) -> int:
        """Replicas that will be copied to a broker that has none of the partition."""
        return sum(len(set(to).difference(self.current[p])) for p, to in self.proposed.items())


def generate(
    zk: ZooKeeper,
    topics: Sequence[str],
    broker_ids: Sequence[int],
    *,
    rack_aware: bool,
    rng: random.Random,
    strategy: Strategy = Strategy.KAFKA,
    exclude: Collection[int] = (),
    replication_factor: int | None = None,
) -> Proposal:
    """Plan the topics over the listed brokers less ``exclude`` (RSN-3, RSN-26X, RSN-28X); writes nothing.

    ``rng`` gives ASG-3's two numbers to Kafka's strategy. Raises RefusedError: unknown topics or brokers (RSN-17X), too
    few brokers, racks.
    """
    view = read_cluster(zk, topics, states=False)
    if unknown := [t for t in topics if t not in view.topics]:
        raise RefusedError(f"List of topics to reassign contains topics that do not exist: {','.join(unknown)}")
    wanted = sorted(set(broker_ids).difference(exclude))
    if not wanted:
        raise RefusedError("every broker of the broker list is excluded: none is left to plan for")
    if missing := [b for b in wanted if b not in view.brokers]:
        live = join_ids(sorted(view.brokers)) or "none"
        raise RefusedError(
            f"Broker list contains brokers that are not registered: {join_ids(missing)} (registered: {live})"
        )
    targets = {b: view.brokers[b] for b in wanted}
    assignments = {t: view.topics[t].assignment for t in sorted(topics) if view.topics[t].assignment}
    current = {TopicPartition(t, p): tuple(r) for t, a in assignments.items() for p, r in sorted(a.items())}
    uneven = tuple(t for t, a in assignments.items() if len({len(replicas) for replicas in a.values()}) > 1)
    proposed: Moves
    if strategy is Strategy.MINIMAL:
        proposed = plan_minimal(
            list(targets.values()), current, replication_factor=replication_factor, rack_aware=rack_aware
        )
    else:
        spread = {
            t: plan_like_new(
                list(targets.values()), a, replication_factor=replication_factor, rack_aware=rack_aware, rng=rng
            )
            for t, a in assignments.items()
        }
        proposed = {TopicPartition(t, p): tuple(r) for t, a in spread.items() for p, r in sorted(a.items())}
    return Proposal(current, proposed, uneven, targets, view.brokers)


# --- execute ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that was checked, and everything starting it will write. Nothing is written yet.

    ``batches`` are ``moves`` cut into what goes into the znode one after the other (RSN-19X). ``running`` is the
    reassignment found under way: then only throttle rates may be written (RSN-10).
    """

    moves: Moves
    batches: tuple[Moves, ...]
    current: Moves
    running: Moves | None
    throttle_writes: tuple[ConfigWrite, ...]
    controller: bool  # whether there is one: else nothing of it is carried out until there is

    @property
    def unchanged(self) -> list[TopicPartition]:
        """Plan partitions that have the planned replicas already (RSN-18X)."""
        return [p for p, replicas in self.moves.items() if self.current[p] == replicas]

    @property
    def ops(self) -> list[Op]:
        """Every write in order, for showing them (COM-6X)."""
        ops = [op for write in self.throttle_writes for op in write.ops]
        if self.running is None:
            ops += [Create(ReassignmentZnode.PATH, ReassignmentZnode.encode(batch)) for batch in self.batches]
        return ops


def prepare(
    zk: ZooKeeper,
    plan: Moves,
    *,
    throttle: int | None = None,
    skip_unchanged: bool = False,
    force: bool = False,
    max_bytes: int = MAX_BATCH_BYTES,
    max_count: int = 0,
    name_of: PartitionName = bracketed,
) -> Prepared:
    """Check a plan against the cluster (RSN-7, RSN-30X) and lay out the writes; ``throttle`` is bytes/s per broker.

    ``max_bytes`` and ``max_count`` entries (0: any number) bound a batch. They cut the whole plan, before unchanged
    partitions are left out, so that batches are the same whenever it is started (RSN-20X).

    ``force`` goes on with brokers that are not registered, beside a preferred election of the same partitions, and
    with a throttle too low to end. Raises RefusedError in Kafka's words.
    """
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    current = {p: replicas for p in plan if (replicas := _assigned(view, p))}
    if missing := [p for p in plan if p not in current]:
        names = ", ".join(map(name_of, missing))
        raise RefusedError(
            f"The proposed assignment contains non-existent partitions: {names}",
            now="the plan is stale, or that of another cluster: make a new one with --generate",
        )
    if not force:
        _check_unforced(view, plan, throttle, name_of)
    cut = split_plan(plan, max_bytes=max_bytes, max_count=max_count)
    changing = [{p: r for p, r in batch.items() if not skip_unchanged or current[p] != r} for batch in cut]
    batches = tuple(batch for batch in changing if batch)
    moves = {p: r for batch in batches for p, r in batch.items()}
    writes: list[ConfigWrite] = []
    if throttle is not None and moves:
        assignments = {t: topic.assignment for t, topic in view.topics.items() if any(p.topic == t for p in moves)}
        writes += throttles.plan_rates(zk, throttles.throttled_brokers(moves, assignments), throttle)
        if view.reassignment is None:
            writes += throttles.plan_replicas(zk, moves, current)
    has_controller = view.controller_id is not None
    return Prepared(moves, batches, current, view.reassignment, tuple(writes), has_controller)


def _check_unforced(view: ClusterView, plan: Moves, throttle: int | None, name_of: PartitionName) -> None:
    unknown = sorted({b for replicas in plan.values() for b in replicas} - set(view.brokers))
    if unknown:
        live = join_ids(sorted(view.brokers)) or "none"
        raise RefusedError(
            f"The proposed assignment contains non-existent brokerIDs: {join_ids(unknown)}",
            now=f"registered brokers: {live}; start the others, or add --force to wait for them",
        )
    if electing := sorted(set(view.election or ()).intersection(plan)):
        raise RefusedError(
            f"a preferred replica election is under way for {','.join(map(name_of, electing))}; "
            "wait until it has ended, or add --force"
        )
    if throttle is not None and throttle < throttles.MIN_SAFE_RATE:
        raise RefusedError(
            f"a throttle of {throttle} B/s may never let the move end: give at least {throttles.MIN_SAFE_RATE}, "
            "or add --force"
        )


def start(zk: ZooKeeper, prepared: Prepared, *, name_of: PartitionName = bracketed) -> list[ConfigWrite]:
    """Write what was prepared: throttles first, then the znode (RSN-9, RSN-14). Returns what undoes the throttles.

    Of several batches the first; ``follow`` submits the others. Raises RefusedError if another reassignment appeared
    meanwhile; the throttles are then back as they were.
    """
    undo = throttles.apply(zk, prepared.throttle_writes)
    if prepared.running is not None or not prepared.moves:
        return undo
    try:
        zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(prepared.batches[0]), make_parents=True)
    except NodeExistsError as e:
        throttles.undo(zk, undo)
        names = ",".join(map(name_of, sorted(running(zk) or {})))
        raise RefusedError(
            f"Partition reassignment currently in progress for {names}. Aborting operation", now=SHOWN_BY_LIST
        ) from e
    except ZnodeTooLargeError:
        throttles.undo(zk, undo)
        raise
    return undo


def running(zk: ZooKeeper) -> Moves | None:
    """The reassignment under way; None: no such znode."""
    node = zk.get(ReassignmentZnode.PATH)
    return ReassignmentZnode.decode(node.data) if node else None


# --- wait ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """Partitions that left the znode, and of the replicas the plan wants those that are in sync (RSN-33X).

    Of the whole plan, ``batch`` of ``batches`` being in the znode; ``left`` are the partitions that have not finished.
    """

    finished: int
    total: int
    in_sync: int
    wanted: int
    elapsed_s: float
    batch: int = 1
    batches: int = 1
    left: frozenset[TopicPartition] = frozenset()

    @property
    def remaining_s(self) -> float | None:
        """Estimate from the rate of finished partitions so far; None: no partition has finished yet."""
        if not self.finished:
            return None
        return self.elapsed_s / self.finished * (self.total - self.finished)


Unsent = Callable[[Set[TopicPartition]], Set[TopicPartition]]


def wait(
    zk: ZooKeeper,
    moves: Moves,
    *,
    timeout_s: float | None,
    on_progress: Callable[[Progress], None],
    poll_ms: int = POLL_MS,
    unsent: Unsent = lambda sent: frozenset(),
) -> bool:
    """Until no partition of ``moves`` is in the znode; False: the deadline passed first, the move goes on.

    ``unsent`` tells what somebody else is still to send, which is waited for too. It is given the partitions of
    ``moves`` in the znode.
    """
    begun = time.monotonic()
    deadline = None if timeout_s is None else begun + timeout_s
    request = WatchedNode(zk, ReassignmentZnode.PATH)
    while True:
        node = request.read()
        left = frozenset(p for p in (ReassignmentZnode.decode(node.data) if node else {}) if p in moves)
        later = unsent(left)
        on_progress(_progress(zk, moves, left, later, time.monotonic() - begun))
        if not left and not later:
            return True
        pause = poll_ms / 1000
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                return False
        request.wait(pause)


class Followed(NamedTuple):
    """How many of a plan's batches were submitted, and how many of those have finished."""

    sent: int
    finished: int


def follow(
    zk: ZooKeeper,
    batches: Sequence[Moves],
    *,
    timeout_s: float | None,
    on_progress: Callable[[Progress], None],
    poll_ms: int = POLL_MS,
    on_batch: Callable[[int, bool], None] = lambda number, finished: None,
    started: bool = True,
) -> Followed:
    """Wait for the first batch, if it was ``started``, and submit and wait for the others, each when the znode is gone.

    ``on_batch`` is told the batch's number, from 0, and False before it is submitted (again after each wait for somebody
    else's reassignment, which may be long), True when it has finished. An error it raises ends the run.

    When the deadline passes first no further batch is submitted, and one may still be under way (RSN-19X).
    """
    begun = time.monotonic()
    partitions = sum(map(len, batches))
    wanted = sum(len(replicas) for batch in batches for replicas in batch.values())
    done = done_replicas = 0

    def report(p: Progress) -> None:
        elapsed_s = time.monotonic() - begun
        counts = (done + p.finished, partitions, done_replicas + p.in_sync, wanted, elapsed_s)
        left = p.left.union(*batches[number + 1 :])
        on_progress(Progress(*counts, number + 1, len(batches), left))

    def remaining_s() -> float | None:
        return None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())

    for number, batch in enumerate(batches):
        begins = partial(on_batch, number, False)
        if (number or not started) and not _submit(zk, batch, remaining_s, poll_ms, begins):
            return Followed(number, number)
        if not wait(zk, batch, timeout_s=remaining_s(), on_progress=report, poll_ms=poll_ms):
            return Followed(number + 1, number)
        on_batch(number, True)
        done += len(batch)
        done_replicas += sum(map(len, batch.values()))
    return Followed(len(batches), len(batches))


def _submit(
    zk: ZooKeeper, batch: Moves, remaining_s: Callable[[], float | None], poll_ms: int, before: Callable[[], None]
) -> bool:
    """Create the znode as soon as there is none; somebody else's reassignment is waited for. False: deadline.

    ``before`` each attempt: whoever wants no more to be sent says so while this waits.
    """
    request = WatchedNode(zk, ReassignmentZnode.PATH)
    while True:
        before()
        left = remaining_s()
        if left is not None and left <= 0:
            return False
        try:
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(batch), make_parents=True)
        except NodeExistsError:
            if request.read() is not None:
                request.wait(poll_ms / 1000 if left is None else min(left, poll_ms / 1000))
        else:
            return True


def _progress(
    zk: ZooKeeper, moves: Moves, left: Set[TopicPartition], later: Set[TopicPartition], elapsed_s: float
) -> Progress:
    states = read_states(zk, left)
    wanted = sum(len(replicas) for replicas in moves.values())
    lagging = sum(1 for p in left for b in moves[p] if p not in states or b not in states[p].leader_and_isr.isr)
    lagging += sum(len(moves[p]) for p in later)
    unfinished = frozenset(left | later)
    return Progress(len(moves) - len(unfinished), len(moves), wanted - lagging, wanted, elapsed_s, left=unfinished)


# --- verify and list -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verification:
    """How far a plan is. ``removal`` takes the throttles off: empty unless every partition completed (RSN-13).

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
    items = tuple(Move(p, _assigned(view, p), target, _status(view, p, target)) for p, target in plan.items())
    done = all(move.status is Status.COMPLETED for move in items)
    removal = throttles.plan_removal(zk, {p.topic for p in plan}) if done and not preserve_throttles else []
    return Verification(items, tuple(removal), _awaited(items, view))


def list_running(zk: ZooKeeper) -> tuple[Move, ...]:
    """What /admin/reassign_partitions holds, with current replicas and ISR (RSN-38X); empty: nothing runs."""
    moves = running(zk) or {}
    view = read_cluster(zk, {p.topic for p in moves}, states=False)
    states = read_states(zk, moves)
    return tuple(
        Move(p, _assigned(view, p), moves[p], Status.IN_PROGRESS, states[p].leader_and_isr.isr if p in states else ())
        for p in sorted(moves)
    )


def _awaited(moves: Iterable[Move], view: ClusterView) -> tuple[int, ...]:
    """Without them those moves do not end."""
    targets = {broker for move in moves if move.status is Status.IN_PROGRESS for broker in move.target}
    return tuple(sorted(targets.difference(view.brokers)))


def _status(view: ClusterView, partition: TopicPartition, target: tuple[int, ...]) -> Status:
    if partition in (view.reassignment or {}):
        return Status.IN_PROGRESS
    return Status.COMPLETED if _assigned(view, partition) == target else Status.FAILED


def _assigned(view: ClusterView, partition: TopicPartition) -> tuple[int, ...]:
    topic = view.topics.get(partition.topic)
    return tuple(topic.assignment.get(partition.partition, ())) if topic else ()
