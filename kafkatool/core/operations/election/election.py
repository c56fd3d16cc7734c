"""Give leadership back to preferred replicas: choose partitions, ask the controller, read the outcome (ELE).

The request is one exclusive create of /admin/preferred_replica_election; the controller deletes it when it has tried
every partition, and leaves no word of success. So the outcome is read from the partitions' states (ELE-16X).
"""

import enum
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from kafkatool.core.errors import NodeExistsError, RefusedError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition, in_number, leaders_by_preference
from kafkatool.core.planner.plan_files import PartitionName, dashed
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode

RECHECK_S = 5.0  # a watch is lost with an expired session: look again now and then


class Outcome(enum.StrEnum):
    """The outcome of one partition (ELE-16X)."""

    ELECTED = "elected"
    ALREADY_PREFERRED = "already_preferred"
    NOT_IN_ISR = "not_in_isr"  # the preferred replica is behind: electing it would lose data
    PREFERRED_DOWN = "preferred_down"
    UNKNOWN = "unknown"  # no such partition
    FAILED = "failed"
    PENDING = "pending"  # asked for, not waited for


LED_BY_PREFERRED = frozenset({Outcome.ELECTED, Outcome.ALREADY_PREFERRED})
NEVER_LED = "never_led"  # a reason to be left out, no outcome: an election does not change that


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """One partition before and after the election."""

    partition: TopicPartition
    preferred: int | None
    leader_before: int | None
    leader: int | None
    status: Outcome


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """One row per partition asked for. ``stopped`` says why not all batches went through; None: they did."""

    items: tuple[PartitionResult, ...]
    stopped: str | None = None

    @property
    def all_led_by_preferred(self) -> bool:
        return self.stopped is None and all(item.status in LED_BY_PREFERRED for item in self.items)


