"""kt reassign as its users see it: exact lines, exit codes, files; ZooKeeper is real, the controller played by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.operations import throttles
from kafkatool.core.plan_files import plan_json
from kafkatool.core.znodes import ConfigZnode, ReassignmentZnode
from kafkatool.core.zookeeper import ZooKeeper
from tests.core.operations import cluster_nodes as nodes
from tests.core.operations.test_reassignment import NINE, config, plan

GOAL = {p: (3 - p % 2,) for p in range(9)}


def run(zk_connect: str, *args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(kt, ["reassign", "--zookeeper", zk_connect, *map(str, args)], input=stdin)


@pytest.fixture
def seed(zk: ZooKeeper) -> ZooKeeper:
    """The documents' topic of nine partitions on three brokers."""
    nodes.make_cluster(zk, topics={"t": NINE})
    return zk


def plan_file(path: Path, moves: Mapping[int, Sequence[int]], topic: str = "t") -> Path:
    path.write_text(plan_json(plan(moves, topic)))
    return path


# --- usage -----------------------------------------------------------------------------------------------------


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


# --- generate --------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-4", "RSN-2", "RSN-32X")
def test_generate_prints_five_lines_whose_last_is_a_plan(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    topics = '{"topics":[{"topic":"t"}],"version":1}'
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", "2,3", "--out", saved)
    result = run(zk_connect, *flags, stdin=topics)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "Current partition replica assignment",
        plan_json(plan(NINE)),
        "",
        "Proposed partition reassignment configuration",
    ]
    assert len(lines) == 5
    assert lines[4] in (plan_json(plan(GOAL)), plan_json(plan({p: (2 + p % 2,) for p in range(9)})))
    assert saved.read_text().strip() == lines[4]
    assert run(zk_connect, "--execute", "--reassignment-json-file", saved).exit_code == 0


@pytest.mark.spec("RSN-2", "RSN-17X")
@pytest.mark.parametrize(
    ("topics", "brokers", "message"),
    [
        ('{"topics":[{"topic":"t"}],"version":2}', "1", "Not supported version field value 2"),
        (
            '{"topics":[{"topic":"t"},{"topic":"t"}]}',
            "1",
            "List of topics to reassign contains duplicate entries: t",
        ),
        ('{"topics":[{"topic":"t"}]}', "1,2,1", "Broker list contains duplicate entries: 1"),
        (
            '{"topics":[{"topic":"t"}]}',
            "1,9",
            "Broker list contains brokers that are not registered: 9 (registered: 1,2,3)",
        ),
        ('{"topics":[{"topic":"x"}]}', "1", "List of topics to reassign contains topics that do not exist: x"),
    ],
)
def test_generate_refuses_before_any_output_of_a_plan(
    seed: ZooKeeper, zk_connect: str, topics: str, brokers: str, message: str
) -> None:
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", brokers)
    result = run(zk_connect, *flags, stdin=topics)
    assert result.exit_code == 1
    assert result.stdout == f"Partitions reassignment failed due to {message}\n"


@pytest.mark.spec("RSN-35X")
def test_generate_as_json(seed: ZooKeeper, zk_connect: str) -> None:
    topics = '{"topics":[{"topic":"t"}]}'
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", "2", "--output", "json")
    document = json.loads(run(zk_connect, *flags, stdin=topics).stdout)
    assert document["cluster_id"] == "the-cluster" and not document["errors"]
    assert [item["status"] for item in document["items"]] == [
        "noop" if NINE[p] == (2,) else "pending" for p in range(9)
    ]
    assert document["items"][0] == {"topic": "t", "partition": 0, "from": [1], "to": [2], "status": "pending"}


def generate(zk_connect: str, *flags: object) -> Result:
    source = ("--generate", "--topics-to-move-json-file", "-")
    return run(zk_connect, *source, *flags, stdin='{"topics":[{"topic":"t"}]}')


@pytest.mark.spec("RSN-26X", "RSN-4")
def test_the_minimal_strategy_shows_what_it_does_beside_the_five_lines(seed: ZooKeeper, zk_connect: str) -> None:
    result = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", "minimal")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Current partition replica assignment",
        plan_json(plan(NINE)),
        "",
        "Proposed partition reassignment configuration",
        plan_json(plan(NINE)),
    ]
    assert result.stderr.splitlines() == [
        "broker  replicas  leaders  in  out",
        "     1    3 -> 3   3 -> 3   0    0",
        "     2    3 -> 3   3 -> 3   0    0",
        "     3    3 -> 3   3 -> 3   0    0",
        "0 of 9 partitions change, 0 replicas to copy",
    ]


