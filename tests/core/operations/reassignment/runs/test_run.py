"""A run and its events in order, over a real ZooKeeper; the controller is played by hand."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatool.core.client.access import PLAINTEXT_ACCESS
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.moves import Status, StoredMove
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.events import Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.run import Run
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.operations.reassignment.submission import Prepared, prepare
from kafkatool.core.planner.plan_files import dashed
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode
from tests.core.operations.reassignment.plans import NINE, config, plan, way_back_text
from tests.core.zookeeper import cluster_nodes as nodes

GOAL = plan({0: (2,), 1: (2,), 3: (3,)})


def new_run(zk: ZooKeeper, directory: Path) -> tuple[Run, RunFiles]:
    files = RunFiles(str(directory / "plan.json"))
    return Run(zk, GOAL, files, name_of=dashed, on_progress=lambda _: None), files


def prepared_in_batches(zk: ZooKeeper) -> Prepared:
    nodes.make_cluster(zk, topics={"t": NINE})
    return prepare(zk, GOAL, throttle=5000, max_count=2)


def kinds(told: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in told]


@pytest.mark.spec("RSN-19X", "RSN-21X", "RSN-23X")
def test_a_run_tells_what_happens_in_order_and_leaves_nothing_but_the_way_back(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    prepared = prepared_in_batches(zk)
    run, files = new_run(zk, tmp_path)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        told = list(run.start(prepared, followed=True, timeout_s=60))
    assert kinds(told) == ["Unchanged", "WayBack", "Started", "Following", "Ended", "ThrottleRemoved"]
    unchanged, way_back, *_, ended, removed = told
    assert unchanged == events.Unchanged(1, all=False) and removed == events.ThrottleRemoved(())
    assert way_back == events.WayBack(prepared, files.rollback, saved=True)
    assert isinstance(ended, events.Ended) and ended.completed and ended.finished and not ended.unsent
    assert files.rollback.read_text() == way_back_text({0: (2,), 1: (2,), 3: (3,)}, {0: (1,), 1: (2,), 3: (1,)})
    assert list(tmp_path.iterdir()) == [files.rollback] and config(zk, "brokers", "1") == {}
    assert list(run.end_early()) == []


@pytest.mark.spec("RSN-19X", "RSN-22X", "RSN-23X")
def test_a_run_past_its_deadline_can_be_resumed_by_another(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    run, files = new_run(zk, tmp_path)
    *_, ended, left = run.start(prepared_in_batches(zk), followed=True, timeout_s=0)
    assert isinstance(ended, events.Ended) and not ended.finished and ended.unsent == 1
    assert [m.status for m in ended.moves] == [Status.IN_PROGRESS, Status.IN_PROGRESS, Status.PENDING]
    assert left == events.LeftUnfinished(moving=True, throttled=True, unseen=None) == next(run.end_early())
    state = files.unfinished_run(GOAL)
    assert state is not None and [batch.sent for batch in state.batches] == [True, False]
    second, _ = new_run(zk, tmp_path)
    with pytest.raises(RefusedError, match="continue it with --execute --resume"):
        next(second.start(prepare(zk, GOAL), followed=True, timeout_s=60))
    assert list(second.end_early()) == []  # the run that there is to resume is not its own
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        told = list(second.resume(state, PLAINTEXT_ACCESS, force=False, timeout_s=60))
    assert kinds(told) == ["Following", "Following", "Ended", "ThrottleRemoved"]
    assert not files.state.exists() and config(zk, "brokers", "1") == {}


@pytest.mark.spec("RSN-22X", "ADM-106")
def test_a_resumed_run_lets_end_what_requests_have_begun_of_it_under_its_throttle(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    prepared = prepared_in_batches(zk)
    run, files = new_run(zk, tmp_path)
    list(run.start(prepared, followed=True, timeout_s=0))
    nodes.reassign(zk)  # the first batch has ended
    path = TopicZnode.path("t")
    topic = zk.get(path)
    assert topic is not None
    decoded = TopicZnode.decode("t", topic.data)
    moving = decoded.with_moves({3: StoredMove((1,)).to((3,))})  # and the last was asked for by a request
    zk.set(path, moving.encode(), topic.version)
    state = files.unfinished_run(GOAL)
    assert state is not None
    asked = zk.get(ReassignmentZnode.PATH)
    cut_short, _ = new_run(zk, tmp_path)
    *_, ended, left = cut_short.resume(state, PLAINTEXT_ACCESS, force=False, timeout_s=0)
    assert isinstance(ended, events.Ended) and not ended.finished
    assert left == events.LeftUnfinished(moving=True, throttled=True, unseen=None) and config(zk, "brokers", "1")

    def end_move(progress: Progress) -> None:
        if progress.left:
            assert progress.left == {TopicPartition("t", 3)} and zk.get(ReassignmentZnode.PATH) == asked is None
            node = zk.get(path)
            assert node is not None
            ended = TopicZnode.decode("t", node.data).with_moves({3: StoredMove((3,))})
            zk.set(path, ended.encode(), node.version)

    second = Run(zk, GOAL, files, name_of=dashed, on_progress=end_move)
    told = list(second.resume(state, PLAINTEXT_ACCESS, force=False, timeout_s=60))
    assert kinds(told) == ["Following", "Following", "Ended", "ThrottleRemoved"]
    assert nodes.assignment(zk, "t")[3] == (3,) and not files.state.exists()
