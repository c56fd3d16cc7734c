"""kt reassign --verify beside a run in batches: it waits for what is still to be sent, and knows it from what failed.

And beside what requests move: it takes that for what it is, and leaves it its throttle.
"""

import json
import os
import shlex
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.operations.reassignment.runs.saved_run import RunState
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.commands.reassign.runner import plan_file, run
from tests.core.operations.reassignment.plans import NINE, config, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes

GOAL = {p: (replicas[0] % 3 + 1,) for p, replicas in NINE.items()}  # every partition moves
ALL: Moves = plan(GOAL)
SECOND: Moves = plan({p: GOAL[p] for p in range(5, 9)})


@pytest.fixture
def begun(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> Path:
    """Begin a run of two batches of which the first is in the znode, and the second not sent."""
    file = plan_file(tmp_path / "plan.json", GOAL)
    flags = ("--batch-partitions", "5", "--throttle", "5000", "--wait", "--timeout", "0")
    assert run(zk_connect, "--execute", "--reassignment-json-file", file, *flags).exit_code == 1
    return file


@pytest.mark.spec("RSN-33X", "RSN-12", "RSN-20X", "RSN-23X")
def test_waiting_goes_on_between_two_batches(
    seed: ZooKeeper, zk_connect: str, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, shown = begun.with_name("plan.state.json"), list[Progress]()

    def show(_: RunOutput, p: Progress) -> None:
        shown.append(p)
        if p.left == set(SECOND) and seed.get(ReassignmentZnode.PATH) is None:  # now the run elsewhere goes on
            RunState.read(state, ALL).with_batch(0, finished=True).with_batch(1, finished=False).write(state)
            seed.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(SECOND))

    monkeypatch.setattr(RunOutput, "progress", show)
    with run_lock.held(begun), nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        done = run(zk_connect, "--verify", "--wait", "--reassignment-json-file", begun, "--timeout", "60")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("completed successfully") == 9 and done.stdout.endswith("Throttle was removed.\n")
    between = next(p for p in shown if p.left == set(SECOND))
    assert (between.finished, between.in_sync, between.total) == (5, 5, 9)
    assert all(p.finished + len(p.left) == 9 for p in shown)
    assert config(seed, "brokers", "1") == {} and not state.exists()


@pytest.mark.spec("RSN-33X", "RSN-12", "RSN-35X")
def test_what_a_run_that_ended_has_not_sent_is_not_called_failed(seed: ZooKeeper, zk_connect: str, begun: Path) -> None:
    verify = ("--verify", "--reassignment-json-file", begun)
    nodes.reassign(seed)
    told = run(zk_connect, *verify, "--wait")
    assert told.exit_code == 1
    assert told.stdout.count("completed successfully") == 5
    assert told.stdout.count("has not been sent yet") == 4 and "failed" not in told.stdout
    assert "4 partitions have not been sent, and no kt on this machine is at it any more; to go on:\n" in told.stderr
    assert f"--execute --resume --reassignment-json-file {begun}\n" in told.stderr
    items = json.loads(run(zk_connect, *verify, "--output", "json").stdout)["items"]
    assert [item["status"] for item in items] == ["completed"] * 5 + ["pending"] * 4
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "5000")
    timed = run(zk_connect, *verify, "--wait", "--timeout", "0")
    assert timed.exit_code == 1 and timed.stdout == told.stdout


@pytest.mark.spec("RSN-33X", "RSN-12")
def test_while_a_run_is_under_way_verify_waits_however_long_it_stands_still(
    seed: ZooKeeper, zk_connect: str, begun: Path
) -> None:
    verify = ("--verify", "--reassignment-json-file", begun)
    nodes.reassign(seed)
    with run_lock.held(begun):
        told = run(zk_connect, *verify)
        waited = run(zk_connect, *verify, "--wait", "--timeout", "1.5")
    assert waited.exit_code == told.exit_code == 1 and waited.stdout == told.stdout
    assert told.stdout.count("has not been sent yet") == 4 and "failed" not in told.stdout
    assert "4 partitions have not been sent yet: the kt that carries out this plan is to do that" in told.stderr
    assert "--resume" not in told.stderr


