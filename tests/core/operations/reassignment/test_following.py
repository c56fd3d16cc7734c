"""Waiting for a reassignment and sending its further batches; the controller is played by hand."""

import contextlib
import threading

import pytest

from kafkatool.commands.shared.run_progress import progress_text
from kafkatool.core.errors import NodeExistsError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.reassignment import following
from kafkatool.core.operations.reassignment.following import Progress, follow, wait
from kafkatool.core.operations.reassignment.hindrances import Hindrances
from kafkatool.core.operations.reassignment.status import running
from kafkatool.core.operations.reassignment.submission import prepare, start
from kafkatool.core.operations.reassignment.throttles import RATES
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import Node, Watch, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ReassignmentZnode
from tests.core.operations.reassignment.plans import plan
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import count_round_trips


@pytest.mark.spec("RSN-33X")
def test_waiting_ends_when_the_znode_is_gone_and_tells_how_far_it_is(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2)}})
    moves = plan({0: (1, 3), 1: (1, 2)})
    start(zk, prepare(zk, moves))
    told: list[Progress] = []
    go = threading.Event()

    def act(own: ZooKeeper) -> None:
        go.wait(60)
        nodes.reassign(own)

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        go.set()

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        assert wait(zk, moves, timeout_s=60, on_progress=on_progress)
    first, last = told[0], told[-1]
    assert (first.finished, first.total, first.in_sync, first.wanted) == (0, 2, 3, 4)
    assert (last.finished, last.in_sync, last.remaining_s) == (2, 4, 0)
    assert first.remaining_s is None
    assert nodes.assignment(zk, "t") == {0: (1, 3), 1: (1, 2)}


@pytest.mark.spec("RSN-34X")
@pytest.mark.parametrize("partitions", [1, 300])
def test_each_look_at_the_progress_is_few_round_trips_deep_whatever_the_size(zk: ZooKeeper, partitions: int) -> None:
    moves = plan(dict.fromkeys(range(partitions), (1, 3)))
    nodes.make_cluster(zk, topics={"t": dict.fromkeys(range(partitions), (1, 2))})
    start(zk, prepare(zk, moves))
    trips, shown = count_round_trips(zk), list[Progress]()
    assert not wait(zk, moves, timeout_s=0, on_progress=shown.append)
    assert [(p.finished, p.in_sync) for p in shown] == [(0, partitions)]
    assert trips.count == 2


@pytest.mark.spec("RSN-33X")
def test_a_broker_that_keeps_a_move_from_going_on_is_named(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    moves = plan({0: (1, 3)})
    start(zk, prepare(zk, moves))
    zk.delete(BrokerZnode.path(3))
    shown = list[Progress]()
    assert not wait(
        zk,
        moves,
        timeout_s=None,
        on_progress=shown.append,
        poll_ms=10,
        interrupted=lambda: any(p.hindrances.awaited for p in shown),
    )
    assert shown[-1].hindrances.awaited == (3,)
    assert (
        progress_text(shown[-1], None)
        == "0/1 partitions, 1/2 in sync, waiting for broker 3, which is down, ETA unknown"
    )


@pytest.mark.spec("RSN-33X")
def test_a_throttle_next_to_nothing_and_a_partition_without_leader_are_named(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    replicas = {0: (1, 2), 1: (2, 1)}
    nodes.make_cluster(zk, topics={"t": replicas}, states={t0: (1, (1, 2)), t1: (None, (2,))})
    moves = plan({0: (1, 3), 1: (2, 3)})
    start(zk, prepare(zk, moves))
    for broker, rate in (("1", "0"), ("3", "1023"), ("4", "0")):  # 4 has nothing to do with it
        (found,) = read_configs(zk, [("brokers", broker)])
        found.setting({RATES[0]: "5000", RATES[1]: rate}).write(zk)
    shown = list[Progress]()
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    enough = lambda: any(p.hindrances.throttled for p in shown)  # noqa: E731
    assert not wait(zk, moves, timeout_s=None, on_progress=shown.append, poll_ms=10, interrupted=enough)
    assert shown[-1].hindrances == Hindrances((), ((1, 0), (3, 1023)), (t1,))
    assert shown[-1].remaining_s is None


@pytest.mark.spec("RSN-33X")
def test_waiting_past_the_deadline_leaves_the_reassignment_running(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    moves = plan({0: (1, 3)})
    start(zk, prepare(zk, moves))
    assert not wait(zk, moves, timeout_s=0.2, on_progress=lambda _: None, poll_ms=50)
    assert running(zk) == moves


@pytest.mark.spec("RSN-33X")
def test_waiting_leaves_one_watch_however_long_it_takes_as_a_client_keeps_each_until_it_fires(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    moves = plan({0: (1, 3)})
    start(zk, prepare(zk, moves))
    watches: list[int] = []
    reads: list[Watch | None] = []
    get = zk.get

    def read(path: str, watch: Watch | None = None) -> Node | None:
        reads.append(watch)
        return get(path, watch)

    def count(_: Progress) -> None:
        watches.append(sum(watch is not None for watch in reads))
        if len(watches) == 5:
            zk.delete(ReassignmentZnode.PATH)

    monkeypatch.setattr(zk, "get", read)
    assert wait(zk, moves, timeout_s=60, on_progress=count, poll_ms=20)
    assert watches[:5] == [1] * 5 and len(reads) >= 5


@pytest.mark.spec("RSN-19X")
def test_a_batch_waits_for_somebody_elses_reassignment_that_came_between(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2), 2: (1, 2)}})
    prepared = prepare(zk, plan({0: (1, 3), 1: (1, 3)}), max_count=1)
    start(zk, prepared)
    between = plan({2: (2, 3)})
    seen: list[Moves] = []

    def act(own: ZooKeeper) -> None:
        seen.append(running(own) or {})
        nodes.reassign(own)
        if len(seen) == 1:
            with contextlib.suppress(NodeExistsError):
                own.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(between))

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        followed = follow(zk, prepared.batches, timeout_s=60, on_progress=lambda _: None, poll_ms=50)
    assert followed == (2, 2)
    assert seen[0] == plan({0: (1, 3)}) and plan({1: (1, 3)}) in seen
    assert nodes.assignment(zk, "t")[1] == (1, 3)


@pytest.mark.spec("RSN-19X", "RSN-33X")
def test_a_batch_that_waits_for_somebody_else_names_what_is_moved(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2)}, "u": {0: (1, 2)}})
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (1, 3)}, "u")))
    told = list[Progress]()

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        nodes.reassign(zk)

    batches = [plan({0: (1, 3)}), plan({1: (1, 3)})]
    followed = follow(zk, batches, timeout_s=60, on_progress=on_progress, poll_ms=10, started=False)
    assert followed == (2, 2) and nodes.assignment(zk, "u") == {0: (1, 3)}
    others = (TopicPartition("u", 0),)
    first, *later = told
    assert first.hindrances == Hindrances(others=others) and first.left == {*batches[0], *batches[1]}
    assert (first.finished, first.total, first.in_sync, first.wanted, first.batches) == (0, 2, 0, 4, 2)
    assert first.remaining_s is None and not any(p.hindrances.others for p in later)
