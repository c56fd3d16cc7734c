"""kt reassign as its users see it: exact lines, exit codes, files; ZooKeeper is real, the controller played by hand."""

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from kafkatool.commands.reassign.command import reassign
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.operations.reassignment import replica_sizes, throttles
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import Check, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ClusterIdZnode, ConfigChangeZnode, ReassignmentZnode
from tests.commands.reassign.runner import GOAL, plan_file, run
from tests.core.operations.reassignment import test_replica_sizes
from tests.core.operations.reassignment.plans import NINE, config, plan, tp, way_back_text
from tests.core.operations.verification.fake_broker import FakeBroker, fake_cluster
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import link_of

MODES = ("--generate", "--execute", "--verify", "--cancel", "--list")


@pytest.mark.spec("RSN-1", "COM-3X")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Command must include exactly one action: --generate, --execute or --verify (or kt's --cancel, --list)"),
        *[
            (list(pair), "Command must include exactly one action: --generate, --execute or --verify")
            for pair in itertools.permutations(MODES, 2)
        ],
        (["--cancel"], "If --cancel option is used, command must include --reassignment-json-file"),
        (
            ["--generate", "--topics-to-move-json-file", "x"],
            "If --generate option is used, command must include both --topics-to-move-json-file and --broker-list",
        ),
        (
            ["--generate", "--broker-list", "1"],
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
        (["--list", "--throttle", "0"], "--throttle can't be used with --list"),
        (
            ["--execute", "--throttle", "50MB"],
            "'50MB' is not a plain number of bytes: write 50000000, or 52428800 for 50 MiB",
        ),
        (["--list", "--timeout", "0"], "--timeout can't be used with --list"),
        (
            ["--verify", "--reassignment-json-file", "x", "--batch-partitions", "0"],
            "--batch-partitions can't be used with --verify",
        ),
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


FLAGS: Sequence[tuple[tuple[str, ...], tuple[str, ...]]] = [  # each with the modes that take it
    (("--topics-to-move-json-file", "x"), ("--generate",)),
    (("--broker-list", "1"), ("--generate",)),
    (("--disable-rack-aware",), ("--generate",)),
    (("--reassignment-json-file", "x"), ("--execute", "--verify", "--cancel")),
    (("--throttle", "5000"), ("--execute",)),
    (("--preserve-throttles",), ("--verify", "--cancel")),
    (("--strategy", "minimal"), ("--generate",)),
    (("--exclude-brokers", "1"), ("--generate",)),
    (("--replication-factor", "2"), ("--generate",)),
    (("--explain",), ("--generate",)),
    (("--out", "x"), ("--generate",)),
    (("--skip-unchanged",), ("--execute",)),
    (("--resume",), ("--execute",)),
    (("--max-json-size", "512000"), ("--execute",)),
    (("--batch-partitions", "0"), ("--execute",)),
    (("--force",), ("--execute", "--cancel")),
    (("--rollback",), ("--verify", "--cancel")),
    (("--rollback-file", "x"), ("--execute", "--verify", "--cancel")),
    (("--wait",), ("--execute", "--verify")),
    (("--timeout", "0"), ("--execute", "--verify", "--cancel")),
    (("--dry-run",), ("--execute", "--verify", "--cancel")),
    (("--additional",), ()),  # by --bootstrap-server alone, as the next ones
    (("--disallow-replication-factor-change",), ()),
    (("--replica-alter-log-dirs-throttle", "5000"), ()),
]


@pytest.mark.spec("RSN-1")
def test_no_flag_of_a_mode_is_left_out_here() -> None:
    own = {option.opts[0] for option in reassign.params if option.name != "modes"}
    of_every_mode = {
        *("--zookeeper", "--zk-auth-file", "--zk-tls-config-file", "--zk-set-acl", "--zk-max-bytes"),
        *("--bootstrap-server", "--command-config", "--listener", "--context", "--cluster-id"),
        *("--bootstrap-controller", "--partition-form", "--output"),
    }
    assert {flag[0] for flag, _ in FLAGS} == own - of_every_mode


@pytest.mark.spec("RSN-1", "COM-3X")
@pytest.mark.parametrize(("flag", "modes"), FLAGS)
def test_a_flag_is_taken_by_its_modes_alone(flag: tuple[str, ...], modes: tuple[str, ...]) -> None:
    for mode in MODES:
        result = run("127.0.0.1:1", mode, *flag)
        assert (result.exit_code, result.stdout) == (2, "")  # for another reason where it is taken
        assert (f"{flag[0]} can't be used with {mode}" in result.stderr) is (mode not in modes), mode


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
    assert f"{bad}:2:2: not JSON: typographic quote" in result.stderr
    missing = run("127.0.0.1:1", "--verify", "--reassignment-json-file", tmp_path / "no.json")
    assert missing.exit_code == 2 and "No such file" in missing.stderr


# --- execute, verify, list ---------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-8", "RSN-9", "RSN-12", "RSN-16", "RSN-18X", "RSN-21X", "RSN-22X", "RSN-25X", "COM-2", "COM-3X")
def test_the_documents_run_from_execute_to_verify(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    before = nodes.tree(seed)
    result = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert result.exit_code == 0, result.output
    assert {path for path, node in nodes.tree(seed).items() if before.get(path) != node} == {ReassignmentZnode.PATH}
    assert result.stdout == (
        "Current partition replica assignment\n\n"
        f"{plan_json(plan(NINE))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        f"Successfully started reassignment of partitions {plan_json(plan(GOAL))}\n"
    )
    assert "4 partitions of the plan have the planned replicas already" in result.stderr
    assert (tmp_path / "plan.rollback.json").read_text() == way_back_text(GOAL, NINE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "plan.rollback.json"], "nobody follows it"
    node = seed.get(ReassignmentZnode.PATH)
    assert node is not None and (node.data.decode(), node.version) == (plan_json(plan(GOAL)), 0)

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


@pytest.mark.spec("RSN-12", "RSN-25X", "RSN-35X", "COM-9X")
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
    document = json.loads(run(zk_connect, "--verify", "--reassignment-json-file", file, "--output", "json").stdout)
    assert [item["status"] for item in document["items"]] == ["completed", "failed", "failed"]
    assert document["items"][1] == {"topic": "t", "partition": 1, "from": [2], "to": [3], "status": "failed"}
    assert list(document["items"][1]) == ["topic", "partition", "from", "to", "status"]
    dashed = run(zk_connect, "--verify", "--reassignment-json-file", file, "--partition-form", "dash")
    assert "Reassignment of partition t-0 completed successfully" in dashed.stdout


@pytest.mark.spec("RSN-5", "RSN-7", "COM-3X")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "Partition reassignment data file is empty"),
        ('{"version":1,"partitions":[]}', "Partition reassignment data file is empty"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[2]},{"topic":"t","partition":0,"replicas":[3]}]}',
            "Partition reassignment contains duplicate topic partitions: [t,0]",
        ),
        (
            json.dumps({"partitions": [{"topic": "t", "partition": p, "replicas": [2]} for p in (3, 1, 0, 1, 3)]}),
            "Partition reassignment contains duplicate topic partitions: [t,1],[t,3]",
        ),
        (
            plan_json(plan({0: (2, 2), 1: (3, 1, 3, 1)})),
            "Partition replica lists may not contain duplicate entries: [t,0] contains multiple entries for 2. "
            "[t,1] contains multiple entries for 3,1",
        ),
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
    before = nodes.tree(seed)
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "5000")
    assert (result.exit_code, result.stdout) == (1, f"Partitions reassignment failed due to {message}\n")
    assert nodes.tree(seed) == before
    assert list(tmp_path.iterdir()) == [file]
    as_json = run(zk_connect, "--execute", "--reassignment-json-file", file, "--output", "json")
    assert json.loads(as_json.stdout)["errors"][0]["message"] == message and as_json.exit_code == 1


