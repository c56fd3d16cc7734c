"""kt reassign that is followed to its end, in one batch or several; the controller is played by hand."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.commands.shared import run_progress
from kafkatool.commands.shared.progress_line import ProgressLine
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.commands.reassign.runner import GOAL, plan_file, run
from tests.core.operations.reassignment.plans import NINE, config, plan, way_back_text
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("RSN-33X", "RSN-23X", "RSN-35X")
def test_waiting_ends_with_the_throttle_as_it_was(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    seed.create("/config/brokers/1", ConfigZnode.encode({"x": "y"}))
    file = plan_file(tmp_path / "plan.json", {0: (2,), 1: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--wait", "--timeout", "60")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        result = run(zk_connect, *flags, "--output", "json")
    assert result.exit_code == 0, result.output
    assert [item["status"] for item in json.loads(result.stdout)["items"]] == ["completed", "completed"]
    assert config(seed, "brokers", "1") == {"x": "y"}
    assert config(seed, "brokers", "2") == {} == config(seed, "topics", "t")


@pytest.mark.spec("RSN-33X", "RSN-23X", "RSN-8", "RSN-15", "COM-2")
def test_past_the_deadline_it_exits_1_and_says_how_to_go_on(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--wait", "--timeout", "0.1")
    result = run(zk_connect, *flags)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [  # no plan on the screen: it is in files
        "The throttle limit was set to 5000 B/s",
        "Successfully started reassignment of 1 partition",
        "Reassignment of partition [t,0] is still in progress",
    ]
    assert "not finished after 0.1 s: the reassignment goes on" in result.stderr
    assert f"--execute --resume --reassignment-json-file {file}  # go on; takes the throttle off" in result.stderr
    assert seed.get(ReassignmentZnode.PATH) is not None and config(seed, "brokers", "1")


@pytest.mark.spec("RSN-33X", "RSN-22X", "RSN-32X", "COM-5X")
def test_what_it_says_to_type_keeps_the_guard_and_works_for_a_plan_from_stdin(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = plan_json(plan({0: (2,)}))
    again = ("--cluster-id", "the-cluster", "--execute", "--resume", "--reassignment-json-file", "-")
    started = run(zk_connect, *(w for w in again if w != "--resume"), "--wait", "--timeout", "0.1", stdin=text)
    assert started.exit_code == 1
    assert f"kt reassign --zookeeper {zk_connect} {' '.join(again)} < PLAN  # go on\n" in started.stderr
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        assert run(zk_connect, *again, stdin=text).exit_code == 0


@pytest.mark.spec("RSN-33X", "RSN-13")
def test_verify_can_wait_too_for_what_somebody_else_has_started(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    given = ("--reassignment-json-file", file)
    assert run(zk_connect, "--execute", *given, "--throttle", "5000").exit_code == 0
    early = run(zk_connect, "--verify", *given, "--wait", "--timeout", "0")
    assert early.exit_code == 1 and early.stdout.endswith("Reassignment of partition [t,0] is still in progress\n")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        done = run(zk_connect, "--verify", *given, "--watch")
    assert done.exit_code == 0 and done.stdout.endswith("completed successfully\nThrottle was removed.\n")
    assert config(seed, "brokers", "1") == {}


# --- batches -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-19X", "RSN-20X", "RSN-33X", "RSN-23X", "RSN-8", "RSN-15")
def test_a_plan_in_batches_is_followed_to_its_end_without_wait(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    seen: list[list[int]] = []

    def act(own: ZooKeeper) -> None:
        node = own.get(ReassignmentZnode.PATH)
        assert node is not None and (tmp_path / "plan.rollback.json").exists()
        seen.append([p.partition for p in ReassignmentZnode.decode(node.data)])
        nodes.reassign(own)

    flags = ("--execute", "--reassignment-json-file", file, "--batch-partitions", "4", "--throttle", "5000")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        result = run(zk_connect, *flags)
    assert result.exit_code == 0, result.output
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert nodes.assignment(seed, "t") == GOAL
    assert result.stdout.splitlines() == [  # no plan on the screen, and no warning: kt takes the throttle off itself
        "The throttle limit was set to 5000 B/s",
        "Successfully started reassignment of 9 partitions",
        *(f"Reassignment of partition [t,{p}] completed successfully" for p in range(9)),
        "Throttle was removed.",
    ]
    assert "3 batches, each sent when the one before it has ended" in result.stderr
    assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")
    assert (tmp_path / "plan.rollback.json").read_text() == way_back_text(GOAL, NINE)


@pytest.mark.spec("RSN-19X", "RSN-23X", "RSN-33X")
def test_past_the_deadline_no_further_batch_is_sent_and_the_rest_can_be_sent_later(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    flags = ("--execute", "--reassignment-json-file", file, "--batch-partitions", "5", "--wait", "--timeout", "0.1")
    result = run(zk_connect, *flags, "--throttle", "5000")
    assert result.exit_code == 1
    assert result.stdout.count("is still in progress") == 5 and "failed" not in result.stdout
    assert "not finished after 0.1 s: the reassignment goes on" in result.stderr
    assert "4 partitions were not sent" in result.stderr
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "5000")
    seed.delete(ReassignmentZnode.PATH)  # nothing of it was carried out
    again = run(zk_connect, *flags)
    assert again.exit_code == 1 and "continue it with --execute --resume" in again.stdout
    idle = run(zk_connect, "--execute", "--resume", "--reassignment-json-file", file, "--timeout", "0")
    assert idle.exit_code == 1 and config(seed, "brokers", "1") == {}
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        resumed = run(zk_connect, "--execute", "--resume", "--reassignment-json-file", file)
    assert resumed.exit_code == 0, resumed.output
    assert nodes.assignment(seed, "t") == GOAL
    assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")
    assert not (tmp_path / "plan.state.json").exists()


@pytest.mark.spec("RSN-19X", "RSN-20X", "COM-6X")
def test_every_batch_is_shown_and_checked_before_the_first_is_sent(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    flags = ("--execute", "--reassignment-json-file", file, "--max-json-size", "200")
    planned = run(zk_connect, *flags, "--dry-run").stdout.splitlines()
    sent = [json.loads(text.split(" ", 2)[2])["partitions"] for text in planned]
    assert [len(entries) for entries in sent] == [4, 4, 1]
    assert all(len(text.split(" ", 2)[2]) <= 200 for text in planned)
    bounds = ("--max-json-size", "600", "--batch-partitions", "4", "--zk-max-bytes", "1024")
    tight = run(zk_connect, "--execute", "--reassignment-json-file", file, *bounds)
    assert tight.exit_code == 2 and "give a smaller --max-json-size" in tight.stderr
    tiny = run(zk_connect, "--execute", "--reassignment-json-file", file, "--max-json-size", "64")
    assert tiny.exit_code == 2 and "t-0 alone needs 71 bytes" in tiny.stderr
    assert seed.get(ReassignmentZnode.PATH) is None and list(tmp_path.iterdir()) == [file]


@pytest.mark.spec("RSN-33X")
def test_how_far_it_is_is_told_beside_the_answer(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "ProgressLine", partial(ProgressLine, interval_s=0))
    file = plan_file(tmp_path / "plan.json", {0: (2,), 3: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--batch-partitions", "1")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        result = run(zk_connect, *flags)
    assert result.exit_code == 0, result.output
    assert re.search(r"^batch 1/2, [01]/2 partitions, [01]/2 in sync, ETA ", result.stderr, re.MULTILINE)
    assert "batch 2/2, 2/2 partitions, 2/2 in sync, ETA 0:00\n" in result.stderr
    assert "in sync" not in result.stdout


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize(("cut_short", "code"), [(BrokenPipeError, 1), (KeyboardInterrupt, 130)])
def test_whatever_ends_it_when_nothing_moves_leaves_no_throttle_on(
    seed: ZooKeeper,
    zk_connect: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut_short: type[BaseException],
    code: int,
) -> None:
    def show(_: RunOutput, p: Progress) -> None:
        if not p.left:
            raise cut_short

    monkeypatch.setattr(RunOutput, "progress", show)
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--wait")
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        result = run(zk_connect, *flags)
    assert result.exit_code == code
    assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")
    assert (tmp_path / "plan.state.json").exists()  # --resume and --verify find that all is done
