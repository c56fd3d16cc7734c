"""Topics that are deleted while a plan of kt reassign, or of kt drain, is carried out by ZooKeeper: all else goes on."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.operations.drain import drain
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.runs.saved_run import Batch, RunState, plan_hash
from kafkatool.core.operations.reassignment.submission import prepare
from kafkatool.core.planner.plan_files import Moves, plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode, TopicZnode
from tests.commands.reassign.runner import run
from tests.core.operations.reassignment.plans import config, plan
from tests.core.zookeeper import cluster_nodes as nodes

BEFORE = {0: (3,), 1: (3,), 2: (3,)}
GOAL = {0: (1,), 1: (2,), 2: (1,)}
NOTE = "13 partitions do not exist any more, and are left out: "
MANY = 12  # partitions of the topic that is deleted, more than a note names


@pytest.fixture
def goal(zk: ZooKeeper) -> Moves:
    """Make the cluster, and return the plan that takes all from broker 3."""
    nodes.make_cluster(zk, topics={"t": BEFORE, "tmp": dict.fromkeys(range(MANY), (3,))})
    return {**plan(GOAL), **plan(dict.fromkeys(range(MANY), (2,)), "tmp")}


@pytest.fixture(params=[{}, {throttles.REPLICAS[0]: "*"}], ids=["no list before", "a list before"])
def listed(request: pytest.FixtureRequest, zk: ZooKeeper, goal: Moves) -> dict[str, str]:
    """Have topic tmp begin with an administrator's list of throttled replicas, or with none."""
    if request.param:
        zk.create(ConfigZnode.path("topics", "tmp"), ConfigZnode.encode(request.param), make_parents=True)
    return dict(request.param)


def delete_some(zk: ZooKeeper) -> None:
    """Delete topic tmp as a controller does, and make t anew without its last partition."""
    root, settings = TopicZnode.path("tmp"), ConfigZnode.path("topics", "tmp")
    for path in (*sorted(nodes.tree(zk, root), reverse=True), root):
        zk.delete(path)
    if zk.get(settings) is not None:
        zk.delete(settings)
    left = {p: to for p, to in nodes.assignment(zk, "t").items() if p < 2}
    zk.set(TopicZnode.path("t"), TopicZnode(left).encode(), -1)


def plan_of(directory: Path, moves: Moves) -> tuple[str, Path]:
    (directory / "plan.json").write_text(plan_json(moves))
    return "--reassignment-json-file", directory / "plan.json"


def assert_forgotten(zk: ZooKeeper, resumed: Result) -> None:
    """Check that no config of topic tmp was made anew, and that nothing is said of its throttle."""
    assert config(zk, "topics", "tmp") is None and "/config/topics/tmp" not in resumed.output, resumed.output


@pytest.mark.spec("RSN-37X", "RSN-17X")
def test_all_that_is_there_goes_back(zk: ZooKeeper, zk_connect: str, tmp_path: Path, goal: Moves) -> None:
    file = plan_of(tmp_path, goal)
    assert run(zk_connect, "--execute", *file).exit_code == 0
    nodes.reassign(zk)
    delete_some(zk)
    refused = run(zk_connect, "--execute", *file)
    assert refused.exit_code == 1 and "The proposed assignment contains non-existent partitions" in refused.stdout
    named = ",".join(["[t,2]", *(f"[tmp,{p}]" for p in range(9))])
    back = ("--cancel", "--rollback", *file, "--throttle", "5000")
    shown = run(zk_connect, *back, "--dry-run")
    assert shown.exit_code == 0 and f"{NOTE}{named} and 3 more" in shown.stderr, shown.output
    assert f"create {ReassignmentZnode.PATH} {plan_json(plan({0: (3,), 1: (3,)}))}" in shown.stdout
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        gone_back = run(zk_connect, *back)
    assert f"{NOTE}{named} and 3 more" in gone_back.stderr and gone_back.exit_code == 1, gone_back.output
    assert gone_back.stdout.count("completed successfully") == 2
    assert nodes.assignment(zk, "t") == {0: (3,), 1: (3,)}
    assert throttles.rates_by_broker(zk) == {} == config(zk, "topics", "t")
    assert not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("RSN-22X")
def test_a_resumed_run_sends_all_that_is_there(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, goal: Moves, listed: dict[str, str]
) -> None:
    file = plan_of(tmp_path, goal)
    flags = ("--batch-partitions", "1", "--throttle", "5000", "--wait", "--timeout", "0")
    assert run(zk_connect, "--execute", *file, *flags).exit_code == 1
    assert throttles.find_unlisted(zk, ["t", "tmp"]) == []
    nodes.reassign(zk)
    delete_some(zk)
    shown = run(zk_connect, "--cancel", *file, "--dry-run")
    assert "/config/topics/t " in shown.stdout and "/config/topics/tmp" not in shown.stdout, shown.output
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        resumed = run(zk_connect, "--execute", "--resume", *file)
    assert NOTE in resumed.stderr and resumed.stdout.count("completed successfully") == 2, resumed.output
    assert resumed.exit_code == 1, "not all is as planned"
    assert nodes.assignment(zk, "t") == {0: (1,), 1: (2,)}
    assert throttles.rates_by_broker(zk) == {} == config(zk, "topics", "t")
    assert_forgotten(zk, resumed)
    assert not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("ADM-106")
def test_a_drain_is_gone_on_with_and_undone(
    zk: ZooKeeper,
    zk_connect: str,
    tmp_path: Path,
    goal: Moves,
    listed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No broker answers here, so that nothing is proven of what lies on disks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drain, "PROOF_S", 0.0)

    def drained(*args: object) -> Result:
        with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
            return CliRunner().invoke(kt, ["drain", "3", "--zookeeper", zk_connect, *map(str, args)])

    Path("drain-3.json").write_text(plan_json(goal))
    Path("drain-3.rollback.json").write_text(plan_json(dict.fromkeys(goal, (3,))))
    before = prepare(zk, goal, throttle=5000).saved
    assert [dict(saved.before) for saved in before if saved.name == "tmp"] == [listed]
    RunState(plan_hash(goal), 512_000, 0, (Batch(len(goal), sent=True),), before).write(Path("drain-3.state.json"))
    delete_some(zk)
    named = ", ".join(["t-2", *(f"tmp-{p}" for p in range(9))])
    resumed = drained("--resume")
    assert f"{NOTE}{named} and 3 more" in resumed.stderr, resumed.output
    assert nodes.assignment(zk, "t") == {0: (1,), 1: (2,)} and not Path("drain-3.state.json").exists()
    assert throttles.rates_by_broker(zk) == {} == config(zk, "topics", "t")
    assert_forgotten(zk, resumed)
    undone = drained("--cancel", "--rollback", "--no-throttle")
    assert f"{NOTE}{named} and 3 more" in undone.stderr and undone.exit_code == 0, undone.output
    assert nodes.assignment(zk, "t") == {0: (3,), 1: (3,)}
