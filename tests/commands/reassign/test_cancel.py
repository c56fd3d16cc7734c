"""kt reassign --cancel: what moves is turned round, nothing more is sent, no throttle is left; beside other plans too."""

import itertools
import json
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import following, throttles
from kafkatool.core.operations.reassignment.runs import cancellation, run_lock
from kafkatool.core.operations.reassignment.runs.saved_run import RunState
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import Create, Delete, Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode, TopicZnode
from tests.commands.reassign.killed_runs import BEFORE, BROKER_1, GOAL
from tests.commands.reassign.runner import plan_file, run
from tests.core.operations.reassignment.plans import config, plan
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import eventually


def asked(zk: ZooKeeper) -> dict[TopicPartition, tuple[int, ...]]:
    """Return what the znode asks for; empty where there is none."""
    node = zk.get(ReassignmentZnode.PATH)
    return ReassignmentZnode.decode(node.data) if node else {}


@pytest.fixture
def deleted(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what sessions of this thread delete, but for the test's own: those of kt. The controller has a thread."""
    paths = list[str]()

    def noting(write: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: ZooKeeper, what: str | Iterable[Any], *more: Any, **options: Any) -> Any:
            if self is not zk and threading.current_thread() is threading.main_thread():
                ops = [Delete(what)] if isinstance(what, str) else what
                each = itertools.chain.from_iterable([op] if isinstance(op, Op) else op for op in ops)
                paths.extend(op.path for op in each if isinstance(op, Delete))
            return write(self, what, *more, **options)

        return noted

    for name in ("delete", "commit", "commit_many"):
        monkeypatch.setattr(ZooKeeper, name, noting(getattr(ZooKeeper, name)))
    return paths


@pytest.mark.spec("RSN-37X")
def test_cancel_sends_back_what_is_under_way_and_what_has_ended_with_rollback(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, deleted: list[str]
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    flags = ("--wait", "--timeout", "0", "--batch-partitions", "1", "--throttle", "5000")
    assert run(zk_connect, "--execute", *file, *flags).exit_code == 1
    nodes.reassign(zk)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: GOAL[1]})))  # as a kt that resumes it
    early = run(zk_connect, "--cancel", *file, "--timeout", "0")
    assert early.exit_code == 1 and "what is under way goes on" in early.stderr
    assert "1 partition under way is sent back to the replicas from before" in early.stderr
    assert asked(zk) == plan({1: BEFORE[1]})
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
    assert deleted == [], "the controller alone does that"
    with ZooKeeper(zk_connect) as as_kt:
        as_kt.create("/seen")
        as_kt.delete("/seen")
        as_kt.commit([Create("/seen"), Delete("/seen")])
        as_kt.commit_many([[Create("/seen")], [Delete("/seen")]])
    assert deleted == ["/seen"] * 3, "or it would not be noticed"


