"""A run of kt reassign that is killed, at every write it makes, and resumed: the same end, and no throttle left."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core import plan_files
from kafkatool.core.operations import throttles
from kafkatool.core.plan_files import plan_json
from kafkatool.core.znodes import ConfigZnode, ReassignmentZnode
from kafkatool.core.zookeeper import ZooKeeper
from tests.commands.test_reassign import plan_file, run
from tests.core.operations import cluster_nodes as nodes
from tests.core.operations.test_reassignment import config, plan
from tests.waiting import eventually

BEFORE = {0: (1,), 1: (2,), 2: (3,)}
GOAL = {0: (2,), 1: (3,), 2: (1,)}
BROKER_1 = {"x": "y", throttles.RATES[0]: "77"}  # what somebody has set before, and wants back


class Killed(BaseException):
    """As by SIGKILL: no handler of the command sees it."""


class Writes:
    """Counts the writes of the command, to ZooKeeper and to its files, and dies before one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.die_at: int | None = None
        self._thread = threading.current_thread()  # the controller writes on its own

    def around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not self._thread:
                return write(*args, **kwargs)
            self.count += 1
            if self.count == self.die_at:
                raise Killed
            return write(*args, **kwargs)

        return wrapped

    @contextmanager
    def killing(self, number: int | None) -> Iterator[None]:
        self.count, self.die_at = 0, number
        try:
            yield
        finally:
            self.die_at = None


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    found = Writes()
    monkeypatch.setattr(ZooKeeper, "create", found.around(ZooKeeper.create))
    monkeypatch.setattr(ZooKeeper, "set", found.around(ZooKeeper.set))
    monkeypatch.setattr(plan_files, "replace_file", found.around(plan_files.replace_file))
    monkeypatch.setattr("kafkatool.core.operations.reassignment_state.replace_file", plan_files.replace_file)
    monkeypatch.setattr(Path, "unlink", found.around(Path.unlink))
    return found


def reset(zk: ZooKeeper) -> None:
    """The cluster as it was before the first run; the controller of the test carries the way back out."""
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan(BEFORE)))
    eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the way back", 60)
    empty: dict[str, str] = {}
    for kind, name, value in (
        ("brokers", "1", BROKER_1),
        ("brokers", "2", empty),
        ("brokers", "3", empty),
        ("topics", "t", empty),
    ):
        path = ConfigZnode.path(kind, name)
        if zk.get(path) is None:
            zk.create(path, ConfigZnode.encode(value), make_parents=True)
        else:
            zk.set(path, ConfigZnode.encode(value), -1)


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
    assert f"--resume --reassignment-json-file {file} goes on and, when all is done, removes the" in result.stderr
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