@pytest.mark.spec("RSN-5", "COM-3X")
def test_replicas_in_a_log_directory_of_choice_are_refused(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [2], "log_dirs": ["/data"]}
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    before = nodes.tree(seed)
    refused = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert refused.exit_code == 1 and 'log_dirs other than "any"' in refused.stdout
    assert nodes.tree(seed) == before
    file.write_text(json.dumps({"version": 1, "partitions": [{**entry, "log_dirs": ["any"]}]}))
    assert run(zk_connect, "--execute", "--reassignment-json-file", file).exit_code == 0
    node = seed.get(ReassignmentZnode.PATH)
    assert node is not None and node.data.decode() == plan_json(plan({0: (2,)}))


@pytest.mark.spec("RSN-7", "RSN-9", "RSN-31X", "Z-21")
def test_a_reassignment_that_appears_after_the_checks_is_named_and_left_alone(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ReassignmentZnode.encode(plan({3: (3,), 1: (1,)}))
    create = ZooKeeper.create

    def after_them(self: ZooKeeper, path: str, data: bytes = b"", **more: bool) -> str:
        if path == ReassignmentZnode.PATH and seed.get(path) is None:
            create(seed, path, theirs)
        return create(self, path, data, **more)

    monkeypatch.setattr(ZooKeeper, "create", after_them)
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "5000")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "Partitions reassignment failed due to Partition reassignment currently in progress for [t,1],[t,3]. "
        "Aborting operation"
    )
    assert "Successfully started" not in result.stdout
    node = seed.get(ReassignmentZnode.PATH)
    assert node is not None and (node.data, node.version) == (theirs, 0)
    assert config(seed, "brokers", "1") == {} == config(seed, "topics", "t")