@pytest.mark.spec("RSN-33X", "RSN-12")
def test_what_nobody_here_sends_is_told_as_it_is_seen(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    told = run(zk_connect, "--verify", "--wait", "--reassignment-json-file", file)
    assert told.exit_code == 1 and told.stdout.count("failed") == 9
    assert "9 of 9 partitions are not as planned, and nothing is under way: not sent, or " in told.stderr
    line = next(line for line in told.stderr.splitlines() if "# send them" in line)
    assert f"--execute --throttle B/S --reassignment-json-file {file}  # send them; B/S: bytes per second" in line
    before = nodes.tree(seed)
    pasted = CliRunner().invoke(kt, shlex.split(line, comments=True)[1:])
    assert (pasted.exit_code, nodes.tree(seed)) == (2, before), "nothing moves until a rate is written in"
    assert "--throttle" in pasted.stderr
    plan_file(tmp_path / "plan.rollback.json", GOAL)
    back = run(zk_connect, "--verify", "--rollback", "--reassignment-json-file", file)
    assert f"--cancel --rollback --reassignment-json-file {file}  # send them" in back.stderr
    other = plan_file(tmp_path / "the way back.json", GOAL)
    back = run(zk_connect, "--verify", "--rollback", "--reassignment-json-file", file, "--rollback-file", other)
    assert f"--cancel --rollback --rollback-file '{other}' --reassignment-json-file {file}" in back.stderr


@pytest.mark.spec("RSN-22X", "RSN-23X")
def test_a_run_that_died_before_it_sent_what_it_had_noted_is_to_be_resumed_not_begun_without_its_throttle(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    flags = ("--throttle", "5000", "--wait", "--timeout", "0")
    assert run(zk_connect, "--execute", "--reassignment-json-file", file, *flags).exit_code == 1
    seed.delete(ReassignmentZnode.PATH)  # as if the kill had come before it
    told = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert told.exit_code == 1 and "9 of 9 partitions are not as planned, and nothing is under way" in told.stderr
    assert f"--execute --resume --reassignment-json-file {file}  # send them" in told.stderr


@pytest.mark.spec("RSN-12")
def test_what_a_move_waits_for_and_what_is_gone_is_told(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (7, 8), 1: (2,)})
    seed.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (7, 8)})))
    waiting = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert waiting.exit_code == 1
    assert waiting.stderr == "what is in progress waits for brokers that are not registered: 7,8; start them\n"
    plan_file(file, {0: (1,)}, topic="gone")
    told = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert told.exit_code == 1
    assert told.stderr == "1 of 1 partition does not exist: the plan is stale, or that of another cluster\n"


@pytest.mark.spec("RSN-22X", "RSN-31X")
def test_two_do_not_carry_out_the_same_plan(seed: ZooKeeper, zk_connect: str, begun: Path) -> None:
    nodes.reassign(seed)
    execute = ("--execute", "--reassignment-json-file", begun)
    with run_lock.held(begun):
        for flags in (["--resume"], ["--wait"], []):  # without a flag it would send all at once, and without throttle
            second = run(zk_connect, *execute, *flags)
            assert second.exit_code == 1 and "another kt is carrying out this plan" in second.stdout
            assert f"--verify --wait --reassignment-json-file {begun}  # follow it" in second.stderr
    assert seed.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-22X", "RSN-23X", "RSN-37X")
@pytest.mark.parametrize(("batch", "told", "code"), [(1, "completed successfully", 0), (0, "the run was cancelled", 1)])
def test_a_run_whose_state_a_verify_took_away_ends_well_if_all_is_done(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, batch: int, told: str, code: int
) -> None:
    file, state = plan_file(tmp_path / "plan.json", GOAL), tmp_path / "plan.state.json"

    def act(own: ZooKeeper) -> None:
        if RunState.read(state, ALL).batches[batch].sent:
            state.unlink()  # as --verify does, before the run looks
        nodes.reassign(own)

    flags = ("--execute", "--reassignment-json-file", file, "--batch-partitions", "5", "--throttle", "5000")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        result = run(zk_connect, *flags)
    assert (result.exit_code, told in result.stdout) == (code, True), result.output
    assert state.exists() is False
    if code == 0:
        assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")


