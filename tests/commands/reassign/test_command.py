"""kt reassign as its users see it: exact lines, exit codes, files; ZooKeeper is real, the controller played by hand."""

import json
from pathlib import Path

import pytest

from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode
from tests.commands.reassign.runner import GOAL, plan_file, run
from tests.core.operations.reassignment.plans import NINE, config, plan
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("RSN-1", "COM-3X")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Command must include exactly one action: --generate, --execute or --verify"),
        (["--execute", "--verify"], "Command must include exactly one action: --generate, --execute or --verify"),
        (
            ["--generate", "--topics-to-move-json-file", "x"],
            "If --generate option is used, command must include both --topics-to-move-json-file and --broker-list",
        ),
        (["--verify"], "If --verify option is used, command must include --reassignment-json-file"),
        (["--execute"], "If --execute option is used, command must include --reassignment-json-file"),
        (
            ["--execute", "--reassignment-json-file", "x", "--broker-list", "1"],
            "--broker-list can't be used with --execute",
        ),
        (["--list", "--explain"], "--explain can't be used with --list"),
        (["--list", "--throttle", "5000"], "--throttle can't be used with --list"),
        (["--execute", "--reassignment-json-file", "x", "--timeout", "1"], "--timeout needs --wait"),
        (
            ["--execute", "--resume", "--reassignment-json-file", "x", "--throttle", "5000"],
            "--throttle can't be used with --resume",
        ),
    ],
)
def test_usage_errors_name_the_flags_and_exit_2(flags: list[str], message: str) -> None:
    result = run("127.0.0.1:1", *flags)
    assert result.exit_code == 2
    assert message in result.stderr and not result.stdout


@pytest.mark.spec("RSN-17X", "RSN-3", "COM-3X")
def test_bad_json_is_exit_2_with_line_and_column(tmp_path: Path) -> None:
    bad = tmp_path / "plan.json"
    bad.write_text("{\n “version”:1}")
    for mode in ("--execute", "--verify"):
        result = run("127.0.0.1:1", mode, "--reassignment-json-file", bad)
        assert result.exit_code == 2 and not result.stdout
        assert f"{bad}:2:2: not JSON: typographic quote" in result.stderr
    result = run("127.0.0.1:1", "--generate", "--topics-to-move-json-file", bad, "--broker-list", "1")
    assert result.exit_code == 2 and not result.stdout
    missing = run("127.0.0.1:1", "--verify", "--reassignment-json-file", tmp_path / "no.json")
    assert missing.exit_code == 2 and "No such file" in missing.stderr


# --- execute, verify, list ---------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-8", "RSN-9", "RSN-12", "RSN-16", "RSN-18X", "RSN-21X", "RSN-25X")
def test_the_documents_run_from_execute_to_verify(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    result = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "Current partition replica assignment\n\n"
        f"{plan_json(plan(NINE))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        f"Successfully started reassignment of partitions {plan_json(plan(GOAL))}\n"
    )
    assert "4 partitions of the plan have the planned replicas already" in result.stderr
    assert (tmp_path / "plan.rollback.json").read_text() == plan_json(plan(NINE)) + "\n"
    node = seed.get(ReassignmentZnode.PATH)
    assert node is not None and node.data.decode() == plan_json(plan(GOAL))

    running = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert running.exit_code == 1
    assert running.stdout.splitlines() == [
        "Status of partition reassignment:",
        *(f"Reassignment of partition [t,{p}] is still in progress" for p in range(9)),
    ]
    nodes.reassign(seed)
    done = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "Status of partition reassignment:",
        *(f"Reassignment of partition [t,{p}] completed successfully" for p in range(9)),
    ]


@pytest.mark.spec("RSN-12", "COM-9X")
def test_errors_come_first_and_name_both_lists(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (1,), 1: (3,), 99: (1, 2)})
    result = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Status of partition reassignment:",
        "ERROR: Assigned replicas (2) don't match the list of replicas for reassignment (3) for partition [t,1]",
        "ERROR: Assigned replicas () don't match the list of replicas for reassignment (1,2) for partition [t,99]",
        "Reassignment of partition [t,0] completed successfully",
        "Reassignment of partition [t,1] failed",
        "Reassignment of partition [t,99] failed",
    ]
    dashed = run(zk_connect, "--verify", "--reassignment-json-file", file, "--partition-form", "dash")
    assert "Reassignment of partition t-0 completed successfully" in dashed.stdout