@pytest.mark.spec("RSN-37X", "RSN-23X")
@pytest.mark.parametrize("run_before", ["cut-short", "not-followed", "ended"])
def test_a_way_back_goes_under_a_throttle_whose_lists_fit_it_and_which_stays_while_it_is_cut_short(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_before: str
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    followed = {"cut-short": ("--wait", "--timeout", "0"), "not-followed": (), "ended": ("--wait",)}[run_before]
    if run_before == "ended":
        with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
            assert run(zk_connect, "--execute", *file, *followed, "--throttle", "6000").exit_code == 0
    else:
        assert run(zk_connect, "--execute", *file, *followed, "--throttle", "6000").exit_code == (len(followed) > 0)
        nodes.reassign(zk)
    rate = "5000" if run_before == "ended" else "6000"
    back = ("--cancel", "--rollback", *file, *(("--throttle", rate) if run_before == "ended" else ()))
    lists = {throttles.REPLICAS[0]: "0:2,1:3,2:1", throttles.REPLICAS[1]: "0:1,1:2,2:3"}
    shown = run(zk_connect, *back, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert f"/config/topics/t {ConfigZnode.encode(lists).decode()}" in shown.stdout
    assert config(zk, "topics", "t") != lists, "nothing was written"

    def interrupted(*_: object) -> None:
        if asked(zk) == plan(BEFORE):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunOutput, "progress", interrupted)
        early = run(zk_connect, *back)
    assert early.exit_code == 130 and "; the throttle stays" in early.stderr, early.output
    assert config(zk, "topics", "t") == lists
    rates = dict.fromkeys((1, 2, 3), dict.fromkeys(throttles.RATES, rate))
    assert throttles.rates_by_broker(zk) == rates

    nodes.reassign(zk)
    ended = run(zk_connect, *back)
    assert ended.exit_code == 0 and nodes.assignment(zk, "t") == BEFORE, ended.output
    assert config(zk, "topics", "t") == {} == config(zk, "brokers", "2")
    before = {"x": "y"} if run_before == "not-followed" else BROKER_1  # nothing noted what stood there
    assert config(zk, "brokers", "1") == before
    assert not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("RSN-37X", "RSN-22X")
def test_a_run_that_goes_on_after_its_way_back_was_cut_short_has_the_lists_that_fit_again(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--wait", "--timeout", "0", "--throttle", "5000").exit_code == 1
    nodes.reassign(zk)
    seen = list[dict[str, str] | None]()
    going = BEFORE

    def interrupted(*_: object) -> None:
        if asked(zk) == plan(going):
            seen.append(config(zk, "topics", "t"))
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunOutput, "progress", interrupted)
        for words in (("--cancel", "--rollback"), ("--execute", "--resume")):
            assert run(zk_connect, *words, *file).exit_code == 130
            nodes.reassign(zk)
            going = GOAL
    assert [lists and lists[throttles.REPLICAS[1]] for lists in seen] == ["0:1,1:2,2:3", "0:2,1:3,2:1"]
    assert run(zk_connect, "--execute", "--resume", *file).exit_code == 0
    assert config(zk, "topics", "t") == {} == config(zk, "brokers", "1")


@pytest.mark.spec("RSN-37X", "RSN-24X")
def test_a_throttle_is_for_the_way_back_alone_not_too_low_and_noted(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    refused = run(zk_connect, "--cancel", *file, "--throttle", "5000")
    assert refused.exit_code == 2 and "--throttle can't be used with --cancel" in refused.stderr
    (tmp_path / "plan.rollback.json").write_text(plan_json(plan(BEFORE)))
    refused = run(zk_connect, "--cancel", "--rollback", *file, "--throttle", "5")
    assert refused.exit_code == 1 and "may never let the move end" in refused.output
    other = plan({0: (3,)})
    RunState.of_ended(other, 512_000, 0).write(tmp_path / "plan.state.json")
    before = nodes.tree(zk)
    refused = run(zk_connect, "--cancel", "--rollback", *file, "--throttle", "5000")
    assert refused.exit_code == 1 and "plan.state.json belongs to another plan" in refused.output
    assert nodes.tree(zk) == before and RunState.read(tmp_path / "plan.state.json", other).cancelled


@pytest.mark.spec("RSN-37X", "RSN-23X")
@pytest.mark.parametrize("throttled", ["by the plan", "by the cancel"])
def test_throttles_that_are_preserved_are_those_of_the_way_back(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, throttled: str
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    rate = ("--throttle", "5000")
    before, given = (rate, ()) if throttled == "by the plan" else ((), rate)
    assert run(zk_connect, "--execute", *file, *before).exit_code == 0
    nodes.reassign(zk)
    seen = list[dict[str, str] | None]()

    def act(own: ZooKeeper) -> None:
        seen.append(config(own, "topics", "t"))
        nodes.reassign(own)

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        back = run(zk_connect, "--cancel", "--rollback", *file, *given, "--preserve-throttles")
    assert back.exit_code == 0 and nodes.assignment(zk, "t") == BEFORE, back.output
    lists = dict(zip(throttles.REPLICAS, ("0:2,1:3,2:1", "0:1,1:2,2:3"), strict=True))
    assert seen == [lists] and config(zk, "topics", "t") == lists
    assert throttles.rates_by_broker(zk) == dict.fromkeys((1, 2, 3), dict.fromkeys(throttles.RATES, "5000"))
    assert "Throttle was removed." in run(zk_connect, "--cancel", *file).stdout
    assert config(zk, "topics", "t") == {} == throttles.rates_by_broker(zk)


@pytest.mark.spec("RSN-37X", "RSN-23X")
def test_a_cancel_that_goes_all_the_way_back_and_is_cut_short_says_how_it_goes_on(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    way_back = ("--rollback-file", tmp_path / "way back.json")
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL), *way_back)
    flags = ("--wait", "--timeout", "0", "--batch-partitions", "1")
    assert run(zk_connect, "--execute", *file, *flags).exit_code == 1
    nodes.reassign(zk)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: GOAL[1]})))  # as a kt that resumes it

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    cut: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(RunOutput, "progress", interrupted)
        for more in (("--throttle", "5000"), ("--throttle", "5000", "--preserve-throttles", "--force")):
            early = run(zk_connect, "--cancel", "--rollback", *file, *more)
            assert early.exit_code == 130, early.output
            cut.append([line for line in early.stderr.splitlines() if line.startswith("kt reassign")])
    preserving, flags_of_plan = " --preserve-throttles --force", f"--reassignment-json-file {file[1]}"
    again = f"kt reassign --zookeeper {zk_connect} --cancel --rollback --rollback-file '{way_back[1]}' --throttle 5000"
    assert cut == [
        [f"{again} {flags_of_plan}  # goes on until all is back; no throttle is left then"],
        [f"{again}{preserving} {flags_of_plan}  # goes on until all is back"],
    ]
    nodes.reassign(zk)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        pasted = CliRunner().invoke(kt, shlex.split(cut[0][0], comments=True)[1:])
    assert pasted.exit_code == 0 and nodes.assignment(zk, "t") == BEFORE, pasted.output
    assert config(zk, "topics", "t") == {} == throttles.rates_by_broker(zk)


