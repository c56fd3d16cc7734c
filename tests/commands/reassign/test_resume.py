"""A run of kt reassign that is killed, at every write it makes, and resumed: the same end, and no throttle left."""

import hashlib
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.commands.reassign.killed_runs import BEFORE, BROKER_1, GOAL, Killed, Writes, reset
from tests.commands.reassign.runner import plan_file, run
from tests.commands.shared.test_termination import interrupted_before_it_waits
from tests.core.operations.reassignment.plans import config, plan, way_back_text
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import eventually


@pytest.mark.timeout(600)
@pytest.mark.spec("RSN-22X", "RSN-23X", "RSN-21X", "RSN-20X")
@pytest.mark.slow
def test_killed_at_any_write_and_resumed_it_ends_as_if_undisturbed(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, writes: Writes
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    flags = ("--throttle", "5000", "--batch-partitions", "2", "--wait")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):

        def run_and_resume(number: int | None) -> None:
            directory = tmp_path / f"killed at {number}"
            directory.mkdir()
            file = plan_file(directory / "plan.json", GOAL)
            with writes.killing(number):
                try:
                    result = run(zk_connect, "--execute", "--reassignment-json-file", file, *flags)
                    assert number is None and result.exit_code == 0, result.output
                except Killed:
                    assert number is not None
            if number is not None:
                again = ["--execute", "--reassignment-json-file", file]
                resumed = run(zk_connect, *again, "--resume")
                if (
                    "nothing to resume" in resumed.stdout
                ):  # killed before the state was written, or after it was removed
                    assert config(zk, "brokers", "1") == BROKER_1
                    resumed = run(zk_connect, *again, *flags)
                assert resumed.exit_code == 0, resumed.output
            assert nodes.assignment(zk, "t") == GOAL
            assert config(zk, "brokers", "1") == BROKER_1
            assert config(zk, "brokers", "2") == {} == config(zk, "topics", "t")
            assert zk.get(ReassignmentZnode.PATH) is None
            assert sorted(p.name for p in directory.iterdir() if "rollback" not in p.name) == ["plan.json"]
            assert (directory / "plan.rollback.json").read_text() == way_back_text(GOAL, BEFORE)

        reset(zk)
        run_and_resume(None)
        total = writes.count
        assert total > 20
        for number in range(1, total + 1):
            reset(zk)
            run_and_resume(number)