@pytest.mark.spec("RSN-7", "COM-3X")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "Partition reassignment data file is empty"),
        (plan_json(plan({0: ()})), "Partition replica list cannot be empty"),
        (plan_json(plan({9: (1,)})), "The proposed assignment contains non-existent partitions: [t,9]"),
        (plan_json(plan({0: (77,)})), "The proposed assignment contains non-existent brokerIDs: 77"),
    ],
)
def test_a_refused_plan_writes_nothing(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    result = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert (result.exit_code, result.stdout) == (1, f"Partitions reassignment failed due to {message}\n")
    assert seed.get(ReassignmentZnode.PATH) is None
    assert list(tmp_path.iterdir()) == [file]
    as_json = run(zk_connect, "--execute", "--reassignment-json-file", file, "--output", "json")
    assert json.loads(as_json.stdout)["errors"][0]["message"] == message and as_json.exit_code == 1


@pytest.mark.spec("RSN-10")
def test_while_another_runs_nothing_starts_and_only_a_throttle_changes(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    assert run(zk_connect, "--execute", "--reassignment-json-file", file).exit_code == 0
    before = seed.get(ReassignmentZnode.PATH)
    again = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert (again.exit_code, again.stdout) == (1, "There is an existing assignment running.\n")
    throttled = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "4000")
    assert throttled.exit_code == 0
    assert throttled.stdout == "There is an existing assignment running.\nThe throttle limit was set to 4000 B/s\n"
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "4000")
    assert config(seed, "topics", "t") is None
    assert seed.get(ReassignmentZnode.PATH) == before


@pytest.mark.spec("RSN-13", "RSN-14", "RSN-15")
def test_a_throttle_is_announced_and_goes_with_the_verify_that_finds_all_done(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "2000")
    assert result.stdout.splitlines()[-3:] == [
        "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed. You can also alter the throttle by rerunning the Execute command passing a new value.",
        "The throttle limit was set to 2000 B/s",
        f"Successfully started reassignment of partitions {plan_json(plan({0: (2,)}))}",
    ]
    assert "Throttle" not in run(zk_connect, "--verify", "--reassignment-json-file", file).stdout
    nodes.reassign(seed)
    kept = run(zk_connect, "--verify", "--reassignment-json-file", file, "--preserve-throttles")
    assert "Throttle" not in kept.stdout and config(seed, "brokers", "1")
    done = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert done.stdout.splitlines()[-1] == "Throttle was removed."
    assert config(seed, "topics", "t") == {} == config(seed, "brokers", "2")
    assert "Throttle" not in run(zk_connect, "--verify", "--reassignment-json-file", file).stdout


@pytest.mark.spec("RSN-18X")
def test_skip_unchanged_may_leave_nothing_to_do(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (1,), 1: (2,)})
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--skip-unchanged")
    assert result.exit_code == 0 and not result.stdout
    assert seed.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-21X")
