"""A run of kt reassign that is killed, at every write it makes, and resumed: the same end, and no throttle left."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from kafkatool.core.operations.reassignment import run as reassignment_run
from kafkatool.core.operations.reassignment import run_lock, throttles
from kafkatool.core.operations.reassignment.saved_run import RunState
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.commands.reassign.killed_runs import BEFORE, BROKER_1, GOAL, Killed, Writes, reset
from tests.commands.reassign.runner import plan_file, run
from tests.core.operations.reassignment.plans import config, plan
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import eventually


@pytest.mark.timeout(600)
@pytest.mark.spec("RSN-22X", "RSN-23X", "RSN-21X", "RSN-20X")
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
            assert plan_json(plan(BEFORE)) + "\n" in [p.read_text() for p in directory.glob("*.rollback.json*")]

        reset(zk)
        run_and_resume(None)
        total = writes.count
        assert total > 20
        for number in range(1, total + 1):
            reset(zk)
            run_and_resume(number)


@pytest.mark.spec("RSN-22X")
def test_what_cannot_be_resumed_is_refused(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file, state = plan_file(tmp_path / "plan.json", GOAL), tmp_path / "plan.state.json"
    resume = ("--execute", "--resume", "--reassignment-json-file", file)
    assert f"nothing to resume: there is no {state}" in run(zk_connect, *resume).stdout
    cut_short = run(zk_connect, *resume[:1], *resume[2:], "--wait", "--timeout", "0")
    assert cut_short.exit_code == 1
    recorded = json.loads(state.read_text())
    assert recorded["batches"] == [{"partitions": 3, "sent": True, "finished": False}]
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


@pytest.mark.spec("RSN-22X", "RSN-23X")
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
    assert result.exit_code == 130
    assert "the brokers go on with what was sent, without kt; the throttle stays" in result.stderr
    given = f"--reassignment-json-file {file}  #"
    assert f"kt reassign --zookeeper {zk_connect} --execute --resume {given} go on; takes the thr" in result.stderr
    assert f"--verify {given} look" in result.stderr and f"--cancel {given} send no more" in result.stderr
    assert config(zk, "brokers", "2") == dict.fromkeys(throttles.RATES, "5000")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        assert run(zk_connect, *flags, "--resume").exit_code == 0
    assert nodes.assignment(zk, "t") == GOAL and config(zk, "brokers", "2") == {}


# --- cancel ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-37X")
def test_cancel_lets_the_batch_in_flight_end_and_goes_back_to_what_was_there(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    flags = ("--wait", "--timeout", "0", "--batch-partitions", "1", "--throttle", "5000")
    assert run(zk_connect, "--execute", *file, *flags).exit_code == 1
    early = run(zk_connect, "--cancel", *file, "--timeout", "0")
    assert early.exit_code == 1 and "what is under way goes on" in early.stderr
    assert zk.get(ReassignmentZnode.PATH) is not None
    nodes.reassign(zk)
    ended = run(zk_connect, "--cancel", *file)
    assert ended.exit_code == 0, ended.output
    assert "nothing is under way; 1 of 3 partitions are as planned" in ended.stderr
    assert nodes.assignment(zk, "t") == {**BEFORE, 0: GOAL[0]}
    assert config(zk, "brokers", "1") == {} == config(zk, "topics", "t")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        back = run(zk_connect, "--cancel", *file, "--rollback")
    assert back.exit_code == 0 and back.stdout.count("completed successfully") == 3, back.output
    assert nodes.assignment(zk, "t") == BEFORE
    assert "--cancel option is used, command must include" in run(zk_connect, "--cancel").stderr


@pytest.mark.spec("RSN-37X")
def test_a_run_that_is_cancelled_elsewhere_sends_no_further_batch_until_it_is_resumed(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    plan_path = plan_file(tmp_path / "plan.json", GOAL)
    state = tmp_path / "plan.state.json"

    def cancel_and_reassign(own: ZooKeeper) -> None:
        written = json.loads(state.read_text())
        state.write_text(json.dumps({**written, "cancelled": True}))  # as another kt does
        nodes.reassign(own)

    file = ("--reassignment-json-file", plan_path)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, cancel_and_reassign):
        result = run(zk_connect, "--execute", *file, "--batch-partitions", "1", "--throttle", "5000")
    assert result.exit_code == 1 and "the run was cancelled: no further batch is sent" in result.stdout
    assert nodes.assignment(zk, "t") == {**BEFORE, 0: GOAL[0]}
    assert config(zk, "brokers", "1") == {}
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        assert run(zk_connect, "--execute", *file, "--resume").exit_code == 0
    assert nodes.assignment(zk, "t") == GOAL


@pytest.mark.spec("RSN-37X", "RSN-31X")
def test_a_run_that_waits_for_somebody_elses_reassignment_sends_nothing_once_it_is_cancelled(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE, "other": {0: (1,)}})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    state = tmp_path / "plan.state.json"
    assert run(zk_connect, "--execute", *file, "--batch-partitions", "1", "--wait", "--timeout", "0").exit_code == 1
    nodes.reassign(zk)  # the first batch
    foreign = ReassignmentZnode.encode(plan({0: (2,)}, "other"))
    zk.create(ReassignmentZnode.PATH, foreign)

    def cancel_then_make_room(own: ZooKeeper) -> None:
        found, written = own.get(ReassignmentZnode.PATH), RunState.read(state, plan(GOAL))
        if found is None or found.data != foreign:
            nodes.reassign(own)
        elif len(written.batches) == 2 and written.batches[0].sent:  # resumed, and about to send
            written.cancel().write(state)
            nodes.reassign(own)

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, cancel_then_make_room):
        result = run(zk_connect, "--execute", *file, "--resume", "--timeout", "60")
    assert result.exit_code == 1 and "the run was cancelled: no further batch is sent" in result.stdout
    assert nodes.assignment(zk, "other") == {0: (2,)}
    assert nodes.assignment(zk, "t") == {**BEFORE, 0: GOAL[0]}


@pytest.mark.spec("RSN-37X", "RSN-22X")
def test_cancel_waits_for_the_kt_that_sends_although_its_mark_was_written_over(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reassignment_run, "PATIENCE_S", 60.0)
    nodes.make_cluster(zk, topics={"t": BEFORE})
    plan_path, state = plan_file(tmp_path / "plan.json", GOAL), tmp_path / "plan.state.json"
    file = ("--reassignment-json-file", plan_path)
    assert run(zk_connect, "--execute", *file, "--batch-partitions", "1", "--wait", "--timeout", "0").exit_code == 1
    nodes.reassign(zk)  # the first batch
    goal, holds = plan(GOAL), threading.Event()

    def is_marked() -> bool:
        return RunState.read(state, goal).cancelled

    def carry_out() -> None:
        with run_lock.held(plan_path):
            read = RunState.read(state, goal)
            holds.set()
            eventually(is_marked, "the mark", 60)
            read.with_batch(1, finished=False).write(state)
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: GOAL[1]})))
            eventually(is_marked, "the mark, made again", 60)
            nodes.reassign(zk)

    other = threading.Thread(target=carry_out)
    other.start()
    assert holds.wait(60)
    result = run(zk_connect, "--cancel", *file)
    assert not run_lock.is_held(plan_path)
    other.join(60)
    assert result.exit_code == 0 and "nothing is under way; 2 of 3 partitions are as planned" in result.stderr
    assert not state.exists() and zk.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-37X", "RSN-22X")
def test_cancel_does_not_wait_for_ever_for_a_kt_that_is_suspended(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    plan_path = plan_file(tmp_path / "plan.json", GOAL)
    file = ("--reassignment-json-file", plan_path)
    assert run(zk_connect, "--execute", *file, "--batch-partitions", "1", "--wait", "--timeout", "0").exit_code == 1
    nodes.reassign(zk)
    with run_lock.held(plan_path):
        result = run(zk_connect, "--cancel", *file, "--timeout", "0.5")
    assert result.exit_code == 0 and "is still there; it sends nothing more once it looks" in result.stderr


@pytest.mark.spec("RSN-37X")
def test_cancel_says_that_it_does_not_reach_the_run_of_a_plan_that_was_edited_since(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--batch-partitions", "1", "--wait", "--timeout", "0").exit_code == 1
    nodes.reassign(zk)
    plan_file(tmp_path / "plan.json", {p: GOAL[p] for p in (0, 1)})
    told = run(zk_connect, "--cancel", *file)
    state = tmp_path / "plan.state.json"
    assert f"{state} belongs to another plan" in told.stderr
    assert "the run that this file is of is not cancelled" in told.stderr
    state.unlink()
    assert "not cancelled" not in run(zk_connect, "--cancel", *file).stderr
