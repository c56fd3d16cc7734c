"""The way of a plan into ZooKeeper: checked, cut into batches, submitted with its throttles (RSN-7 to RSN-10, 18X to 31X).

One reassignment runs at a time: it is the znode /admin/reassign_partitions, which the controller empties as partitions
finish. Starting is one exclusive create, so of two that start together one wins and the other is told (RSN-31X).
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkatool.core.errors import NodeExistsError, RefusedError, ZooKeeperError
from kafkatool.core.model.moves import minus
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.status import replicas_of, running
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.plan_files import Moves, PartitionName, bracketed, split_plan
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import Create, Op, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode

MAX_BATCH_BYTES: Final = 512_000  # of one znode, half of ZooKeeper's limit (RSN-19X)
SHOWN_BY_LIST: Final = "kt reassign --list shows what runs; kt waits for it with --verify --wait and its plan"
CANCELLED_BY_REQUEST: Final = "such a move is ended by kt reassign --bootstrap-server HOST:PORT --cancel, with its plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A plan that was checked and cut into ``batches``, each begun when the one before has ended. Nothing is written yet.

    ``throttle`` is bytes per second and broker. The bounds cut the same plan into the same batches again (RSN-20X).
    """

    moves: Moves
    batches: tuple[Moves, ...]
    current: Moves
    way_back: Moves  # the replicas of ``moves`` before all of it, also before a move whose place it takes
    controller: bool  # whether there is one: else nothing of it is carried out until there is
    throttle: int | None
    max_bytes: int
    max_count: int

    @property
    def unchanged(self) -> list[TopicPartition]:
        """Return partitions that have the planned replicas already (RSN-18X)."""
        return [p for p, replicas in self.moves.items() if self.current[p] == replicas]

    @property
    def saved(self) -> tuple[SavedThrottle, ...]:
        """Return what throttles are before it is begun, and what it makes of them."""
        return ()

    @property
    def earlier(self) -> tuple[str, ...]:
        """Return the topics that have the throttle of another plan."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Submission):
    """A plan for the znode, and everything starting it will write.

    ``batches`` are what goes into the znode one after the other (RSN-19X). ``running`` is the reassignment found under way:
    then only throttle rates may be written (RSN-10). ``replacing``: it takes the place of moves that were requested; those
    there are now are ``replaced``. ``gone`` are partitions of the plan that were left out, as they do not exist any more.
    """

    running: Moves | None
    replacing: bool
    replaced: frozenset[TopicPartition]
    gone: tuple[TopicPartition, ...]
    throttle_writes: tuple[ConfigWrite, ...]
    throttled_before: tuple[str, ...]  # topics with the throttle of another plan

    @property
    def saved(self) -> tuple[SavedThrottle, ...]:
        return tuple(throttles.saved(self.throttle_writes))

    @property
    def earlier(self) -> tuple[str, ...]:
        return self.throttled_before

    @property
    def ops(self) -> list[Op]:
        """Return every write in order, for showing them (COM-6X)."""
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
    skip_gone: bool = False,
    force: bool = False,
    max_bytes: int = MAX_BATCH_BYTES,
    max_count: int = 0,
    name_of: PartitionName = bracketed,
) -> Prepared:
    """Check a plan against the cluster (RSN-7, RSN-30X) and lay out the writes; ``throttle`` is bytes/s per broker.

    ``max_bytes`` and ``max_count`` entries (0: any number) bound a batch. They cut the whole plan, before unchanged
    partitions are left out, so that batches are the same whenever it is started (RSN-20X).

    ``skip_gone`` leaves out what does not exist any more: a plan that was begun may outlive some of its topics.

    ``force`` goes on with brokers that are not registered, beside a preferred election of the same partitions, in place
    of moves that were requested of the controller, and with a throttle too low to end. Raises RefusedError in Kafka's
    words.
    """
    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    current = {p: replicas for p in plan if (replicas := replicas_of(view, p))}
    missing = [p for p in plan if p not in current]
    gone = tuple(p for p in missing if TopicZnode.path(p.topic) not in view.unreadable) if skip_gone else ()
    if len(gone) < len(missing):
        names = ", ".join(map(name_of, (p for p in missing if p not in gone)))
        raise RefusedError(
            f"The proposed assignment contains non-existent partitions: {names}",
            now="the plan is stale, or that of another cluster: make a new one with --generate",
        )
    if not force:
        _check_unforced(view, {p: r for p, r in plan.items() if p in current}, throttle, name_of)
    cut = split_plan(plan, max_bytes=max_bytes, max_count=max_count)
    changing = [
        {p: r for p, r in batch.items() if p in current and (not skip_unchanged or current[p] != r)} for batch in cut
    ]
    batches = tuple(batch for batch in changing if batch)
    moves = {p: r for batch in batches for p, r in batch.items()}
    writes: list[ConfigWrite] = []
    throttled_before: list[str] = []
    if throttle is not None and moves:
        throttled_before = throttles.listed_topics(zk)
        writes = plan_throttle(zk, view, moves, throttle, rates_alone=view.reassignment is not None)
    prepared = Prepared(
        moves=moves,
        batches=batches,
        current=current,
        way_back={p: view.origin(p) or current[p] for p in moves},
        running=view.reassignment,
        replacing=force,
        replaced=view.requested.intersection(moves),
        gone=gone,
        throttle_writes=tuple(writes),
        throttled_before=tuple(throttled_before),
        controller=view.controller_id is not None,
        throttle=throttle,
        max_bytes=max_bytes,
        max_count=max_count,
    )
    zk.check_permitted(prepared.ops)  # several transactions follow: none is made where one would be refused
    return prepared


def plan_throttle(
    zk: ZooKeeper, view: ClusterView, moves: Moves, rate: int, *, rates_alone: bool = False
) -> list[ConfigWrite]:
    """Plan the rates of all brokers that those moves touch, and the lists of their topics (RSN-14)."""
    moved = {p.topic for p in moves}
    assignments = {t: topic.assignment for t, topic in view.topics.items() if t in moved}
    writes = throttles.plan_rates(zk, throttles.throttled_brokers(moves, assignments), rate)
    if not rates_alone:
        origins = {p: minus(replicas_of(view, p), view.adding(p)) for p in moves}
        writes += throttles.plan_replicas(zk, moves, origins, view.requested.difference(moves))
    return writes


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
    if moving := sorted(view.requested.intersection(plan)):
        raise RefusedError(
            f"a request to the controller is moving {','.join(map(name_of, moving))}, which this plan would replace; "
            "wait until it has ended, or add --force",
            now=CANCELLED_BY_REQUEST,
        )
    check_rate(throttle)


def check_rate(throttle: int | None) -> None:
    """Raise RefusedError where nothing may ever end under it (RSN-24X)."""
    if throttle is not None and throttle < throttles.MIN_SAFE_RATE:
        raise RefusedError(
            f"a throttle of {throttle} B/s may never let the move end: give at least {throttles.MIN_SAFE_RATE}, "
            "or add --force"
        )


def start(zk: ZooKeeper, prepared: Prepared, *, name_of: PartitionName = bracketed) -> None:
    """Write what was prepared: throttles first, then the znode (RSN-9, RSN-14).

    Of several batches the first; ``follow`` submits the others. Raises RefusedError if another reassignment appeared
    meanwhile. Throttles are then back as they were, and so they are, as far as ZooKeeper is there, whatever else ends it
    with nothing begun.
    """
    undo = throttles.apply(zk, prepared.throttle_writes)
    if prepared.running is not None or not prepared.moves:
        return
    try:
        zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(prepared.batches[0]), make_parents=True)
    except NodeExistsError as e:
        throttles.undo(zk, undo)
        names = ",".join(map(name_of, sorted(running(zk) or {})))
        raise RefusedError(
            f"Partition reassignment currently in progress for {names}. Aborting operation", now=SHOWN_BY_LIST
        ) from e
    except throttles.CUT_SHORT:
        with suppress(ZooKeeperError):
            if running(zk) is None:  # else it may have begun
                throttles.undo(zk, undo)
        raise


class SentBack(NamedTuple):
    """What was turned round in the znode, and what could not be, as no way back is known that is one."""

    back: frozenset[TopicPartition]
    unknown: frozenset[TopicPartition]


def plan_send_back(zk: ZooKeeper, plan: Moves, before: Moves) -> tuple[SetData | None, SentBack]:
    """Plan the write that asks for what is under way to the replicas of ``plan`` to go back to those ``before`` (RSN-37X).

    The rest of the znode stays: it is never deleted, since Kafka's controllers would not look at one that follows.
    Replicas that are not assigned any more were not those before this move: going there would be another one.
    """
    node = zk.get(ReassignmentZnode.PATH)
    moves = ReassignmentZnode.decode(node.data) if node else {}
    forward = {p for p, to in moves.items() if plan.get(p) == to != before.get(p)}
    if node is None or not forward:
        return None, SentBack(frozenset(), frozenset())
    view = read_cluster(zk, {p.topic for p in forward}, states=False)
    back = {p: before[p] for p in forward if p in before and set(before[p]) <= set(replicas_of(view, p))}
    write = SetData(ReassignmentZnode.PATH, ReassignmentZnode.encode({**moves, **back}), node.version) if back else None
    return write, SentBack(frozenset(back), frozenset(forward.difference(back)))


def send_back(zk: ZooKeeper, plan: Moves, before: Moves) -> SentBack:
    """Write what ``plan_send_back`` plans. Raises VersionConflictError and NoNodeError: the znode was written meanwhile."""
    write, sent = plan_send_back(zk, plan, before)
    if write is not None:
        zk.set(write.path, write.data, write.version)
    return sent