@pytest.mark.spec("RSN-21X", "RSN-22X")
def test_what_has_finished_is_not_sent_again(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    sent: list[int] = []
    noted: list[list[tuple[bool, bool]]] = []

    def act(own: ZooKeeper) -> None:
        node = own.get(ReassignmentZnode.PATH)
        assert node is not None
        sent.extend(p.partition for p in ReassignmentZnode.decode(node.data))
        batches = json.loads((tmp_path / "plan.state.json").read_text())["batches"]
        noted.append([(batch["sent"], batch["finished"]) for batch in batches])
        nodes.reassign(own)

    def stop(_: RunOutput, p: Progress) -> None:
        if p.batch == 2:
            raise KeyboardInterrupt

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        with monkeypatch.context() as patch:
            patch.setattr(RunOutput, "progress", stop)
            assert run(zk_connect, "--execute", *file, "--batch-partitions", "1").exit_code == 130
        eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the end of the second batch", 60)
        state = json.loads((tmp_path / "plan.state.json").read_text())
        assert [(b["sent"], b["finished"]) for b in state["batches"]] == [(True, True), (True, False), (False, False)]
        sent.clear()
        noted.clear()
        resumed = run(zk_connect, "--execute", "--resume", *file)
    assert resumed.exit_code == 0, resumed.output
    assert 0 not in sent and sent[-1] == 2
    assert noted[-1] == [(True, True), (True, False)], "what had finished is still noted"
    assert nodes.assignment(zk, "t") == GOAL
    assert (tmp_path / "plan.rollback.json").read_text() == way_back_text(GOAL, BEFORE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "plan.rollback.json"]


@pytest.mark.spec("RSN-22X")
def test_what_cannot_be_resumed_is_refused(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file, state = plan_file(tmp_path / "plan.json", GOAL), tmp_path / "plan.state.json"
    resume = ("--execute", "--resume", "--reassignment-json-file", file)
    assert f"nothing to resume: there is no {state}" in run(zk_connect, *resume).stdout
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    cut_short = run(zk_connect, *resume[:1], *resume[2:], "--wait", "--timeout", "0", "--throttle", "5000")
    assert cut_short.exit_code == 1
    recorded = json.loads(state.read_text())
    assert recorded["batches"] == [{"partitions": 3, "sent": True, "finished": False}]
    assert recorded["plan_sha256"] == hashlib.sha256(plan_json(plan(GOAL)).encode()).hexdigest()
    found = {(t["entity_type"], t["name"]): (t["before"], t["set"]) for t in recorded["throttles"]}
    rates = dict.fromkeys(throttles.RATES, "5000")
    assert found == {
        ("brokers", "1"): ({throttles.RATES[0]: "77"}, rates),
        ("brokers", "2"): ({}, rates),
        ("brokers", "3"): ({}, rates),
        ("topics", "t"): ({}, dict(zip(throttles.REPLICAS, ("0:1,1:2,2:3", "0:2,1:3,2:1"), strict=True))),
    }
    plan_file(file, {0: (3,)})
    assert "belongs to another plan" in run(zk_connect, *resume).stdout
    state.write_text("{}")
    assert "is not a state file of kt reassign" in run(zk_connect, *resume).stdout


@pytest.mark.spec("RSN-23X", "RSN-10")
def test_a_rate_that_was_changed_on_the_way_goes_too_but_not_somebody_elses_replica_lists(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--wait", "--timeout", "0", "--throttle", "5000").exit_code == 1
    assert run(zk_connect, "--execute", *file, "--throttle", "9000").exit_code == 0
    theirs = {throttles.REPLICAS[0]: "7:1"}
    zk.set(ConfigZnode.path("topics", "t"), ConfigZnode.encode(theirs), -1)
    nodes.reassign(zk)
    resumed = run(zk_connect, "--execute", "--resume", *file)
    assert resumed.exit_code == 0 and "/config/topics/t was changed by somebody else" in resumed.stderr
    assert config(zk, "brokers", "1") == BROKER_1 and config(zk, "brokers", "2") == {}
    assert config(zk, "topics", "t") == theirs


@pytest.mark.spec("RSN-13", "RSN-22X", "RSN-23X")
def test_verify_ends_a_run_that_was_cut_short_with_the_throttle_as_it_was(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--wait", "--timeout", "0", "--throttle", "5000").exit_code == 1
    assert run(zk_connect, "--verify", *file).exit_code == 1
    assert config(zk, "brokers", "1") == {**BROKER_1, **dict.fromkeys(throttles.RATES, "5000")}
    nodes.reassign(zk)
    done = run(zk_connect, "--verify", *file)
    assert done.exit_code == 0 and done.stdout.endswith("Throttle was removed.\n")
    assert config(zk, "brokers", "1") == BROKER_1
    assert not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("RSN-23X", "RSN-22X")
def test_a_signal_just_before_a_wait_begins_is_told_like_any_other(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it makes threading fail, whose error would take its place."""
    nodes.make_cluster(zk, topics={"t": BEFORE})

    def wait(_: WatchedNode, seconds: float) -> None:
        changed = interrupted_before_it_waits(threading.Condition(), signal.SIGINT)
        with changed:
            changed.wait(seconds)

    monkeypatch.setattr(WatchedNode, "wait", wait)
    flags = ("--execute", "--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    result = run(zk_connect, *flags, "--throttle", "5000", "--wait")
    assert result.exit_code == 130, (result.output, result.exception)
    assert "the brokers go on with what was sent, without kt; the throttle stays" in result.stderr


@pytest.mark.spec("RSN-23X", "RSN-22X")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_throttle_while_something_moves_and_says_how_to_go_on(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, number: signal.Signals
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = plan_file(tmp_path / "plan.json", GOAL)

    def send() -> None:
        with ZooKeeper(zk_connect) as own:
            eventually(lambda: own.get(ReassignmentZnode.PATH) is not None, "the reassignment", 60)
        os.kill(os.getpid(), number)  # the command waits without end: nobody carries the reassignment out

    sender = threading.Thread(target=send)
    sender.start()
    flags = ("--execute", "--reassignment-json-file", file)
    result = run(zk_connect, *flags, "--throttle", "5000", "--wait")
    sender.join(60)
    assert result.exit_code == 130, (result.output, result.exception)
    assert "the brokers go on with what was sent, without kt; the throttle stays" in result.stderr
    given = f"--reassignment-json-file {file}  #"
    assert f"kt reassign --zookeeper {zk_connect} --execute --resume {given} go on; takes the thr" in result.stderr
    assert f"--verify {given} look" in result.stderr and f"--cancel {given} send no more" in result.stderr
    assert f"--cancel --rollback {given} go back to the replicas from before" in result.stderr
    assert config(zk, "brokers", "2") == dict.fromkeys(throttles.RATES, "5000")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        assert run(zk_connect, *flags, "--resume").exit_code == 0
    assert nodes.assignment(zk, "t") == GOAL and config(zk, "brokers", "2") == {}