@pytest.mark.spec("SEC-25")
@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["execute", "dry run"])
def test_what_may_not_be_written_is_told_before_anything_is(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    link_of(seed).client.set_acls("/admin", [make_digest_acl("someone", "else", all=True), *READ_ACL_UNSAFE])
    before = nodes.tree(seed)
    refused = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "2000", *flags)
    assert refused.exit_code == 1
    assert "no permission for znode /admin/reassign_partitions" in refused.output
    assert nodes.tree(seed) == before, "not the throttles, either, which come first"


@pytest.mark.spec("RSN-10", "Z-21")
def test_while_another_runs_nothing_starts_and_only_a_throttle_changes(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    assert run(zk_connect, "--execute", "--reassignment-json-file", file).exit_code == 0
    before, all_before = seed.get(ReassignmentZnode.PATH), nodes.tree(seed)
    again = run(zk_connect, "--execute", "--reassignment-json-file", file)
    assert (again.exit_code, again.stdout) == (1, "There is an existing assignment running.\n")
    wrong = plan_file(tmp_path / "wrong.json", {0: (77,)})
    for throttle in (("--throttle", "4000"), ()):
        checked = run(zk_connect, "--execute", "--reassignment-json-file", wrong, *throttle)
        assert checked.exit_code == 1
        assert checked.stdout == (
            "Partitions reassignment failed due to The proposed assignment contains non-existent brokerIDs: 77\n"
        )
    assert nodes.tree(seed) == all_before
    throttled = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "4000")
    assert throttled.exit_code == 0
    assert throttled.stdout == "There is an existing assignment running.\nThe throttle limit was set to 4000 B/s\n"
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "4000")
    run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "6000")
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "6000")
    assert config(seed, "topics", "t") is None
    assert seed.get(ReassignmentZnode.PATH) == before
    changed = {path for path, node in nodes.tree(seed).items() if all_before.get(path) != node}
    told = {path for path in changed if path.startswith(ConfigChangeZnode.PREFIX)}
    assert changed - told == {f"/config/brokers/{broker}" for broker in (1, 2, 3)}, "of all brokers of the plan's topic"
    assert (tmp_path / "plan.rollback.json").read_text() == way_back_text({0: (2,)}, {0: (1,)})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "plan.rollback.json", "wrong.json"]