@pytest.mark.spec("RSN-33X", "RSN-37X")
def test_who_stops_waiting_is_told_where_it_stands_and_how_to_go_on(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = plan_file(tmp_path / "plan.json", {0: (1,), 1: (3,), 2: (1,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--skip-unchanged")
    assert run(zk_connect, *flags).exit_code == 0
    seed.set(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: (3,)})), -1)  # the other one was given up
    before = nodes.tree(seed)
    monkeypatch.setattr(RunOutput, "progress", interrupt)
    given = f"--reassignment-json-file {file}"
    result = run(zk_connect, "--verify", "--wait", "--reassignment-json-file", file)
    assert result.exit_code == 130
    assert result.stderr == (
        "1 of 3 partitions as planned, 1 in progress, 1 not as planned\n"
        "the brokers go on with what was sent; nothing was changed by this command; the throttle stays\n"
        f"kt reassign --zookeeper {zk_connect} --verify --wait {given}  # wait on; takes the throttle off when all is done\n"
        f"kt reassign --zookeeper {zk_connect} --cancel {given}  # send no more, and send back what is under way\n"
        f"kt reassign --zookeeper {zk_connect} --cancel --rollback {given}  # and what has ended, too\n"
        "\ninterrupted\n"
    )
    assert nodes.tree(seed) == before
    (tmp_path / "plan.rollback.json").unlink()
    assert "--rollback" not in run(zk_connect, "--verify", "--wait", "--reassignment-json-file", file).stderr


@pytest.mark.spec("RSN-33X", "COM-3X")
def test_sigterm_ends_waiting_as_ctrl_c_does_so_that_the_terminal_is_left_in_order(
    seed: ZooKeeper, zk_connect: str, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(RunOutput, "progress", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert run(zk_connect, "--verify", "--wait", "--reassignment-json-file", begun).exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is before


RATES = dict.fromkeys(throttles.RATES, "5000")


@pytest.fixture
def requested(zk: ZooKeeper) -> ZooKeeper:
    """Have a request move a partition of topic u, of which broker 1 has a rate."""
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}, "u": {0: (1, 2)}})
    zk.create("/config/brokers/1", ConfigZnode.encode(RATES), make_parents=True)
    nodes.request(zk, tp(0, "u"), (1, 2, 3))
    return zk


@pytest.mark.spec("RSN-12", "RSN-25X", "ADM-36")
def test_what_a_request_moves_goes_on_though_its_replicas_are_those_of_the_plan(
    requested: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (1, 2, 3)}, "u"))
    found = run(zk_connect, "--verify", *file)
    assert found.stdout.splitlines()[1:] == ["Reassignment of partition [u,0] is still in progress"]
    assert found.exit_code == 1 and config(requested, "brokers", "1") == RATES
    nodes.end_requests(requested, "u")
    found = run(zk_connect, "--verify", *file)
    assert found.stdout.splitlines()[1:] == [
        "Reassignment of partition [u,0] completed successfully",
        "Throttle was removed.",
    ]
    assert found.exit_code == 0 and config(requested, "brokers", "1") == {}


@pytest.mark.spec("RSN-13", "ADM-38")
@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_the_end_of_another_plan_leaves_a_request_its_throttle(
    requested: ZooKeeper, zk_connect: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    found = run(zk_connect, "--verify", "--reassignment-json-file", plan_file(tmp_path / "p", {0: (1, 2)}), *flags)
    assert found.exit_code == 0 and "Throttle was removed." not in found.stdout and "set /config" not in found.stdout
    assert flags or "other partitions are being moved: the throttle stays; --verify takes it off" in found.stderr
    assert config(requested, "brokers", "1") == RATES