@pytest.mark.spec("RSN-37X", "COM-6X")
def test_a_dry_run_of_cancel_shows_what_it_would_write_and_writes_nothing(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    flags = ("--wait", "--timeout", "0", "--batch-partitions", "1", "--throttle", "5000")
    assert run(zk_connect, "--execute", *file, *flags).exit_code == 1
    nodes.reassign(zk)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: GOAL[1]})))
    before, files = nodes.tree(zk), {path: path.read_bytes() for path in tmp_path.iterdir()}

    shown = run(zk_connect, "--cancel", *file, "--dry-run")
    assert shown.exit_code == 0, shown.output
    turned, *untied = shown.stdout.splitlines()
    assert turned == f"set /admin/reassign_partitions {plan_json(plan({1: BEFORE[1]}))}"
    assert {line.split(" ")[1] for line in untied if line.startswith("set")} == {
        *(f"/config/brokers/{broker}" for broker in (1, 2, 3)),
        "/config/topics/t",
    }
    assert all('"config":{}' in line for line in untied if line.startswith("set"))
    rollback = run(zk_connect, "--cancel", *file, "--rollback", "--preserve-throttles", "--dry-run")
    first, *throttled, last = rollback.stdout.splitlines()
    assert (first, last) == (turned, f"create /admin/reassign_partitions {plan_json(plan({0: BEFORE[0]}))}")
    lists = dict(zip(throttles.REPLICAS, ("0:2", "0:1"), strict=True))
    assert f"set /config/topics/t {ConfigZnode.encode(lists).decode()}" in throttled, "under the plan's own throttle"
    assert not any('"config":{}' in line for line in throttled)
    assert nodes.tree(zk) == before and {path: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.mark.spec("RSN-37X", "RSN-23X", "COM-6X")
@pytest.mark.parametrize("given", [(), ("--throttle", "7000")], ids=["begun", "given"])
def test_a_dry_run_of_a_way_back_shows_the_throttle_of_a_run_that_has_taken_it_off_set_and_put_back(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))

    def interrupted(*_: object) -> None:
        nodes.reassign(zk)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunOutput, "progress", interrupted)
        cut_short = run(zk_connect, "--execute", *file, "--wait", "--throttle", "6000", "--batch-partitions", "1")
    assert cut_short.exit_code == 130 and (tmp_path / "plan.state.json").exists()
    assert config(zk, "topics", "t") == {} and config(zk, "brokers", "1") == BROKER_1, "nothing moves under it"
    shown = run(zk_connect, "--cancel", "--rollback", *file, *given, "--dry-run")
    assert shown.exit_code == 0, shown.output
    back = f"create {ReassignmentZnode.PATH} {plan_json(plan({0: BEFORE[0]}))}"
    lines = [line for line in shown.stdout.splitlines() if "/config/changes/" not in line]
    set_, put_back = lines[: lines.index(back)], lines[lines.index(back) + 1 :]
    rate = given[-1] if given else "6000"
    assert [rate in line or "0:1" in line for line in set_] == [True] * 4, set_
    assert [line.split(" ")[1] for line in put_back] == [line.split(" ")[1] for line in set_]
    configs = {line.split(" ")[1]: line.split(" ", 2)[2] for line in put_back}
    assert configs.pop(ConfigZnode.path("brokers", "1")) == ConfigZnode.encode(BROKER_1).decode()
    assert all('"config":{}' in text for text in configs.values())