@pytest.mark.spec("RSN-8", "RSN-13", "RSN-14", "RSN-15")
def test_a_throttle_is_announced_and_goes_with_the_verify_that_finds_all_done(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "2000")
    assert result.stdout.splitlines() == [
        "Current partition replica assignment",
        "",
        plan_json(plan({0: (1,)})),
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed. You can also alter the throttle by rerunning the Execute command passing a new value.",
        "The throttle limit was set to 2000 B/s",
        f"Successfully started reassignment of partitions {plan_json(plan({0: (2,)}))}",
    ]
    assert "Throttle" not in run(zk_connect, "--verify", "--reassignment-json-file", file).stdout
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "2000")
    nodes.reassign(seed)
    partly = plan_file(tmp_path / "partly.json", {0: (2,), 1: (3,)})
    half = run(zk_connect, "--verify", "--reassignment-json-file", partly)
    assert half.exit_code == 1 and "completed successfully" in half.stdout and "failed" in half.stdout
    assert "Throttle" not in half.stdout and config(seed, "topics", "t")
    assert config(seed, "brokers", "1") == dict.fromkeys(throttles.RATES, "2000")
    kept = run(zk_connect, "--verify", "--reassignment-json-file", file, "--preserve-throttles")
    assert "Throttle" not in kept.stdout and config(seed, "brokers", "1")
    done = run(zk_connect, "--verify", "--reassignment-json-file", file)
    assert done.stdout.splitlines()[-1] == "Throttle was removed."
    assert config(seed, "topics", "t") == {} == config(seed, "brokers", "2")
    assert "Throttle" not in run(zk_connect, "--verify", "--reassignment-json-file", file).stdout


@pytest.mark.spec("RSN-15", "RSN-24X")
@pytest.mark.parametrize(("rate", "rates"), [("0", dict.fromkeys(throttles.RATES, "0")), ("-1", None)])
def test_a_throttle_of_0_is_one_and_of_minus_1_is_none(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, rate: str, rates: dict[str, str] | None
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", rate, "--force")
    assert result.exit_code == 0 and config(seed, "brokers", "1") == rates
    assert [text[:16] for text in result.stdout.splitlines()[5:-1]] == ["Warning: You mus", "The throttle lim"] * bool(
        rates
    )


@pytest.mark.spec("RSN-24X")
def test_the_time_that_a_throttle_means_is_told_where_brokers_tell_sizes(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_sizes, "TIMEOUT_MS", 60_000)  # one that is only slow is not silent
    monkeypatch.setattr(test_replica_sizes, "SIZES", {1: {tp(0): 6_000_000}, 2: {}, 3: {}})
    monkeypatch.setattr(FakeBroker, "answer", lambda broker, key, *_: test_replica_sizes.sized(broker, key))
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    execute = ("--execute", "--reassignment-json-file", file, "--dry-run", "--force", "--throttle")
    with fake_cluster({1: {}, 2: {}, 3: {}}) as fakes:
        for broker, port in fakes[1].addresses.items():
            info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "127.0.0.1", port),))
            seed.set(BrokerZnode.path(broker), BrokerZnode.encode(info, 0), -1)
        told = [run(zk_connect, *execute, rate).stderr.splitlines()[:-1] for rate in (50_000, 10, 1_000_000, 0)]
    said = "under this throttle broker 2 takes about {} to copy 5.7 MiB"
    warning = f"warning: {said.format('7 days')}, and longer for what is written meanwhile"
    assert told == [[said.format("2:00")], [warning], [], []]  # a few seconds are not worth a word