@pytest.mark.spec("RSN-28X", "RSN-29X")
def test_a_drained_broker_is_explained(seed: ZooKeeper, zk_connect: str) -> None:
    flags = ("--broker-list", "1,2,3", "--exclude-brokers", "1", "--explain")
    minimal = generate(zk_connect, *flags, "--strategy", "minimal")
    assert minimal.exit_code == 0, minimal.output
    assert len(minimal.stdout.splitlines()) == 5
    *partitions, _, first, second, third, total = minimal.stderr.splitlines()
    assert [text.split(" ")[0] for text in partitions] == ["[t,0]:", "[t,3]:", "[t,6]:"]
    assert all(text.endswith("  leaves 1") for text in partitions)
    assert first.split() == ["1", "3", "->", "0", "3", "->", "0", "0", "3"]
    assert sorted(row.split()[3] for row in (second, third)) == ["4", "5"]
    assert total == "3 of 9 partitions change, 3 replicas to copy"
    kafkas = generate(zk_connect, *flags)
    assert all(1 not in r["replicas"] for r in json.loads(kafkas.stdout.splitlines()[-1])["partitions"])


@pytest.mark.spec("RSN-28X")
@pytest.mark.parametrize("strategy", ["kafka", "minimal"])
def test_more_replicas_keep_those_there_are(seed: ZooKeeper, zk_connect: str, strategy: str) -> None:
    result = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", strategy, "--replication-factor", 2)
    grown = json.loads(result.stdout.splitlines()[-1])["partitions"]
    assert all(len(e["replicas"]) == 2 and e["replicas"][0] == NINE[e["partition"]][0] for e in grown)
    assert "9 of 9 partitions change, 9 replicas to copy" in result.stderr
    refused = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", strategy, "--replication-factor", 4)
    assert refused.exit_code == 1 and "replication factor: 4 larger than available brokers: 3" in refused.stdout


@pytest.mark.spec("RSN-28X")
def test_draining_every_broker_of_the_list_is_refused(seed: ZooKeeper, zk_connect: str) -> None:
    refused = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "2,1")
    assert (refused.exit_code, refused.stderr) == (1, "")
    assert "every broker of the broker list is excluded" in refused.stdout
    typo = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "x")
    assert typo.exit_code == 2 and "--exclude-brokers 'x' is not a list of broker ids" in typo.stderr
    gone = generate(
        zk_connect, "--broker-list", "1,2,9", "--exclude-brokers", "9"
    )  # dead and listed: drained all the same
    assert gone.exit_code == 0


@pytest.mark.spec("RSN-29X", "RSN-35X")
def test_an_explained_plan_as_json_has_reasons_and_an_item_for_each_broker(seed: ZooKeeper, zk_connect: str) -> None:
    flags = ("--broker-list", "2,3", "--strategy", "minimal", "--explain", "--output")
    items = json.loads(generate(zk_connect, *flags, "json").stdout)["items"]
    assert items[0]["reason"] == "leaves 1" and items[0]["copies_to"] == items[0]["to"]
    assert items[1] == {
        "topic": "t",
        "partition": 1,
        "from": [2],
        "to": [2],
        "status": "noop",
        "reason": None,
        "copies_to": [],
    }
    assert items[9] == {
        "broker": 1,
        "replicas_before": 3,
        "replicas_after": 0,
        "leaders_before": 3,
        "leaders_after": 0,
        "incoming": 0,
        "outgoing": 3,
        "copied_bytes": 0,
    }
    assert [item["broker"] for item in items[9:]] == [1, 2, 3]
    assert items[10]["copied_bytes"] is None  # no broker listens in this test
    heading, *rows = generate(zk_connect, *flags, "tsv").stdout.splitlines()
    assert heading.split("\t")[:7] == ["TOPIC", "PARTITION", "FROM", "TO", "STATUS", "REASON", "COPIES_TO"]
    assert len(rows) == 12


# --- execute and verify ----------------------------------------------------------------------------------------


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


@pytest.mark.spec("RSN-33X", "RSN-23X")
def test_past_the_deadline_it_exits_1_and_says_how_to_go_on(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--wait", "--timeout", "0.1")
    result = run(zk_connect, *flags)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "Reassignment of partition [t,0] is still in progress"
    assert "not finished after 0.1 s: the reassignment goes on" in result.stderr
    assert f"--execute --resume --reassignment-json-file {file} goes on and, when all is done," in result.stderr
    assert seed.get(ReassignmentZnode.PATH) is not None and config(seed, "brokers", "1")


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


# --- batches ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-19X", "RSN-20X", "RSN-33X", "RSN-23X")
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
    assert result.stdout.count("completed successfully") == 9 and result.stdout.endswith("Throttle was removed.\n")
    assert "3 batches, each sent when the one before it has ended" in result.stderr
    assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")
    assert (tmp_path / "plan.rollback.json").read_text() == plan_json(plan(NINE)) + "\n"


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


@pytest.mark.spec("RSN-19X", "RSN-20X")
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