@pytest.mark.spec("RSN-37X")
def test_what_no_way_back_is_known_of_is_waited_for(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--throttle", "5000").exit_code == 0
    way_back = tmp_path / "plan.rollback.json"
    way_back.write_text(plan_json(plan({0: (1,), 1: (1,)})))  # an old one: partition 1 is not on 1
    early = run(zk_connect, "--cancel", *file, "--timeout", "0")
    assert early.exit_code == 1 and asked(zk) == plan({**GOAL, 0: (1,)})
    assert f"[t,1],[t,2]: under way, and {way_back} does not tell a way back" in early.stderr
    way_back.unlink()
    nodes.reassign(zk)
    assert "nothing is under way; 2 of 3 partitions are as planned" in run(zk_connect, "--cancel", *file).stderr


@pytest.mark.spec("RSN-37X", "RSN-31X")
def test_cancel_leaves_the_moves_of_other_plans_alone(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE, "other": {0: (1,)}})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file).exit_code == 0
    theirs = {
        **plan({0: (2,)}, "other"),
        **plan({1: (1,)}),
    }  # the second: our partition, to where somebody else wants it
    node = zk.get(ReassignmentZnode.PATH)
    assert node is not None
    zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({**plan(GOAL), **theirs}), node.version)
    assert run(zk_connect, "--cancel", *file, "--timeout", "0").exit_code == 1
    assert asked(zk) == {**plan(BEFORE), **theirs}


@pytest.mark.spec("RSN-37X")
def test_a_write_of_the_controller_in_between_is_not_lost(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file).exit_code == 0
    set_node = ZooKeeper.set
    written: list[int] = []

    def after_the_controller(self: ZooKeeper, path: str, data: bytes, version: int) -> int:
        if path == ReassignmentZnode.PATH and not written:
            left = {p: to for p, to in plan(GOAL).items() if p.partition}  # partition 0 has ended
            written.append(set_node(zk, path, ReassignmentZnode.encode(left), version))
        return set_node(self, path, data, version)

    def interrupted(*_: object) -> None:
        if asked(zk) == plan({1: BEFORE[1], 2: BEFORE[2]}):
            raise KeyboardInterrupt

    monkeypatch.setattr(ZooKeeper, "set", after_the_controller)
    monkeypatch.setattr(RunOutput, "progress", interrupted)
    result = run(zk_connect, "--cancel", *file)
    assert result.exit_code == 130, result.output
    assert written and asked(zk) == plan({1: BEFORE[1], 2: BEFORE[2]})


@pytest.mark.spec("RSN-37X")
def test_a_controller_that_does_not_look_is_told_of_with_what_remains_to_be_done(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "PATIENCE_S", 0.0)
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file).exit_code == 0
    told = run(zk_connect, "--cancel", *file, "--timeout", "3").stderr
    assert f"3 partitions have not gone back yet, though {ReassignmentZnode.PATH} asks for it. Kafka's" in told
    assert "restart broker 1, and the next controller takes them back" in told
    assert told.count("have not gone back yet") == 1
    node = zk.get("/controller")
    assert node is not None, "kt leaves it alone"