def test_without_a_rollback_file_nothing_is_written(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000")
    result = run(zk_connect, *flags, "--rollback-file", tmp_path / "nodir" / "x.json")
    assert result.exit_code == 1 and "cannot write" in result.stdout
    assert seed.get(ReassignmentZnode.PATH) is None and config(seed, "brokers", "1") is None
    named = run(zk_connect, *flags, "--rollback-file", tmp_path / "x.json")
    assert named.exit_code == 0
    assert (tmp_path / "x.json").read_text() == plan_json(plan({0: (1,)})) + "\n"


@pytest.mark.spec("COM-6X")
def test_a_dry_run_shows_every_write_and_makes_none(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--dry-run")
    lines = run(zk_connect, *flags).stdout.splitlines()
    assert len(lines) == 2 * 4 + 1  # three brokers and a topic, each with its notification; the reassignment
    assert lines[-1] == f"create /admin/reassign_partitions {plan_json(plan({0: (2,)}))}"
    assert lines[1].startswith("create sequential /config/changes/config_change_ ")
    assert seed.get(ReassignmentZnode.PATH) is None and config(seed, "brokers", "1") is None
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.spec("COM-5X", "COM-10X")
def test_a_wrong_cluster_or_too_large_a_plan_is_refused(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    other = run(zk_connect, "--execute", "--reassignment-json-file", file, "--cluster-id", "other")
    assert other.exit_code == 1 and "other" in other.stdout and "the-cluster" in other.stdout
    nodes_of_many = dict.fromkeys(range(9), (1, 2, 3))
    large = plan_file(tmp_path / "large.json", nodes_of_many)
    small = run(zk_connect, "--execute", "--reassignment-json-file", large, "--zk-max-bytes", "1024")
    assert small.exit_code == 0, small.output  # 9 entries fit into 1024 bytes
    seed.delete(ReassignmentZnode.PATH)
    seed.create("/brokers/topics/" + "x" * 249, b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1],"3":[1]}}')
    wide = plan_file(tmp_path / "wide.json", dict.fromkeys(range(4), (2,)), "x" * 249)
    flags = ("--execute", "--reassignment-json-file", wide, "--zk-max-bytes", "1024", "--throttle", "5000")
    refused = run(zk_connect, *flags)
    assert refused.exit_code == 1 and "limit of 1024 bytes" in refused.stdout
    assert config(seed, "brokers", "1") == {}
    assert seed.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-21X")
def test_a_plan_that_is_started_again_keeps_the_way_back_of_its_first_run(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    rollback = tmp_path / "plan.rollback.json"
    execute = ("--execute", "--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (2,), 1: (3,)}))
    assert run(zk_connect, *execute).stderr == f"rollback plan: {rollback}\n"
    first = rollback.read_text()
    nodes.reassign(seed)
    again = run(zk_connect, *execute)
    assert f"rollback plan: {rollback}, as an earlier run saved it: this run changes nothing\n" in again.stderr
    assert rollback.read_text() == first
    nodes.reassign(seed)
    plan_file(tmp_path / "plan.json", {0: (1,), 1: (3,)})
    other = run(zk_connect, *execute)
    assert f"rollback plan: {rollback}; the one of an earlier run is kept as {rollback}.1\n" in other.stderr
    assert (tmp_path / "plan.rollback.json.1").read_text() == first


@pytest.mark.spec("RSN-36X")
def test_verify_rollback_compares_with_what_was_there_before(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    verify = ("--verify", "--reassignment-json-file", file, "--rollback")
    missing = run(zk_connect, *verify)
    assert missing.exit_code == 2 and "plan.rollback.json: No such file" in missing.stderr
    run(zk_connect, "--execute", "--reassignment-json-file", file)
    nodes.reassign(seed)
    moved = run(zk_connect, *verify)
    assert moved.exit_code == 1 and moved.stdout.count("failed") == 5 and moved.stdout.count("successfully") == 4
    run(zk_connect, "--execute", "--reassignment-json-file", tmp_path / "plan.rollback.json")
    nodes.reassign(seed)
    undone = run(zk_connect, *verify)
    assert undone.exit_code == 0 and undone.stdout.count("completed successfully") == 9
    other = plan_file(tmp_path / "other.json", {99: (1,)})
    assert (
        "is not the rollback of this plan, which does not have [t,99]"
        in run(zk_connect, *verify, "--rollback-file", other).stdout
    )
    needless = run(zk_connect, *verify[:3], "--rollback-file", other)
    assert needless.exit_code == 2 and "--rollback-file needs --rollback" in needless.stderr


@pytest.mark.spec("RSN-38X", "RSN-35X")
def test_list(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nothing = run(zk_connect, "--list")
    assert (nothing.exit_code, nothing.stdout) == (0, "No partition reassignments found.\n")
    run(zk_connect, "--execute", "--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (2, 3)}))
    assert run(zk_connect, "--list").stdout == (
        "Current partition reassignments:\n[t,0]: replicas: 1. target: 2,3. isr: 1.\n"
    )
    (item,) = json.loads(run(zk_connect, "--list", "--output", "json").stdout)["items"]
    assert item == {"topic": "t", "partition": 0, "from": [1], "to": [2, 3], "status": "in_progress", "isr": [1]}
    tsv = run(zk_connect, "--list", "--output", "tsv").stdout.splitlines()
    assert tsv == ["TOPIC\tPARTITION\tFROM\tTO\tSTATUS\tISR\tERROR\tMESSAGE", "t\t0\t1\t2,3\tin_progress\t1\t\t"]