@pytest.mark.spec("RSN-18X")
def test_skip_unchanged_may_leave_nothing_to_do(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (1,), 1: (2,)})
    before = nodes.tree(seed)
    flags = ("--execute", "--reassignment-json-file", file, "--skip-unchanged", "--throttle", "5000")
    result = run(zk_connect, *flags)
    assert result.exit_code == 0 and not result.stdout
    assert nodes.tree(seed) == before


@pytest.mark.spec("RSN-21X")
def test_without_a_rollback_file_nothing_is_written(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000")
    before = nodes.tree(seed)
    result = run(zk_connect, *flags, "--rollback-file", tmp_path / "nodir" / "x.json")
    assert result.exit_code == 1 and "cannot write" in result.stdout
    assert nodes.tree(seed) == before
    named = run(zk_connect, *flags, "--rollback-file", tmp_path / "x.json")
    assert named.exit_code == 0
    assert (tmp_path / "x.json").read_text() == way_back_text({0: (2,)}, {0: (1,)})


@pytest.mark.spec("RSN-21X")
def test_the_rollback_plan_is_on_the_disk_before_anything_is_written_to_zookeeper(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    rollback = tmp_path / "plan.rollback.json"
    done: list[str] = []
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name.startswith(rollback.name):
            assert path.read_text() == way_back_text({0: (2,)}, {0: (1,)})
            done.append("content")
        elif path == tmp_path and rollback.exists() and "name" not in done:
            done.append("name")

    def writing(write: Callable[..., object]) -> Callable[..., object]:
        def written(*args: object, **more: object) -> object:
            ops = args[1] if isinstance(args[1], list) else []
            if not any(isinstance(op, Check) and op.path == "/" for op in ops):  # only asks whether it may (SEC-25)
                done.append("write")
            return write(*args, **more)

        return written

    monkeypatch.setattr(os, "fsync", syncing)
    for name in ("create", "set", "commit", "commit_many"):
        monkeypatch.setattr(ZooKeeper, name, writing(getattr(ZooKeeper, name)))
    result = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", "5000")
    assert result.exit_code == 0, result.output
    assert done[:3] == ["content", "name", "write"] and done.count("write") > 8


@pytest.mark.spec("COM-6X")
def test_a_dry_run_of_verify_shows_which_throttles_would_go(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    flags = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (2,)}))
    assert run(zk_connect, "--execute", *flags, "--throttle", "5000").exit_code == 0
    nodes.reassign(seed)
    before = nodes.tree(seed)
    lines = run(zk_connect, "--verify", *flags, "--dry-run").stdout.splitlines()
    wanted = [(f"brokers/{broker}", '{"version":1,"config":{}}') for broker in (1, 2, 3)]
    assert lines == set_and_told(*wanted, ("topics/t", '{"version":1,"config":{}}'))
    assert nodes.tree(seed) == before
    assert run(zk_connect, "--verify", *flags).exit_code == 0
    assert lines == written(before, nodes.tree(seed))


def set_and_told(*configs: tuple[str, str], verb: str = "set") -> list[str]:
    """Return the lines of a dry run that writes those configs, each with its notification."""
    told = 'create sequential /config/changes/config_change_ {{"version":2,"entity_path":"{}"}}'
    return [line for path, data in configs for line in (f"{verb} /config/{path} {data}", told.format(path))]


def written(before: Mapping[str, tuple[bytes, int]], after: Mapping[str, tuple[bytes, int]]) -> list[str]:
    """Return what differs as a dry run tells it, each config with its notification after it and the others last."""
    changed = {path: data.decode() for path, (data, _) in after.items() if before.get(path) != after[path]}
    notices = [data for path, data in sorted(changed.items()) if path.startswith(ConfigChangeZnode.PREFIX)]
    lines = []
    for entity in (json.loads(notice)["entity_path"] for notice in notices):
        path = f"/config/{entity}"
        lines += set_and_told((entity, changed.pop(path)), verb="set" if path in before else "create")
    return lines + [
        f"{'set' if path in before else 'create'} {path} {data}"
        for path, data in changed.items()
        if not path.startswith(ConfigChangeZnode.PATH)
    ]