@pytest.mark.spec("RSN-37X", "RSN-23X")
@pytest.mark.parametrize(("known", "taken_up"), [(True, False), (True, True), (False, False)])
def test_ctrl_c_while_it_cancels_says_where_things_stand_and_leaves_no_throttle_that_slows_nothing(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, *, known: bool, taken_up: bool
) -> None:
    """``taken_up``: a controller has begun to copy, and as Kafka's do does not look at the way back that is asked for."""
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = plan_file(tmp_path / "plan.json", GOAL)
    flags = ("--reassignment-json-file", file)
    assert run(zk_connect, "--execute", *flags, "--throttle", "5000").exit_code == 0
    if not known:
        (tmp_path / "plan.rollback.json").unlink()
    if taken_up:
        both = {p: (*GOAL[p], *BEFORE[p]) for p in BEFORE}
        zk.set(TopicZnode.path("t"), TopicZnode(both).encode(), 0)

    def interrupt() -> None:
        with ZooKeeper(zk_connect) as own:
            eventually(lambda: not known or asked(own) == plan(BEFORE), "the way back", 60)
        os.kill(os.getpid(), signal.SIGINT)

    progress, sender = following.Progress, threading.Thread(target=interrupt)

    def started(*args: Any, **more: Any) -> following.Progress:
        if not sender.ident:  # it waits
            sender.start()
        return progress(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "Progress", started)
        result = run(zk_connect, "--cancel", *flags)
    sender.join(60)
    assert result.exit_code == 130, result.output
    if taken_up:
        assert "3 partitions are asked to go back; the throttle stays" in result.stderr
        assert config(zk, "brokers", "2") == dict.fromkeys(throttles.RATES, "5000")
    elif known:
        assert "3 partitions are asked to go back; no throttle is left" in result.stderr
        assert config(zk, "brokers", "2") == {} == config(zk, "topics", "t")
    else:
        assert "3 partitions go on to the planned replicas; the throttle stays" in result.stderr
        assert f"--cancel --reassignment-json-file {file}  # takes it off when nothing is copied" in result.stderr
        assert config(zk, "brokers", "2") == dict.fromkeys(throttles.RATES, "5000")


@pytest.mark.spec("RSN-37X", "RSN-13")
@pytest.mark.parametrize("rollback", [("--rollback",), ()])
def test_a_throttle_of_a_run_that_was_not_followed_does_not_outlive_its_cancel(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, rollback: tuple[str, ...]
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--throttle", "5000").exit_code == 0
    assert config(zk, "brokers", "2") and config(zk, "topics", "t")
    nodes.reassign(zk)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        result = run(zk_connect, "--cancel", *file, *rollback)
    assert result.exit_code == 0 and "Throttle was removed." in result.stdout
    assert config(zk, "brokers", "2") == {} == config(zk, "topics", "t")


@pytest.mark.spec("RSN-37X", "RSN-13")
def test_rates_that_somebody_has_set_stay_when_a_plan_without_throttle_is_cancelled(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(BROKER_1), make_parents=True)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file).exit_code == 0
    nodes.reassign(zk)
    assert run(zk_connect, "--cancel", *file).exit_code == 0
    assert config(zk, "brokers", "1") == BROKER_1


@pytest.mark.spec("RSN-37X", "RSN-13", "RSN-31X")
@pytest.mark.parametrize("mode", ["--cancel", "--verify"])
def test_a_throttle_that_slows_another_plan_too_stays_until_that_has_ended(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, mode: str
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE, "other": {0: (1,)}})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file, "--throttle", "5000").exit_code == 0
    nodes.reassign(zk)
    other = ("--reassignment-json-file", plan_file(tmp_path / "other.json", {0: (2,)}, "other"))
    assert run(zk_connect, "--execute", *other, "--throttle", "5000").exit_code == 0
    result = run(zk_connect, mode, *file)
    assert result.exit_code == 0 and "other partitions are being moved: the throttle stays" in result.stderr
    assert config(zk, "brokers", "1") == dict.fromkeys(throttles.RATES, "5000")
    nodes.reassign(zk)
    assert "Throttle was removed." in run(zk_connect, mode, *file).stdout
    assert config(zk, "brokers", "1") == {} == config(zk, "topics", "t")


