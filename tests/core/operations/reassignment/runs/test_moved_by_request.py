"""Moves begun by requests to the controller, which the topic's node tells of and the znode does not (KIP-455).

Plans by the znode see them: they are neither taken for ended, nor left without their throttle.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kafkatool.core.client.access import PLAINTEXT_ACCESS
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import events, throttles
from kafkatool.core.operations.reassignment.following import Progress, follow
from kafkatool.core.operations.reassignment.runs.cancellation import Cancellation, CancelTerms
from kafkatool.core.operations.reassignment.runs.run import Run
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.operations.reassignment.status import list_running, verify
from kafkatool.core.operations.reassignment.submission import prepare, start
from kafkatool.core.planner.plan_files import Moves, dashed
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode, TopicZnode
from tests.core.operations.reassignment.plans import config, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes

RATES = dict.fromkeys(throttles.RATES, "1111")
DONE = plan({0: (1, 2)})


@pytest.fixture
def cluster(zk: ZooKeeper) -> ZooKeeper:
    pair = {0: (1, 2), 1: (1, 2)}
    nodes.make_cluster(zk, topics={"a": pair, "t": pair, "u": pair}, brokers=(1, 2, 3, 4))
    return zk


def throttled(zk: ZooKeeper, topic: str, leaders: str = "1:1,1:2", followers: str = "1:3") -> dict[str, str]:
    """Set the throttle of a move on the topic and on two of its brokers, and return its lists."""
    lists = dict(zip(throttles.REPLICAS, (leaders, followers), strict=True))
    for path, stored in {f"topics/{topic}": lists, "brokers/1": RATES, "brokers/3": RATES}.items():
        zk.create(f"/config/{path}", ConfigZnode.encode(stored), make_parents=True)
    return lists


def run_of(
    zk: ZooKeeper, directory: Path, moves: Moves, on_progress: Callable[[Progress], None] = lambda _: None
) -> Run:
    return Run(zk, moves, RunFiles(str(directory / "plan.json")), name_of=dashed, on_progress=on_progress)


def cancellation_of(
    zk: ZooKeeper, directory: Path, moves: Moves, on_progress: Callable[[Progress], None] = lambda _: None
) -> Cancellation:
    """Return one that knows of no way back."""
    files = RunFiles(str(directory / "plan.json"))
    return Cancellation(zk, moves, files, {}, CancelTerms(), name_of=dashed, on_progress=on_progress)


def cancel(cancellation: Cancellation) -> Iterable[events.Event]:
    return cancellation.carry_out(PLAINTEXT_ACCESS, timeout_s=60)


def kinds(told: Iterable[events.Event]) -> list[str]:
    return [type(event).__name__ for event in told]


@pytest.mark.spec("RSN-12", "ADM-36", "ADM-70")
@pytest.mark.parametrize("target", [(1, 2, 3), (3, 2), (1,)], ids=["adds", "adds and removes", "removes"])
def test_what_a_request_moves_is_in_progress_wherever_to_until_it_is_there(
    cluster: ZooKeeper, target: tuple[int, ...]
) -> None:
    throttled(cluster, "t", "0:1,0:2", "0:3")
    nodes.request(cluster, tp(0), target)
    stored = cluster.get(TopicZnode.path("t"))
    assert stored is not None
    assigned = json.loads(stored.data)["partitions"]["0"]
    for wanted in (target, (4,), tuple(assigned)):
        found = verify(cluster, plan({0: wanted}))
        assert [move.status for move in found.items] == [Status.IN_PROGRESS]
        assert not found.removal and not found.throttle_stays
    nodes.end_requests(cluster, "t")
    found = verify(cluster, plan({0: target}))
    assert found.completed
    throttles.apply(cluster, found.removal)
    assert config(cluster, "topics", "t") == {} == config(cluster, "brokers", "3")


@pytest.mark.spec("RSN-13", "ADM-38")
@pytest.mark.parametrize("moving", [tp(1), tp(0, "u")], ids=["of the same topic", "of another"])
def test_the_throttle_of_a_running_request_outlives_the_verification_of_a_plan_that_has_ended(
    cluster: ZooKeeper, moving: TopicPartition
) -> None:
    throttled(cluster, "t", f"{moving.partition}:1", f"{moving.partition}:3")
    nodes.request(cluster, moving, (1, 2, 3))
    found = verify(cluster, DONE)
    assert found.completed and found.throttle_stays and not found.removal
    nodes.end_requests(cluster, moving.topic)
    assert len(verify(cluster, DONE).removal) == 3


@pytest.mark.spec("RSN-38X", "ADM-41")
def test_both_ways_are_listed_together(cluster: ZooKeeper) -> None:
    nodes.request(cluster, tp(1), (3, 1))
    cluster.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (4,)}, "u")))
    assert [(m.partition, m.current, m.target, m.isr) for m in list_running(cluster)] == [
        (tp(1), (3, 1, 2), (3, 1), (1, 2)),
        (tp(0, "u"), (1, 2), (4,), (1, 2)),
    ]


@pytest.mark.spec("RSN-14", "RSN-23X")
def test_the_lists_of_a_topic_keep_what_its_other_partitions_move_under(cluster: ZooKeeper, tmp_path: Path) -> None:
    lists = throttled(cluster, "t")
    nodes.request(cluster, tp(1), (1, 2, 3))
    moves = plan({0: (4, 2)})
    run = run_of(cluster, tmp_path, moves)
    list(run.start(prepare(cluster, moves, throttle=2222), followed=True, timeout_s=0))
    assert config(cluster, "topics", "t") == dict(zip(throttles.REPLICAS, ("0:1,0:2,1:1,1:2", "0:4,1:3"), strict=True))
    nodes.reassign(cluster)
    assert kinds(run_of(cluster, tmp_path, moves).verify(preserve_throttles=False)) == [
        "Verified",
        "ThrottleRemoved",
    ]
    assert config(cluster, "topics", "t") == lists
    assert config(cluster, "brokers", "1") == config(cluster, "brokers", "3") == RATES
    assert config(cluster, "brokers", "4") == {}


@pytest.mark.spec("RSN-14")
def test_what_an_earlier_plan_has_left_in_the_lists_is_not_kept(cluster: ZooKeeper) -> None:
    throttled(cluster, "t")  # of partition 1, which does not move
    start(cluster, prepare(cluster, plan({0: (4, 2)}), throttle=2222))
    assert config(cluster, "topics", "t") == dict(zip(throttles.REPLICAS, ("0:1,0:2", "0:4"), strict=True))


@pytest.mark.spec("RSN-14", "RSN-30X")
def test_a_plan_that_takes_the_place_of_a_request_throttles_what_that_has_only_begun_to_copy(
    cluster: ZooKeeper,
) -> None:
    nodes.request(cluster, tp(0), (3, 1))
    start(cluster, prepare(cluster, plan({0: (3, 2)}), throttle=2222, force=True))
    assert config(cluster, "topics", "t") == dict(zip(throttles.REPLICAS, ("0:1,0:2", "0:3"), strict=True))


@pytest.mark.spec("RSN-23X", "ADM-38")
def test_a_run_that_ends_while_a_request_moves_under_the_same_rates_leaves_them(
    cluster: ZooKeeper, tmp_path: Path
) -> None:
    moves = plan({0: (3, 2)})
    list(run_of(cluster, tmp_path, moves).start(prepare(cluster, moves, throttle=2222), followed=True, timeout_s=0))
    nodes.request(cluster, tp(0, "u"), (1, 2, 3))
    lists = dict(zip(throttles.REPLICAS, ("0:1,0:2", "0:3"), strict=True))
    cluster.create("/config/topics/u", ConfigZnode.encode(lists))
    nodes.reassign(cluster)
    told = run_of(cluster, tmp_path, moves).verify(preserve_throttles=False)
    assert kinds(told) == ["Verified", "ThrottleStays"]
    assert (config(cluster, "brokers", "3") or {})[throttles.RATES[1]] == "2222"
    assert config(cluster, "topics", "u") == lists and config(cluster, "topics", "t") == {}


@pytest.mark.spec("RSN-23X", "RSN-22X", "ADM-44")
def test_a_run_whose_move_a_request_has_replaced_keeps_its_throttle_and_can_be_gone_on_with(
    cluster: ZooKeeper, tmp_path: Path
) -> None:
    moves = plan({0: (3, 2)})

    def replace(progress: Progress) -> None:
        if progress.left:
            nodes.request(cluster, tp(0), (4, 2))
            cluster.delete(ReassignmentZnode.PATH)  # as Kafka's controller takes the entry out, and the node with it

    run = run_of(cluster, tmp_path, moves, replace)
    *_, ended, left = run.start(prepare(cluster, moves, throttle=2222), followed=True, timeout_s=60)
    assert isinstance(ended, events.Ended) and [m.status for m in ended.moves] == [Status.IN_PROGRESS]
    assert left == events.LeftUnfinished(moving=True, throttled=True, unseen=None)
    assert config(cluster, "topics", "t") and (tmp_path / "plan.state.json").exists()
    assert kinds(cancel(cancellation_of(cluster, tmp_path, moves))) == [
        "MovedByRequest",
        "Following",
        "CancelCutShort",
        "Cancelled",
    ]
    assert config(cluster, "topics", "t") and (tmp_path / "plan.state.json").exists()
    nodes.end_requests(cluster, "t")
    assert kinds(cancel(cancellation_of(cluster, tmp_path, moves))) == ["Following", "ThrottleRemoved", "Cancelled"]
    assert config(cluster, "topics", "t") == {} and not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("RSN-37X", "ADM-38")
def test_a_cancel_takes_no_throttle_off_a_running_request(cluster: ZooKeeper, tmp_path: Path) -> None:
    throttled(cluster, "t", "0:1", "0:2")
    nodes.request(cluster, tp(0, "u"), (1, 2, 3))
    cancellation = cancellation_of(cluster, tmp_path, DONE)
    assert cancellation.plan(None) == ([], [], ())
    assert kinds(cancel(cancellation)) == ["Following", "ThrottleStays", "Cancelled"]
    assert config(cluster, "brokers", "3") == RATES
    assert kinds(cancellation.end_early()) == ["ThrottleStays", "CancelCutShort"]


@pytest.mark.spec("RSN-33X", "ADM-43")
def test_who_waits_for_a_plan_waits_for_what_requests_move_of_it(cluster: ZooKeeper, tmp_path: Path) -> None:
    nodes.request(cluster, tp(0), (1, 2, 3))
    seen: list[frozenset[TopicPartition]] = []

    def end_move(progress: Progress) -> None:
        seen.append(progress.left)
        if progress.left:
            assert (progress.in_sync, progress.wanted) == (2, 3)
            nodes.end_requests(cluster, "t")

    list(run_of(cluster, tmp_path, plan({0: (1, 2, 3)}), end_move).wait(60))
    assert seen == [{tp(0)}, frozenset()]


@pytest.mark.spec("RSN-19X", "RSN-30X")
@pytest.mark.parametrize("replacing", [False, True])
def test_a_further_batch_does_not_replace_what_a_request_moves_by_then_unless_that_is_wanted(
    cluster: ZooKeeper, zk_connect: str, replacing: bool
) -> None:
    first, second = plan({0: (3, 2)}), plan({1: (3, 2)})
    nodes.request(cluster, tp(1), (4, 2))
    waited, named = list[int](), set[TopicPartition]()

    def note(number: int, finished: bool) -> None:
        if (number, finished) == (1, False):
            waited.append(number)
            if len(waited) == 2:
                assert cluster.get(ReassignmentZnode.PATH) is None
                nodes.end_requests(cluster, "t")

    cluster.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(first))
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        followed = follow(
            cluster,
            [first, second],
            timeout_s=60,
            on_progress=lambda p: named.update(p.hindrances.others),
            poll_ms=1,
            on_batch=note,
            replacing=replacing,
        )
    assert followed == (2, 2) and len(waited) == (1 if replacing else 2)
    assert named == (set() if replacing else {tp(1)})
    assert nodes.assignment(cluster, "t")[1][:2] == (3, 2)


@pytest.mark.spec("RSN-8", "RSN-21X", "RSN-30X")
@pytest.mark.parametrize("followed", [False, True])
def test_the_way_back_of_a_plan_that_takes_the_place_of_a_request_is_what_was_before_that(
    cluster: ZooKeeper, tmp_path: Path, followed: bool
) -> None:
    nodes.request(cluster, tp(0), (3, 4))
    moves = plan({0: (3, 2), 1: (3, 2)})
    run = run_of(cluster, tmp_path, moves)
    told = run.start(prepare(cluster, moves, force=True), followed=followed, timeout_s=0)
    (saved,) = (event for event in told if isinstance(event, events.WayBack))
    assert saved.prepared.way_back == plan({0: (1, 2), 1: (1, 2)})
    assert RunFiles(str(tmp_path / "plan.json")).known_way_back(moves, name_of=dashed) == saved.prepared.way_back