@pytest.mark.spec("COM-6X")
def test_a_dry_run_shows_every_write_and_makes_none(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    before = nodes.tree(seed)
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000", "--dry-run")
    lines = run(zk_connect, *flags).stdout.splitlines()
    assert len(lines) == 2 * 4 + 1  # three brokers and a topic, each with its notification; the reassignment
    assert lines[-1] == f"create /admin/reassign_partitions {plan_json(plan({0: (2,)}))}"
    assert nodes.tree(seed) == before
    assert list(tmp_path.iterdir()) == [file]
    assert run(zk_connect, *(flag for flag in flags if flag != "--dry-run")).exit_code == 0
    assert lines == written(before, nodes.tree(seed))


@pytest.mark.spec("COM-5X", "COM-10X", "RSN-7")
def test_a_wrong_cluster_or_too_large_a_plan_is_refused(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", GOAL)
    before = nodes.tree(seed)
    for mode in ("--execute", "--verify", "--cancel"):
        other = run(zk_connect, mode, "--reassignment-json-file", file, "--cluster-id", "other")
        assert other.exit_code == 1 and "other" in other.stdout and "the-cluster" in other.stdout
        assert other.stdout.startswith("Partitions reassignment failed due to --cluster-id is other, but ")
    assert nodes.tree(seed) == before
    seed.delete(ClusterIdZnode.PATH)
    for mode in ("--execute", "--verify", "--cancel"):
        without = run(zk_connect, mode, "--reassignment-json-file", file, "--cluster-id", "the-cluster")
        assert without.exit_code == 1
        assert "--cluster-id is the-cluster, but" in without.stdout and "no id" in without.stdout
    assert nodes.tree(seed) == {path: node for path, node in before.items() if path != ClusterIdZnode.PATH}
    nodes_of_many = dict.fromkeys(range(9), (1, 2, 3))
    large = plan_file(tmp_path / "large.json", nodes_of_many)
    small = run(zk_connect, "--execute", "--reassignment-json-file", large, "--zk-max-bytes", "1024")
    assert small.exit_code == 0, small.output  # 9 entries fit into 1024 bytes
    seed.delete(ReassignmentZnode.PATH)
    seed.create("/brokers/topics/" + "x" * 249, b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1],"3":[1]}}')
    wide = plan_file(tmp_path / "wide.json", dict.fromkeys(range(4), (2,)), "x" * 249)
    flags = ("--execute", "--reassignment-json-file", wide, "--zk-max-bytes", "1024", "--throttle", "5000")
    refused = run(zk_connect, *flags)
    assert refused.exit_code == 1
    assert refused.stdout.splitlines()[-1].startswith("Partitions reassignment failed due to ")
    assert re.search(r"needs a packet of 1\d{3} bytes, over ZooKeeper's limit of 1024 bytes", refused.stdout)
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


@pytest.mark.spec("RSN-21X", "RSN-37X")
@pytest.mark.parametrize("flags", [(), ("--skip-unchanged",)])
def test_a_plan_of_which_a_part_was_given_up_is_started_again_and_keeps_the_way_back_of_the_other(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    rollback, file = tmp_path / "plan.rollback.json", tmp_path / "plan.json"
    execute = ("--execute", "--reassignment-json-file", plan_file(file, {0: (2,), 1: (3,)}))
    assert run(zk_connect, *execute).exit_code == 0
    first = rollback.read_text()
    seed.set(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (2,)})), -1)
    nodes.reassign(seed)
    again = run(zk_connect, *execute, *flags)
    assert f"rollback plan: {rollback}, as an earlier run saved it: it has moved 1 partition\n" in again.stderr
    assert rollback.read_text() == first and sorted(tmp_path.iterdir()) == [file, rollback]
    nodes.reassign(seed)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        back = run(zk_connect, "--cancel", "--rollback", "--reassignment-json-file", file)
    assert back.exit_code == 0, back.output
    assert [nodes.assignment(seed, "t")[p] for p in (0, 1)] == [(1,), (2,)]