@pytest.mark.spec("RSN-37X", "RSN-30X")
def test_a_move_by_request_is_neither_replaced_nor_cancelled_without_a_word(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    path = TopicZnode.path("t")
    moving = {
        "version": 3,
        "topic_id": "AAAA",
        "partitions": {"0": [2, 1], "1": [2], "2": [3]},
        "adding_replicas": {"0": [2]},
        "removing_replicas": {"0": [1]},
    }
    zk.set(path, json.dumps(moving).encode(), 0)
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (3,), 1: (3,)}))
    refused = run(zk_connect, "--execute", *file)
    assert refused.exit_code == 1 and "a request to the controller is moving [t,0], which this plan" in refused.stdout
    assert "kt reassign --bootstrap-server HOST:PORT --cancel" in refused.stderr and asked(zk) == {}
    cancelled = run(zk_connect, "--cancel", *file)
    assert "[t,0]: moved by a request to the controller, and not cancelled" in cancelled.stderr
    assert "what requests move goes on; the throttle stays" in cancelled.stderr
    assert cancelled.exit_code == 1 and "nothing is under way" not in cancelled.stderr
    node = zk.get(path)
    assert node is not None and json.loads(node.data) == moving
    assert run(zk_connect, "--execute", *file, "--force").exit_code == 0
    unreachable = run(zk_connect, "--cancel", *file)  # the znode moves it now
    assert unreachable.exit_code == 1 and "[t,0]: moved" not in unreachable.stderr
    assert "cannot be asked to cancel: no broker answers: 127.0.0.1:1: refused; nothing was" in unreachable.stdout
    plan_named = f"--cancel --reassignment-json-file {file[1]}"
    assert f"kt reassign --bootstrap-server 127.0.0.1:1 {plan_named}" in unreachable.stderr.splitlines()
    assert asked(zk) == plan({0: (3,), 1: (3,)})


@pytest.mark.spec("RSN-37X", "RSN-30X")
def test_a_way_back_takes_the_place_of_what_a_request_moves_where_that_is_forced(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", GOAL))
    assert run(zk_connect, "--execute", *file).exit_code == 0
    nodes.reassign(zk)
    nodes.request(zk, TopicPartition("t", 0), (9,))  # to a broker that is dead: it never ends
    back = ("--cancel", "--rollback", *file, "--timeout", "60")
    refused = run(zk_connect, *back)
    assert refused.exit_code == 1 and "wait until it has ended, or add --force" in refused.stdout, refused.output

    def take_over(own: ZooKeeper) -> None:
        nodes.end_requests(own, "t")
        nodes.reassign(own)

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, take_over):
        forced = run(zk_connect, *back, "--force")
    assert forced.exit_code == 0 and nodes.assignment(zk, "t") == BEFORE, forced.output


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

    def cancel_while_it_waits(own: ZooKeeper) -> None:
        found, written = own.get(ReassignmentZnode.PATH), RunState.read(state, plan(GOAL))
        if found is None or found.data != foreign:
            nodes.reassign(own)
        elif len(written.batches) == 2 and written.batches[0].sent and not written.cancelled:  # resumed, about to send
            written.cancel().write(state)

    # Room is made when it has ended: a kt that was stopped between its look at the mark and its write would still send.
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, cancel_while_it_waits):
        result = run(zk_connect, "--execute", *file, "--resume", "--timeout", "60")
    assert result.exit_code == 1 and "the run was cancelled: no further batch is sent" in result.stdout
    nodes.reassign(zk)
    assert nodes.assignment(zk, "other") == {0: (2,)}
    assert nodes.assignment(zk, "t") == {**BEFORE, 0: GOAL[0]}
    assert zk.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-37X", "RSN-22X")
def test_cancel_waits_for_the_kt_that_sends_although_its_mark_was_written_over(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "PATIENCE_S", 60.0)
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
            eventually(lambda: asked(zk) == plan({1: BEFORE[1]}), "the way back", 60)
            nodes.reassign(zk)

    other = threading.Thread(target=carry_out)
    other.start()
    assert holds.wait(60)
    result = run(zk_connect, "--cancel", *file)
    assert not run_lock.is_held(plan_path)
    other.join(60)
    assert result.exit_code == 0 and "nothing is under way; 1 of 3 partitions are as planned" in result.stderr
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