# --- choosing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """``partitions`` go into the znode. The others were asked for, and are left out for the reason of their name.

    ``skipped`` counts what ``only_imbalanced`` dropped, by what an election would find there, or NEVER_LED.
    """

    partitions: tuple[TopicPartition, ...]
    unknown: tuple[TopicPartition, ...]
    never_led: tuple[TopicPartition, ...]
    skipped: Mapping[str, int]
    view: ClusterView

    @property
    def asked(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted((*self.partitions, *self.unknown, *self.never_led)))


def select(
    view: ClusterView,
    wanted: Sequence[TopicPartition] | None = None,
    *,
    preferring: int | None = None,
    only_imbalanced: bool = False,
) -> Selection:
    """Select from ``wanted`` (None: all the view has, ELE-1) what can be elected (ELE-5, ELE-15X, ELE-19X).

    ``preferring``: only partitions whose preferred replica is that broker.
    """
    asked = view.partitions() if wanted is None else sorted(wanted)
    unknown = [p for p in asked if not _exists(view, p)]
    known = [p for p in asked if _exists(view, p)]
    if preferring is not None:
        known = [p for p in known if _preferred(view, p) == preferring]
    led = [p for p in known if p in view.states]
    never_led = [p for p in known if p not in view.states]
    skipped: Counter[str] = Counter()
    if only_imbalanced:
        skipped.update(forecast for p in led if (forecast := _forecast(view, p)) is not Outcome.ELECTED)
        led = [p for p in led if _forecast(view, p) is Outcome.ELECTED]
        skipped.update(NEVER_LED for _ in never_led)
        never_led = []
    return Selection(tuple(led), tuple(unknown), tuple(never_led), skipped, view)


def check_can_start(selection: Selection) -> None:
    """Raise RefusedError when there is no controller to carry the election out, or a reassignment runs (ELE-20X).

    One by the znode counts whatever it moves. Of those by requests what is to be elected tells: no other topic need be read.
    """
    view = selection.view
    if view.controller_id is None:
        raise RefusedError(
            "no controller is elected, so nobody would carry out the election; --force asks all the same"
        )
    moving = view.requested.intersection(selection.partitions).union(view.reassignment or ())
    if moving or view.reassignment is not None:
        count = in_number(len(moving), "partition", "partitions")
        raise RefusedError(f"a reassignment of {count} is running; wait until it has ended, or add --force")


def _exists(view: ClusterView, partition: TopicPartition) -> bool:
    topic = view.topics.get(partition.topic)
    return topic is not None and partition.partition in topic.assignment


def _preferred(view: ClusterView, partition: TopicPartition) -> int | None:
    replicas = view.topics[partition.topic].assignment[partition.partition]
    return replicas[0] if replicas else None


def _leadership(view: ClusterView, partition: TopicPartition) -> LeaderAndIsr | None:
    state = view.states.get(partition)
    return state.leader_and_isr if state else None


def _forecast(view: ClusterView, partition: TopicPartition) -> Outcome:
    """Return what the controller would find (ELE-7): ELECTED is what it would change."""
    preferred, state = _preferred(view, partition), _leadership(view, partition)
    if state is None:
        return Outcome.FAILED
    if state.leader == preferred:
        return Outcome.ALREADY_PREFERRED
    if preferred not in view.brokers:
        return Outcome.PREFERRED_DOWN
    return Outcome.ELECTED if preferred in state.isr else Outcome.NOT_IN_ISR


# --- asking ----------------------------------------------------------------------------------------------------


def run(
    zk: ZooKeeper,
    selection: Selection,
    batches: Sequence[Sequence[TopicPartition]],
    *,
    timeout_s: float,
    wait: bool = True,
    interval_s: float = 0,
    on_asking: Callable[[], None] = lambda: None,
    on_batch: Callable[[Sequence[TopicPartition]], None],
    name_of: PartitionName = dashed,
) -> ElectionResult:
    """Ask for each batch once the one before has gone (ELE-3, ELE-14X), then read the outcome (ELE-16X).

    ``timeout_s`` bounds each batch. ``wait`` False: the last one is not waited for and its outcome not known.
    ``on_asking`` is called before each create, ``on_batch`` after it: between them nobody knows if it was carried out.
    Another election found in the way stops it (ELE-6).
    """
    stopped: str | None = None
    for number, batch in enumerate(batches, 1):
        if number > 1 and interval_s:
            time.sleep(interval_s)
        data = PreferredElectionZnode.encode(batch)
        on_asking()
        try:
            zk.create(PreferredElectionZnode.PATH, data, make_parents=True)
        except NodeExistsError:
            node = zk.get(PreferredElectionZnode.PATH)
            names = ",".join(map(name_of, sorted(PreferredElectionZnode.decode(node.data)))) if node else "others"
            stopped = f"Preferred replica leader election currently in progress for {names}. Aborting operation"
            break
        on_batch(batch)
        if (wait or number < len(batches)) and not _await_end(zk, data, timeout_s):
            stopped = (
                f"the controller has not finished the election after {timeout_s:g} s: {PreferredElectionZnode.PATH} is "
                "still there, and while it is no other election starts"
            )
            break
    waited = wait or stopped is not None
    after = read_cluster(zk, {p.topic for p in selection.asked}) if waited else None
    unknown = set(selection.unknown)
    results = (
        PartitionResult(p, None, None, None, Outcome.UNKNOWN) if p in unknown else _result(selection.view, after, p)
        for p in selection.asked
    )
    return ElectionResult(tuple(results), stopped)


def _await_end(zk: ZooKeeper, data: bytes, timeout_s: float) -> bool:
    """Wait until the node with that content is gone. Return False when the time is up first."""
    deadline = time.monotonic() + timeout_s
    request = WatchedNode(zk, PreferredElectionZnode.PATH)
    while True:
        node = request.read()
        if node is None or node.data != data:
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        request.wait(min(left, RECHECK_S))


def _result(before: ClusterView, after: ClusterView | None, partition: TopicPartition) -> PartitionResult:
    preferred = _preferred(before, partition)
    was = _leadership(before, partition)
    leader_before = was.leader if was else None
    if after is None:
        status = Outcome.FAILED if was is None else Outcome.PENDING
        return PartitionResult(partition, preferred, leader_before, leader_before, status)
    if not _exists(after, partition):
        return PartitionResult(partition, preferred, leader_before, None, Outcome.UNKNOWN)
    now = _leadership(after, partition)
    status = _forecast(after, partition)
    if status is Outcome.ELECTED:
        status = Outcome.FAILED  # it could have been elected and was not
    elif status is Outcome.ALREADY_PREFERRED and leader_before != preferred:
        status = Outcome.ELECTED
    return PartitionResult(partition, _preferred(after, partition), leader_before, now.leader if now else None, status)


# --- report ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerBalance:
    """A broker's share of leaders (ELE-11): of the partitions preferring it, others lead ``led_by_others``."""

    broker_id: int
    registered: bool
    leaders: int
    preferred: int
    led_by_others: int

    @property
    def imbalance(self) -> float:
        """Return 0 to 1; 0 for a broker that no partition prefers."""
        return self.led_by_others / self.preferred if self.preferred else 0.0


def report(view: ClusterView, *, leave_out: Container[TopicPartition] = ()) -> tuple[BrokerBalance, ...]:
    """Return a row for each broker that is registered or preferred by a partition (ELE-18X).

    Topics that are being deleted do not count: nobody elects leaders for them any more, and they will be gone.
    ``leave_out``: partitions that do not count either.
    """
    view = replace(view, topics={t: node for t, node in view.topics.items() if t not in view.marked_for_deletion})
    leaders: Counter[int | None] = Counter()
    partitions = [p for p in view.partitions() if p not in leave_out]
    preferred = leaders_by_preference(view.topics[p.topic].assignment[p.partition] for p in partitions)
    elsewhere: Counter[int | None] = Counter()
    for partition in partitions:
        wanted, state = _preferred(view, partition), _leadership(view, partition)
        if state is not None:
            leaders[state.leader] += 1
            elsewhere[wanted] += state.leader != wanted
    brokers = sorted({*view.brokers, *(b for b in (*preferred, *leaders) if b is not None)})
    return tuple(BrokerBalance(b, b in view.brokers, leaders[b], preferred[b], elsewhere[b]) for b in brokers)