@pytest.mark.spec("RSN-21X", "RSN-37X")
@pytest.mark.parametrize("source", ["plan.json", "-"])
def test_a_way_back_of_an_earlier_plan_in_the_same_file_is_not_that_of_the_next(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file, rollback = tmp_path / "plan.json", RunFiles(source).rollback

    def carry_out(*flags: str) -> str:
        result = run(zk_connect, *flags, "--reassignment-json-file", source, stdin=file.read_text())
        assert result.exit_code == 0, result.output
        return result.stderr

    plan_file(file, {0: (2,), 1: (2,)})  # of which t-1 stays where it is
    carry_out("--execute")
    nodes.reassign(seed)
    first = rollback.read_text()
    plan_file(file, {0: (2,), 1: (3,)})  # and here t-0
    kept = carry_out("--execute")
    assert f"rollback plan: {rollback}; the one of an earlier run is kept as {rollback}.1\n" in kept
    assert (rollback.read_text(), Path(f"{rollback}.1").read_text()) == (
        way_back_text({0: (2,), 1: (3,)}, {0: (2,), 1: (2,)}),
        first,
    )
    nodes.reassign(seed)
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        carry_out("--cancel", "--rollback")
    assert [nodes.assignment(seed, "t")[p] for p in (0, 1)] == [(2,), (2,)]


@pytest.mark.spec("RSN-21X")
@pytest.mark.parametrize(
    "saved", [None, "[]", "{}", '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}']
)
def test_a_plan_that_changes_nothing_has_its_way_back_saved_unless_its_own_run_has(
    seed: ZooKeeper, zk_connect: str, tmp_path: Path, saved: str | None
) -> None:
    file, rollback = plan_file(tmp_path / "plan.json", {0: (1,)}), tmp_path / "plan.rollback.json"
    if saved is not None:
        rollback.write_text(saved)
    assert run(zk_connect, "--execute", "--reassignment-json-file", file).exit_code == 0
    assert rollback.read_text() == way_back_text({0: (1,)}, {0: (1,)})
    assert saved is None or Path(f"{rollback}.1").read_text() == saved


@pytest.mark.spec("RSN-36X", "RSN-21X")
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


@pytest.mark.spec("RSN-38X", "RSN-35X", "RSN-11")
def test_list(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nothing = run(zk_connect, "--list")
    assert (nothing.exit_code, nothing.stdout) == (0, "No partition reassignments found.\n")
    file = plan_file(tmp_path / "plan.json", {0: (2, 3), 4: (3,)})
    run(zk_connect, "--execute", "--reassignment-json-file", file)
    nodes.set_state(seed, tp(4), None, (2, 1))
    assert run(zk_connect, "--list").stdout == (
        "Current partition reassignments:\n"
        "[t,0]: replicas: 1. target: 2,3. isr: 1.\n"
        "[t,4]: replicas: 2. target: 3. isr: 2,1.\n"
    )
    items = json.loads(run(zk_connect, "--list", "--output", "json").stdout)["items"]
    assert items == [
        {"topic": "t", "partition": 0, "from": [1], "to": [2, 3], "status": "in_progress", "isr": [1]},
        {"topic": "t", "partition": 4, "from": [2], "to": [3], "status": "in_progress", "isr": [2, 1]},
    ]
    tsv = run(zk_connect, "--list", "--output", "tsv").stdout.splitlines()
    assert tsv == [
        "TOPIC\tPARTITION\tFROM\tTO\tSTATUS\tISR\tERROR\tMESSAGE",
        "t\t0\t1\t2,3\tin_progress\t1\t\t",
        "t\t4\t2\t3\tin_progress\t2,1\t\t",
    ]
