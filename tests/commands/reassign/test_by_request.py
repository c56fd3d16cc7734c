"""``kt reassign --bootstrap-server`` against a broker that keeps assignments and configs as a controller would."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.shared import run_progress
from kafkatool.commands.shared.progress_line import ProgressLine
from kafkatool.commands.shared.run_progress import RunProgressLine
from kafkatool.core.operations.reassignment import following, following_by_request
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.operations.requests import comparing
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import (
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_quorum,
    incremental_alter_configs,
    metadata,
)
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.commands.reassign.memory_cluster import Cluster, cluster_of_four
from tests.core.operations.reassignment.plans import plan

RATES = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
ALTER = "AlterPartitionReassignments"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(comparing, "LATE_S", 0.01)
    monkeypatch.setattr(comparing, "SETTLE_S", 600.0)  # who stands still before a look has time for it
    with cluster_of_four() as running:
        yield running


def _plan(path: Path, moves: dict[int, list[int]], name: str = "plan.json", topic: str = "t") -> Path:
    file = path / name
    partitions = [{"topic": topic, "partition": p, "replicas": r} for p, r in moves.items()]
    file.write_bytes(orjson.dumps({"version": 1, "partitions": partitions}))
    return file


def _execute(cluster: Cluster, plan: Path, *args: object) -> Result:
    return cluster.run("execute", "--reassignment-json-file", plan, *args)


# --- execute ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-33", "ADM-34", "ADM-35")
def test_a_plan_is_begun_under_its_throttle_with_its_way_back_on_the_disk(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [3, 2], 2: [2, 1]})
    there: list[bool] = []
    for broker in cluster.brokers:

        def with_its_way_back(request: Any) -> object:
            there.append((tmp_path / "plan.rollback.json").exists())
            return cluster.set(request)

        broker.answers[incremental_alter_configs.API.key] = with_its_way_back
    found = _execute(cluster, plan, "--throttle", 1000000)
    assert there and all(there)
    assert (found.exit_code, found.stdout) == (
        0,
        "Current partition replica assignment\n\n"
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":2,"replicas":[1,2],"log_dirs":["any","any"]}]}\n\n'
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed.\nThe inter-broker throttle limit was set to 1000000 B/s\n"
        "Successfully started partition reassignments for t-0,t-2\n",
    )
    back = orjson.loads((tmp_path / "plan.rollback.json").read_bytes())
    assert [p["replicas"] for p in back["partitions"]] == [[1, 2], [1, 2]]
    assert cluster.configs[2, "t"] == {LEADERS: "0:1,0:2,2:1,2:2", FOLLOWERS: "0:3"}
    assert {b: set(c) for (kind, b), c in cluster.configs.items() if kind == 4} == dict.fromkeys("123", RATES)
    ((_, request),) = cluster.asked("AlterPartitionReassignments")
    assert [(p.partition, p.replicas) for p in request.topics[0].partitions] == [(0, [3, 2]), (2, [2, 1])]
    told = [b for b, r in cluster.asked("IncrementalAlterConfigs") if r.resources[0].resource_type == 4]
    assert told == [1, 2, 3]  # each broker was asked about itself
    names = [name for name, _, _ in cluster.brokers[0].asked]
    assert names.count("IncrementalAlterConfigs") == names[: names.index("AlterPartitionReassignments")].count(
        "IncrementalAlterConfigs"
    )


@pytest.mark.spec("RSN-24X")
def test_a_throttle_is_told_with_the_time_it_takes(cluster: Cluster, tmp_path: Path) -> None:
    held = [
        describe_log_dirs.DescribeLogDirsPartition(partition=p, partition_size=size, offset_lag=0)
        for p, size in ((0, 4_000_000), (2, 2_000_000))
    ]
    topic = describe_log_dirs.DescribeLogDirsTopic(topic="t", partitions=held)
    cluster.brokers[0].answers[describe_log_dirs.API.key] = lambda _: describe_log_dirs.DescribeLogDirsResponse(
        results=[describe_log_dirs.DescribeLogDirsResult(log_dir="/data", topics=[topic])]
    )
    plan = _plan(tmp_path, {0: [3, 2], 1: [2, 1], 2: [2, 3]})
    found = _execute(cluster, plan, "--throttle", 50_000, "--dry-run")
    assert found.stderr.splitlines()[:2] == [
        "1 partition of the plan has the planned replicas already",
        "under this throttle broker 3 takes about 2:00 to copy 5.7 MiB",
    ]
    tiny = _execute(cluster, plan, "--throttle", 10, "--dry-run")
    assert "warning: under this throttle broker 3 takes about 7 days to copy 5.7 MiB" in tiny.stderr
    for flags in ((), ("--throttle", 0), ("--throttle", 1_000_000)):  # a few seconds are not worth a word
        assert "to copy" not in _execute(cluster, plan, *flags, "--dry-run").stderr


def test_a_plan_that_is_in_place_says_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.ends_at_once = True
    found = _execute(cluster, _plan(tmp_path, {0: [1, 2], 1: [2, 1]}))
    assert found.exit_code == 0 and found.stdout.endswith("started partition reassignments for t-0,t-1\n")
    assert "2 partitions of the plan have the planned replicas already: nothing moves" in found.stderr


@pytest.mark.spec("ADM-33", "ADM-39")
@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ({0: [1, 9]}, "Unknown broker id 9"),
        ({9: [1, 2]}, "Unable to find partition: t-9"),
        ({}, "Partition reassignment list cannot be empty"),
        ({0: []}, "Partition replica list cannot be empty"),
        ({0: [1, 1]}, "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_is_written(
    cluster: Cluster, tmp_path: Path, moves: dict[int, list[int]], why: str
) -> None:
    found = _execute(cluster, _plan(tmp_path, moves), "--throttle", 1000)
    assert (found.exit_code, found.stdout) == (1, f"Error: {why}\n")
    unknown = _execute(cluster, _plan(tmp_path, {0: [1, 2]}, topic="nowhere"), "--throttle", 1000)
    assert unknown.stdout == "Error: Topic nowhere not found.\n"
    absent = _execute(cluster, tmp_path / "none.json")
    assert (absent.exit_code, absent.stdout) == (1, f"Error: Unable to read file {tmp_path / 'none.json'}\n")
    assert "Traceback" not in found.stderr + unknown.stderr + absent.stderr
    assert not cluster.asked("AlterPartitionReassignments") and not cluster.asked("IncrementalAlterConfigs")
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.spec("ADM-39")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,3]},'
            '{"topic":"t","partition":0,"replicas":[1,2]}]}',
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
        ('{"version":2,"partitions":[]}', "Not supported version field value 2"),
        (
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition t-0",
        ),
        ("oops", "PLAN:1:1: not JSON: Expecting value"),
    ],
    ids=["a partition twice", "version", "sizes of log_dirs", "no JSON"],
)
def test_a_plan_that_cannot_be_read_as_one_is_refused(cluster: Cluster, tmp_path: Path, text: str, why: str) -> None:
    (plan := tmp_path / "plan.json").write_text(text)
    found = _execute(cluster, plan)
    assert (found.exit_code, found.stdout) == (1, f"Error: {why.replace('PLAN', str(plan))}\n")
    assert "Traceback" not in found.stderr and not cluster.asked("AlterPartitionReassignments")
    flags = ["--execute", "--bootstrap-server", str(cluster.brokers[0].address), "--reassignment-json-file", str(plan)]
    words = [sys.executable, "-m", "kafkatool", "--debug", "reassign", *flags]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert (shown.returncode, shown.stdout) == (1, found.stdout)
    assert "Traceback" in shown.stderr and "plan_files.py" in shown.stderr, "--debug shows where"


@pytest.mark.spec("ADM-33", "ADM-35", "ADM-19")
def test_beside_what_moves_a_plan_begins_only_on_request_and_its_throttle_covers_both(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.moving[1] = ([4, 1, 2], [4], [2])
    plan = _plan(tmp_path, {0: [3, 2]})
    refused = _execute(cluster, plan)
    assert refused.exit_code == 1
    assert refused.stdout.startswith(
        "Cannot execute because there is an existing partition assignment.  Use --additional"
    )
    assert not cluster.asked("AlterPartitionReassignments")
    found = _execute(cluster, plan, "--additional", "--throttle", 2000)
    assert found.exit_code == 0
    assert cluster.configs[2, "t"] == {LEADERS: "0:1,0:2,1:1,1:2", FOLLOWERS: "0:3,1:4"}
    assert {b for kind, b in cluster.configs if kind == 4} == {"1", "2", "3", "4"}
    again = _execute(cluster, _plan(tmp_path, {0: [3, 2]}), "--additional", "--throttle", 3000)
    assert again.exit_code == 0 and "rollback plan" not in again.stderr
    back = orjson.loads((tmp_path / "plan.rollback.json").read_bytes())
    assert [p["replicas"] for p in back["partitions"]] == [[1, 2]]  # not those of the move under way
    assert set(cluster.configs[4, "3"].values()) == {"3000"}


@pytest.mark.spec("ADM-34", "ADM-56")
def test_what_was_refused_is_told_and_what_was_begun_runs(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refusals[2] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker")
    found = _execute(cluster, _plan(tmp_path, {0: [3, 2], 2: [2, 1]}), "--output", "json")
    assert found.exit_code == 1 and "t-0" in found.stderr and 0 in cluster.moving
    document = orjson.loads(found.stdout)
    assert [(i["partition"], i["status"]) for i in document["items"]] == [(0, "in_progress")]
    assert [(e["partition"], e["message"], e["code"]) for e in document["errors"]] == [(2, "no such broker", 39)]
    cluster.moving.clear()
    text = _execute(cluster, _plan(tmp_path, {0: [3, 2], 2: [2, 1]})).stdout
    assert text.endswith("Error reassigning partition(s):\nt-2: no such broker\n")


@pytest.mark.spec("ADM-33", "RSN-21X", "ADM-37")
def test_a_plan_that_was_partly_refused_is_sent_again_and_keeps_the_way_back_of_the_rest(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan, rollback = _plan(tmp_path, {0: [3, 2], 2: [2, 3]}), tmp_path / "plan.rollback.json"
    cluster.refusals[2], cluster.ends_at_once = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"), True
    assert _execute(cluster, plan).exit_code == 1
    first = rollback.read_bytes()
    again = _execute(cluster, plan)
    assert again.exit_code == 1
    assert f"rollback plan: {rollback}, as an earlier run saved it: it has moved 1 partition\n" in again.stderr
    assert rollback.read_bytes() == first and not (tmp_path / "plan.rollback.json.1").exists()
    cluster.refusals.clear()
    assert _execute(cluster, plan).exit_code == 0
    assert rollback.read_bytes() == first
    back = cluster.run("cancel", "--reassignment-json-file", plan, "--rollback", "--throttle", 5000)
    assert back.exit_code == 0, back.output
    assert (cluster.replicas[0], cluster.replicas[2]) == ([1, 2], [1, 2])


@pytest.mark.spec("ADM-33", "RSN-21X")
@pytest.mark.parametrize(
    ("saved", "kept"), [([1, 2], True), ([1, 4], False)], ids=["of this move", "of an earlier one"]
)
def test_of_what_still_moves_the_way_back_stays_where_it_is_one(
    cluster: Cluster, tmp_path: Path, saved: list[int], kept: bool
) -> None:
    cluster.moving[0] = ([2, 3, 1], [3], [1])  # which does not tell which of 1 and 2 came first
    goal, before = plan({0: (2, 3), 2: (2, 3)}), plan({0: saved, 2: (1, 2)})
    RunFiles(str(tmp_path / "plan.json")).save_way_back(goal, before)
    assert _execute(cluster, _plan(tmp_path, {0: [2, 3], 2: [2, 3]}), "--additional").exit_code == 0
    back = orjson.loads((tmp_path / "plan.rollback.json").read_bytes())
    assert [p["replicas"] for p in back["partitions"]] == [saved if kept else [2, 1], [1, 2]]


@pytest.mark.spec("ADM-33", "RSN-21X", "ADM-37")
def test_a_way_back_of_an_earlier_plan_in_the_same_file_is_not_that_of_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.ends_at_once = True
    assert _execute(cluster, _plan(tmp_path, {0: [3, 4], 2: [1, 2]})).exit_code == 0  # of which t-2 stays
    first = (tmp_path / "plan.rollback.json").read_bytes()
    plan = _plan(tmp_path, {0: [3, 4], 2: [3, 4]})  # and here t-0
    assert _execute(cluster, plan).exit_code == 0
    assert (tmp_path / "plan.rollback.json.1").read_bytes() == first
    back = cluster.run("cancel", "--reassignment-json-file", plan, "--rollback", "--throttle", 5000)
    assert back.exit_code == 0, back.output
    assert (cluster.replicas[0], cluster.replicas[2]) == ([3, 4], [1, 2])
    plan = _plan(tmp_path, {2: [1, 2]})  # in place already
    assert "the one of an earlier run is kept as" in _execute(cluster, plan).stderr
    saved = orjson.loads((tmp_path / "plan.rollback.json").read_bytes())
    assert [(p["partition"], p["replicas"]) for p in saved["partitions"]] == [(2, [1, 2])]


@pytest.mark.spec("ADM-35", "ADM-19")
def test_a_throttle_on_a_broker_that_is_down_is_refused_unless_forced(cluster: Cluster, tmp_path: Path) -> None:
    cluster.replicas[0] = [9, 2]
    plan = _plan(tmp_path, {0: [3, 2]})
    found = _execute(cluster, plan, "--throttle", 1000)
    assert (found.exit_code, found.stdout) == (
        1,
        "Error: broker 9 is down and cannot be told of the throttle; nothing was written\n",
    )
    assert not cluster.configs and not cluster.asked("AlterPartitionReassignments")
    assert _execute(cluster, plan, "--throttle", 1000, "--force").exit_code == 0
    assert {b for kind, b in cluster.configs if kind == 4} == {"2", "3"}


@pytest.mark.spec("ADM-42")
def test_another_number_of_replicas_is_refused_by_the_controller_or_where_it_cannot_by_kt(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, {0: [1, 2, 3], 2: [2, 1]})
    flags = ["--disallow-replication-factor-change"]
    assert _execute(cluster, plan, *flags).exit_code == 0
    ((_, request),) = cluster.asked("AlterPartitionReassignments")
    assert request.allow_replication_factor_change is False
    cluster.moving.clear()
    cluster.brokers[0].apis[altering.API] = (0, 0)
    found = _execute(cluster, plan, *flags)
    assert (found.exit_code, found.stdout) == (1, "Error: t-0: The replication factor is changed from 2 to 3\n")
    assert len(cluster.asked("AlterPartitionReassignments")) == 1


@pytest.mark.spec("ADM-20")
def test_a_dry_run_shows_the_requests_in_their_order_and_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [3, 2], 1: [2, 3]})
    found = _execute(cluster, plan, "--throttle", 1000, "--batch-partitions", 1, "--dry-run")
    shown = [line.split(" ")[:4] for line in found.stdout.splitlines()]
    configs = [["broker", b, "IncrementalAlterConfigs", "1"] for b in ("1", "2", "3", "1")]
    assert shown == [*configs, *[["broker", "1", "AlterPartitionReassignments", "1"]] * 2]
    assert all(request.validate_only for _, request in cluster.asked("IncrementalAlterConfigs"))
    assert len(cluster.asked("IncrementalAlterConfigs")) == len(configs)
    assert not cluster.asked("AlterPartitionReassignments")
    assert not cluster.configs and not cluster.moving and [f.name for f in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.spec("ADM-19", "ADM-33")
def test_a_large_plan_goes_in_few_requests_and_text_alone_reads_the_replicas_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    for broker in cluster.brokers:
        broker.apis[describe_quorum.API] = (0, 1)  # as brokers of KRaft announce
    cluster.replicas = {p: [1, 2] for p in range(10_001)}
    plan = _plan(tmp_path, {p: [2, 1] for p in cluster.replicas})
    assert _execute(cluster, plan, "--additional").exit_code == 0
    sent = [r for _, r in cluster.asked("AlterPartitionReassignments")]
    assert [sum(len(t.partitions) for t in r.topics) for r in sent] == [10_000, 1]
    assert [p.partition for r in sent for t in r.topics for p in t.partitions] == list(range(10_001))
    assert len([r for _, r in cluster.asked("Metadata") if r.topics and r.topics[0].topic == "t"]) == 1
    found = orjson.loads(_execute(cluster, plan, "--additional", "--output", "json").stdout)
    assert [i["partition"] for i in found["items"]] == list(range(10_001)), "JSON tells of each how far it is"


@pytest.mark.spec("ADM-43", "ADM-38")
def test_a_run_that_is_waited_for_ends_with_the_throttles_off(cluster: Cluster, tmp_path: Path) -> None:
    cluster.ends_at_once = True
    found = _execute(cluster, _plan(tmp_path, {0: [3, 2]}), "--throttle", 1000, "--wait")
    assert found.exit_code == 0
    assert found.stdout.endswith(
        "Successfully started partition reassignment for t-0\nReassignment of partition t-0 is completed.\n"
        "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic t\n"
    )
    assert not any(cluster.configs.values())


@pytest.mark.spec("ADM-43", "RSN-33X")
def test_the_wait_tells_bytes_who_is_down_and_when_it_is_cut_short_what_to_type(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(tmp_path, {0: [1, 9], 2: [3, 2]})
    cluster.moving = {0: ([1, 9, 2], [9], [2])}
    cut_short = cluster.run("verify", "--reassignment-json-file", plan, "--wait", "--timeout", 0)
    assert cut_short.exit_code == 1
    assert "waits for brokers that are not registered: 9; start them" in cut_short.stderr
    way = f"kt reassign --bootstrap-server {cluster.brokers[0].address}"
    waiting = f"{way} --verify --wait --reassignment-json-file {plan}  # wait on; takes the throttle off"
    assert any(line.startswith(waiting) for line in cut_short.stderr.splitlines())

    def sizes(size: int) -> describe_log_dirs.DescribeLogDirsResponse:
        partition = describe_log_dirs.DescribeLogDirsPartition(partition=2, partition_size=size, offset_lag=0)
        topic = describe_log_dirs.DescribeLogDirsTopic(topic="t", partitions=[partition])
        return describe_log_dirs.DescribeLogDirsResponse(
            results=[describe_log_dirs.DescribeLogDirsResult(log_dir="/data", topics=[topic])]
        )

    cluster.moving = {2: ([3, 2, 1], [3], [1])}
    key = describe_log_dirs.API.key
    cluster.brokers[0].answers[key] = lambda _: sizes(4 * 2**20)
    cluster.brokers[2].answers[key] = lambda _: sizes(2**20)
    listed = cluster.brokers[0].answers[listing.API.key]
    shown: list[str] = []

    class Noting(ProgressLine):
        def show(self, text: str, share: float | None = None) -> None:
            shown.append(text)
            super().show(text, share)

    def ends_once_shown(request: Any) -> object:
        if any("1.0 of 4.0 MiB" in text for text in shown):
            cluster.moving.clear()
            cluster.replicas = {**cluster.replicas, 0: [1, 9], 2: [3, 2]}
        return listed(request)

    cluster.brokers[0].answers[listing.API.key] = ends_once_shown
    monkeypatch.setattr(following_by_request, "FIRST_POLL_S", 0.05)
    monkeypatch.setattr(following_by_request, "MAX_POLL_S", 0.05)
    monkeypatch.setattr(run_progress, "ProgressLine", partial(Noting, interval_s=0.0))
    waited = cluster.run("verify", "--reassignment-json-file", plan, "--wait", "--timeout", 240)
    assert waited.exit_code == 0, waited.output
    assert "1/2 partitions, 1.0 of 4.0 MiB" in waited.stderr
    assert waited.stderr.splitlines()[-1].startswith("2/2 partitions, 4.0 of 4.0 MiB")


@pytest.mark.spec("ADM-43", "RSN-23X")
def test_who_stops_waiting_is_told_every_way_on(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    plan = _plan(tmp_path, {0: [3, 2]})
    monkeypatch.setattr(RunProgressLine, "show", interrupt)
    stopped = _execute(cluster, plan, "--throttle", 1000, "--wait")
    assert stopped.exit_code == 130
    way, given = f"kt reassign --bootstrap-server {cluster.brokers[0].address}", f"--reassignment-json-file {plan}"
    rate = "B/S: bytes per second and broker; unthrottled only without the flag"
    ways = [
        "what moves goes on without kt; a throttle stays",
        f"{way} --verify --wait {given}  # wait on; takes the throttle off when nothing moves any more",
        f"{way} --verify {given}  # look",
        f"{way} --cancel {given}  # send back what is under way",
        f"{way} --cancel --rollback {given}  # send back what has ended, too",
        f"{way} --execute --additional --throttle B/S {given}  # another throttle; {rate}",
    ]
    lines = stopped.stderr.splitlines()
    assert lines[lines.index(ways[0]) : -2] == ways
    (tmp_path / "plan.rollback.json").unlink()
    again = cluster.run("verify", "--reassignment-json-file", plan, "--wait").stderr.splitlines()
    assert again[: len(ways) - 1] == [line for line in ways if "--rollback" not in line]
    back = cluster.run("cancel", "--reassignment-json-file", plan)
    assert back.exit_code == 130
    assert [line for line in back.stderr.splitlines() if line.startswith("kt ")] == [
        f"{way} --cancel {given}  # wait on; takes the throttle off when nothing moves any more"
    ]


@pytest.mark.spec("ADM-43", "RSN-33X")
def test_where_nothing_moves_there_is_no_eta_but_what_is_in_the_way(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(tmp_path, {0: [3, 2], 1: [9, 1], 2: [1, 2]})
    cluster.moving = {0: ([3, 2, 1], [3], [1]), 1: ([9, 1, 2], [9], [2])}
    cluster.configs[4, "1"] = {"leader.replication.throttled.rate": "0"}
    cluster.configs[4, "3"] = {"follower.replication.throttled.rate": "1024"}
    shown: list[str] = []

    def note(_: object, text: str, share: float | None = None) -> None:
        shown.append(text)
        if "B/s" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "show", note)
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    monkeypatch.setattr(following_by_request, "FIRST_POLL_S", 0.05)
    monkeypatch.setattr(following_by_request, "MAX_POLL_S", 0.05)
    assert cluster.run("verify", "--reassignment-json-file", plan, "--wait").exit_code == 130
    in_the_way = "waiting for broker 9, which is down, the throttle of broker 1 is 0 B/s"
    assert shown[-1] == f"1/3 partitions, {in_the_way}, ETA unknown", "one of three has ended, and the rest will not"


@pytest.mark.spec("ADM-36", "RSN-12")
def test_a_plan_that_was_never_sent_is_not_to_be_sent_unthrottled_unawares(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [3, 2]})
    told = cluster.run("verify", "--reassignment-json-file", plan)
    assert told.exit_code == 1 and "1 of 1 partition is not as planned, and nothing is under way" in told.stderr
    pasted = CliRunner().invoke(kt, shlex.split(told.stderr.splitlines()[-1], comments=True)[1:])
    assert pasted.exit_code == 2 and "--throttle" in pasted.stderr
    assert not cluster.asked("AlterPartitionReassignments")
    _plan(tmp_path, {0: [4, 2]}, "plan.rollback.json")
    back = cluster.run("verify", "--rollback", "--reassignment-json-file", plan)
    assert f"--cancel --rollback --reassignment-json-file {plan}  # send them" in back.stderr


@pytest.mark.spec("ADM-44")
def test_a_move_that_another_request_replaced_is_told_and_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    alter = cluster.brokers[0].answers[altering.API.key]

    def other(request: Any) -> object:
        answer = alter(request)
        cluster.moving[0] = ([4, 1, 2], [4], [1, 2])
        if 1 in cluster.moving:
            cluster.moving[1] = ([3, 1, 2, 4], [3], [2, 4])  # 4 was being added before: KRaft has it at the end
        return answer

    cluster.brokers[0].answers[altering.API.key] = other
    found = _execute(cluster, _plan(tmp_path, {0: [3, 2]}), "--wait")
    assert found.exit_code == 1 and "superseded by another request, and not waited for: t-0" in found.stderr
    cluster.moving.clear()
    before = len(cluster.asked(listing.API.name))
    both = _execute(cluster, _plan(tmp_path, {0: [3, 2], 1: [3, 1]}, "both.json"))
    assert "superseded by another request, and not waited for: t-0\n" in both.stderr, "t-1 moves as planned"
    of_plan = [r for _, r in cluster.asked(listing.API.name)[before:] if r.topics is not None]
    assert len(of_plan) == 1, "what is superseded and what is told at the end are of one list"


@pytest.mark.spec("ADM-56")
def test_what_an_answer_leaves_out_is_not_taken_for_begun(cluster: Cluster, tmp_path: Path) -> None:
    alter = cluster.brokers[0].answers[altering.API.key]

    def cut(request: Any) -> object:
        answer: Any = alter(request)
        refused, left_out, *others = answer.topics[0].partitions
        refused = replace(refused, error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, error_message="not those")
        strange = replace(left_out, partition=9)
        return replace(answer, topics=[replace(answer.topics[0], partitions=[refused, strange, *others])])

    cluster.brokers[0].answers[altering.API.key] = cut
    found = _execute(cluster, _plan(tmp_path, {0: [3, 2], 1: [3, 1], 2: [3, 1]}))
    assert found.exit_code == 1 and "leaves partitions out" in found.stdout
    assert "refused before: t-0 (not those); whether it was done is not known of t-1" in found.stdout
    assert "Successfully started partition reassignment for t-2\n" in found.stdout
    assert "--verify" in found.stderr, "how to look"


@pytest.mark.spec("ADM-33", "ADM-44")
def test_what_was_begun_is_told_and_how_to_look_where_the_list_of_moves_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    listed = cluster.brokers[0].answers[listing.API.key]

    def refused(request: Any) -> object:
        if not cluster.asked(altering.API.name):
            return listed(request)
        return listing.ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])

    cluster.brokers[0].answers[listing.API.key] = refused
    found = _execute(cluster, _plan(tmp_path, {0: [3, 2]}))
    assert found.exit_code == 1 and "Successfully started partition reassignment for t-0\n" in found.stdout
    assert "--verify" in found.stderr


@pytest.mark.spec("ADM-33")
def test_moves_between_log_directories_are_begun_before_the_list_of_moves_is_asked(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.lies_in[1, 0] = "/data", None
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/other", "any"]}
    plan = tmp_path / "plan.json"
    plan.write_bytes(orjson.dumps({"version": 1, "partitions": [entry]}))
    begin = cluster.brokers[0].answers[alter_replica_log_dirs.API.key]
    lists_before: list[int] = []

    def noted(request: Any) -> object:
        lists_before.append(len(cluster.asked(listing.API.name)))
        return begin(request)

    cluster.brokers[0].answers[alter_replica_log_dirs.API.key] = noted
    found = _execute(cluster, plan)
    assert found.exit_code == 0 and "Successfully started moving log directory to /other" in found.stdout
    checked = 1
    assert lists_before == [checked] and len(cluster.asked(listing.API.name)) == checked + 1


# --- verify, cancel, list --------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-36")
@pytest.mark.parametrize("looks", [1, 3])
def test_a_broker_that_learns_late_of_a_move_that_has_ended_is_asked_again(
    cluster: Cluster, tmp_path: Path, looks: int
) -> None:
    wanted = {0: [3, 2], 1: [3, 1], 2: [3, 4]}
    pending = [*wanted][-looks:]  # the broker learns of one between two looks

    def learn(request: metadata.MetadataRequest) -> object:
        answer: Any = tell(request)
        if request.topics != [] and pending:
            partition = pending.pop(0)
            cluster.replicas[partition] = wanted[partition]
        return answer

    for partition in wanted.keys() - set(pending):
        cluster.replicas[partition] = wanted[partition]
    tell = cluster.brokers[0].answers[metadata.API.key]
    for broker in cluster.brokers:
        broker.answers[metadata.API.key] = learn
    found = cluster.run("verify", "--reassignment-json-file", _plan(tmp_path, wanted))
    assert found.exit_code == 0, found.output
    assert "rather than" not in found.stdout and found.stdout.count("is completed.") == 3 and not pending


@pytest.mark.spec("ADM-36", "ADM-38")
def test_a_plan_is_compared_and_throttles_go_when_nothing_moves_any_more(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [1, 2], 1: [3, 1], 2: [3, 4], 9: [1, 2]})
    cluster.moving[1] = ([3, 1, 2], [3], [2])
    cluster.configs = {(4, "2"): dict.fromkeys(RATES, "1"), (2, "t"): {LEADERS: "0:1", "retention.ms": "5"}}
    found = cluster.run("verify", "--reassignment-json-file", plan)
    assert (found.exit_code, found.stdout) == (
        1,
        "Status of partition reassignment:\n"
        "Reassignment of partition t-0 is completed.\n"
        "Reassignment of partition t-1 is still in progress.\n"
        "There is no active reassignment of partition t-2, but replica set is 1,2 rather than 3,4.\n"
        "There is no active reassignment of partition t-9, but replica set is  rather than 1,2.\n\n",
    )
    assert cluster.configs[4, "2"] and LEADERS in cluster.configs[2, "t"]
    for alone in ({2: [3, 4]}, {9: [1, 2]}):
        no_move = cluster.run("verify", "--reassignment-json-file", _plan(tmp_path, alone, "alone.json"))
        assert no_move.exit_code == 1 and "There is no active reassignment" in no_move.stdout
    other = cluster.run("verify", "--reassignment-json-file", _plan(tmp_path, {0: [1, 2]}, "done.json"))
    assert other.exit_code == 0 and "the throttle stays" in other.stderr and cluster.configs[4, "2"]
    cluster.moving.clear()
    kept = cluster.run("verify", "--reassignment-json-file", plan, "--preserve-throttles")
    assert "Clearing" not in kept.stdout and cluster.configs[4, "2"]
    last = cluster.run("verify", "--reassignment-json-file", plan)
    assert last.stdout.endswith(
        "\n\nClearing broker-level throttles on broker 2\nClearing topic-level throttles on topic t\n"
    )
    assert cluster.configs == {(4, "2"): {}, (2, "t"): {"retention.ms": "5"}}
    writes = len(cluster.asked("IncrementalAlterConfigs"))
    again = cluster.run("verify", "--reassignment-json-file", plan)
    assert "Clearing" not in again.stdout and len(cluster.asked("IncrementalAlterConfigs")) == writes


@pytest.mark.spec("ADM-40")
@pytest.mark.parametrize(
    ("dirs", "told"),
    [
        (["/d", "any"], "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline"),
        (["any", "/d"], "Partition t-0 cannot be found in any live log directory on broker 9."),
    ],
    ids=["in no directory", "broker down"],
)
def test_a_replica_that_no_directory_is_known_to_hold_is_not_completed(
    cluster: Cluster, tmp_path: Path, dirs: list[str], told: str
) -> None:
    cluster.replicas[0] = [1, 9]
    entry = {"topic": "t", "partition": 0, "replicas": [1, 9], "log_dirs": dirs}
    (plan := tmp_path / "plan.json").write_bytes(orjson.dumps({"version": 1, "partitions": [entry]}))
    found = cluster.run("verify", "--reassignment-json-file", plan)
    assert found.exit_code == 1, found.output
    assert found.stdout.splitlines()[1] == "Reassignment of partition t-0 is completed."
    assert found.stdout.splitlines()[2].startswith(told)


@pytest.mark.spec("ADM-37", "ADM-38")
def test_what_moves_of_a_plan_is_cancelled_also_what_only_adds(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [1, 2, 3], 1: [1], 2: [3, 4]})
    cluster.moving = {0: ([1, 2, 3], [3], []), 1: ([1, 2], [], [2])}
    cluster.configs = {(4, "2"): dict.fromkeys(RATES, "1")}
    found = cluster.run("cancel", "--reassignment-json-file", plan)
    assert (found.exit_code, found.stdout) == (
        0,
        "Successfully cancelled partition reassignments for: t-0,t-1\n"
        "None of the specified partition moves are active.\nClearing broker-level throttles on broker 2\n",
    )
    ((_, request),) = cluster.asked("AlterPartitionReassignments")
    assert [(p.partition, p.replicas) for p in request.topics[0].partitions] == [(0, None), (1, None)]
    none = cluster.run("cancel", "--reassignment-json-file", plan)
    assert (none.exit_code, none.stdout) == (
        0,
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n",
    )


@pytest.mark.spec("ADM-19", "ADM-37", "ADM-38")
def test_a_cancel_leaves_throttles_while_others_move_and_takes_all_that_moves_have_set_afterwards(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, {0: [1, 9]})
    cluster.moving = {0: ([1, 9, 2], [9], [2]), 2: ([3, 1, 2], [3], [2])}
    cluster.others = ["u", "w"]
    log_dirs = {"replica.alter.log.dirs.io.max.bytes.per.second": "7"}
    cluster.configs = {
        (4, "1"): {**dict.fromkeys(RATES, "1"), **log_dirs, "log.cleaner.threads": "2"},
        (4, "4"): dict.fromkeys(RATES, "1"),  # no broker of the plan
        (2, "t"): {LEADERS: "0:1,0:2", FOLLOWERS: "0:9", "retention.ms": "5"},
        (2, "u"): {FOLLOWERS: "0:3"},
        (2, "w"): {LEADERS: "*"},
    }
    beside = cluster.run("cancel", "--reassignment-json-file", plan)
    assert beside.exit_code == 0 and "Clearing" not in beside.stdout and "the throttle stays" in beside.stderr
    assert not cluster.asked("IncrementalAlterConfigs")
    cluster.moving.clear()
    after = cluster.run("cancel", "--reassignment-json-file", plan)
    assert after.exit_code == 0, "a broker that is down changes nothing of it"
    assert after.stdout.endswith(
        "Clearing broker-level throttles on brokers 1,4\nClearing topic-level throttles on topics t,u\n"
    )
    assert "broker 9 cannot be asked, being down: a throttle may be left there when it returns" in after.stderr
    assert cluster.configs == {
        (4, "1"): {"log.cleaner.threads": "2"},
        (4, "4"): {},
        (2, "t"): {"retention.ms": "5"},
        (2, "u"): {},
        (2, "w"): {LEADERS: "*"},  # an administrator's
    }


@pytest.mark.spec("ADM-20", "ADM-37", "ADM-38")
def test_a_dry_run_of_cancel_shows_the_way_back_and_the_throttles_that_come_off(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, {0: [1, 3], 2: [3, 4]})
    _plan(tmp_path, {0: [1, 2], 2: [1, 2]}, "plan.rollback.json")
    cluster.moving = {0: ([1, 3, 2], [3], [2])}
    cluster.replicas[2] = [3, 4]
    cluster.configs = {(4, "2"): dict.fromkeys(RATES, "1"), (2, "t"): {LEADERS: "0:1"}}
    before = {entity: dict(config) for entity, config in cluster.configs.items()}

    def told(*flags: str) -> list[tuple[str, Any]]:
        found = cluster.run("cancel", "--reassignment-json-file", plan, "--dry-run", *flags)
        assert found.exit_code == 0, found.output
        rows = [line.split(" ", 4) for line in found.stdout.splitlines()]
        return [(api, orjson.loads(fields)) for _, _, api, _, fields in rows]

    (name, cancel), (_, rates), (_, lists) = told()
    assert name == "AlterPartitionReassignments"
    assert [(p["partition"], p["replicas"]) for p in cancel["topics"][0]["partitions"]] == [(0, None)]
    assert {c["name"] for c in rates["resources"][0]["configs"]} == RATES
    assert [c["name"] for c in lists["resources"][0]["configs"]] == [LEADERS]
    _, back = (fields for api, fields in told("--rollback") if api == ALTER)
    assert [(p["partition"], p["replicas"]) for p in back["topics"][0]["partitions"]] == [(2, [1, 2])]
    assert len(told("--preserve-throttles")) == 1
    cluster.moving[1] = ([2, 1, 3], [3], [])
    assert len(told()) == 1  # another's move: the throttle stays
    assert cluster.configs == before and not cluster.asked("AlterPartitionReassignments")


@pytest.mark.spec("ADM-37")
def test_an_end_in_between_counts_as_done_and_a_refusal_is_told(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [1, 2, 3], 1: [1]})
    cluster.moving = {0: ([1, 2, 3], [3], []), 1: ([1, 2], [], [2])}
    cluster.refusals = {0: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "none"), 1: (ErrorCode.POLICY_VIOLATION, "no")}
    found = cluster.run("cancel", "--reassignment-json-file", plan, "--timeout", 0)
    assert found.exit_code == 1
    assert "Error cancelling partition reassignment(s) for:\nt-1: no\n" in found.stdout and "t-0: " not in found.stdout


@pytest.mark.spec("ADM-37")
def test_replicas_that_a_cancel_leaves_beside_the_origin_are_told_with_the_plan_that_mends_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "SETTLE_S", 0.0)
    plan = _plan(tmp_path, {0: [3, 2]})
    _plan(tmp_path, {0: [1, 2]}, "plan.rollback.json")
    cluster.moving[0] = ([3, 2, 1, 4], [3], [1, 4])
    cluster.replicas[0] = [1, 2, 4]  # what the controller takes for the origin
    found = cluster.run("cancel", "--reassignment-json-file", plan)
    assert found.exit_code == 1 and "not as before the plan: t-0; this plan restores it:" in found.stderr
    assert re.search(r'"replicas":\[1,2\]', found.stderr)


@pytest.mark.spec("ADM-37")
def test_a_broker_that_learns_late_of_the_cancel_is_asked_again(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan(tmp_path, {0: [3, 2]})
    _plan(tmp_path, {0: [1, 2]}, "plan.rollback.json")
    cluster.moving[0] = ([3, 2, 1], [3], [1])
    alter, tell = (cluster.brokers[0].answers[api.key] for api in (altering.API, metadata.API))
    late: list[int] = []

    def cancelled(request: Any) -> object:
        answer = alter(request)
        cluster.replicas[0] = [3, 2, 1]  # as brokers tell for a while
        return answer

    def told(request: Any) -> object:
        answer = tell(request)
        if cluster.replicas[0] == [3, 2, 1] and request.topics:
            late.append(1)
            if len(late) == 2:
                cluster.replicas[0] = [1, 2]
        return answer

    cluster.brokers[0].answers |= {altering.API.key: cancelled, metadata.API.key: told}
    found = cluster.run("cancel", "--reassignment-json-file", plan)
    assert found.exit_code == 0 and "not as before" not in found.stderr and len(late) == 2


@pytest.mark.spec("ADM-37")
@pytest.mark.parametrize("given", [(), ("--throttle", 7000)], ids=["set-already", "given"])
def test_a_rollback_of_what_has_ended_runs_under_the_throttle(
    cluster: Cluster, tmp_path: Path, given: tuple[object, ...]
) -> None:
    plan = _plan(tmp_path, {0: [3, 2]})
    _plan(tmp_path, {0: [1, 2]}, "plan.rollback.json")
    cluster.replicas[0], cluster.ends_at_once = [3, 2], True
    cluster.configs = {} if given else {(4, "2"): dict.fromkeys(RATES, "7000")}
    found = cluster.run("cancel", "--rollback", "--reassignment-json-file", plan, *given)
    assert found.exit_code == 0 and cluster.replicas[0] == [1, 2]
    set_ = [
        (r.resource_name, {c.name: c.value for c in r.configs})
        for _, request in cluster.asked("IncrementalAlterConfigs")
        for r in request.resources
        if any(c.config_operation == 0 for c in r.configs)
    ]
    lists = {LEADERS: "0:2,0:3", FOLLOWERS: "0:1"}
    assert dict(set_) == {"t": lists, **{b: dict.fromkeys(RATES, "7000") for b in "123"}}
    assert not any(cluster.configs.values())


@pytest.mark.spec("ADM-37", "RSN-37X")
def test_a_rollback_that_is_run_again_waits_for_what_is_on_its_way_back_and_sends_the_rest(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_by_request, "FIRST_POLL_S", 0.01)
    plan = _plan(tmp_path, {0: [3, 4], 1: [2, 3], 2: [3, 4]})
    _plan(tmp_path, {0: [2, 1], 1: [2, 1], 2: [1, 2]}, "plan.rollback.json")
    cluster.replicas |= {0: [3, 4], 2: [3, 4]}
    cluster.moving = {0: ([1, 2, 3, 4], [1, 2], [3, 4]), 1: ([2, 3, 1], [3], [1])}
    cluster.ends_at_once = True
    list_ = cluster.brokers[0].answers[listing.API.key]

    def copied_at_the_third_look(request: Any) -> object:
        if 0 in cluster.moving and len(cluster.asked("ListPartitionReassignments")) == looks + 3:
            del cluster.moving[0]
            cluster.replicas[0] = [1, 2]
        return list_(request)

    cluster.brokers[0].answers[listing.API.key] = copied_at_the_third_look
    looks = 1000
    flags = ["--rollback", "--reassignment-json-file", plan]
    shown = [line.split(" ", 4)[4] for line in cluster.run("cancel", *flags, "--dry-run").stdout.splitlines()]
    planned = [[(p["partition"], p["replicas"]) for p in orjson.loads(f)["topics"][0]["partitions"]] for f in shown]
    assert planned == [[(1, None)], [(2, [1, 2])]]
    looks = len(cluster.asked("ListPartitionReassignments"))
    found = cluster.run("cancel", *flags)
    assert found.exit_code == 0, found.output
    sent = [[(p.partition, p.replicas) for p in r.topics[0].partitions] for _, r in cluster.asked(ALTER)]
    assert sent == [[(1, None)], [(0, [2, 1]), (2, [1, 2])]], "the order is put right when all has ended"
    assert found.stdout.startswith("Successfully cancelled partition reassignment for: t-1\n")
    assert "1 partition is on the way back already: that goes on, and is waited for\n" in found.stderr


@pytest.mark.spec("ADM-37", "RSN-37X", "ADM-9")
def test_a_rollback_that_is_run_again_sends_nothing_where_all_is_on_its_way_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, {0: [3, 2]})
    _plan(tmp_path, {0: [1, 2]}, "plan.rollback.json")
    cluster.replicas[0] = [3, 2]
    flags = ["--rollback", "--reassignment-json-file", plan, "--timeout", 0]
    assert cluster.run("cancel", *flags).exit_code == 1 and cluster.moving == {0: ([1, 2, 3], [1], [3])}
    again = cluster.run("cancel", *flags, "--throttle", 5000)
    assert again.exit_code == 1 and cluster.moving == {0: ([1, 2, 3], [1], [3])}
    assert len(cluster.asked(ALTER)) == 1 and not cluster.asked("IncrementalAlterConfigs")
    assert again.stdout == "None of the specified partition moves are active.\n"
    assert "and is waited for; --throttle is for what goes back after that\n" in again.stderr
    assert "--cancel --rollback --reassignment-json-file" in again.stderr, "it waits on, as is printed"


@pytest.mark.spec("ADM-41", "ADM-19", "ADM-11")
def test_all_that_moves_is_listed_in_kafkas_form(cluster: Cluster) -> None:
    nothing = cluster.run("list")
    assert (nothing.exit_code, nothing.stdout) == (0, "No partition reassignments found.\n")
    cluster.moving = {2: ([1, 2, 4], [4], []), 0: ([3, 4, 1, 2], [3, 4], [1, 2]), 1: ([2, 1], [], [1])}
    found = cluster.run("list")
    assert (found.exit_code, found.stdout) == (
        0,
        "Current partition reassignments:\nt-0: replicas: 3,4,1,2. adding: 3,4. removing: 1,2.\n"
        "t-1: replicas: 2,1. removing: 1.\nt-2: replicas: 1,2,4. adding: 4.\n",
    )
    assert cluster.brokers[0].client_ids == {"kt-reassign"}
    items = orjson.loads(cluster.run("list", "--output", "json").stdout)["items"]
    assert [i["to"] for i in items] == [[3, 4], [2], [1, 2, 4]]


# --- generate and flags ----------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-32", "ADM-39")
def test_a_plan_is_proposed_in_kafkas_later_form(cluster: Cluster, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"t"}]}')
    found = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "3,4")
    current, proposed = (line for line in found.stdout.splitlines() if line.startswith("{"))
    assert found.exit_code == 0
    assert orjson.loads(current)["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "replicas": [1, 2],
        "log_dirs": ["any", "any"],
    }
    wanted = orjson.loads(proposed)["partitions"]
    assert all(set(p["replicas"]) == {3, 4} and p["log_dirs"] == ["any", "any"] for p in wanted)
    few = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
    assert (few.exit_code, few.stdout) == (1, "Error: Replication factor: 2 larger than available brokers: 1.\n")
    twice = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,2")
    assert twice.stdout == "Error: Broker list contains duplicate entries: 2\n"
    topics.write_text('{"version":1,"topics":[{"topic":"nowhere"}]}')
    missing = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2")
    assert (missing.exit_code, missing.stdout) == (1, "Error: Topic nowhere not found.\n")
    topics.write_text('{"version":1,"topics":[{"topic":"t"},{"topic":"t"}]}')
    doubled = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2")
    assert (doubled.exit_code, doubled.stdout) == (
        1,
        "Error: List of topics to reassign contains duplicate entries: t\n",
    )
    topics.write_text('{"version":1,"topics":[]}')
    for strategy in ("kafka", "minimal"):
        flags = ["--topics-to-move-json-file", topics, "--broker-list", "3,4", "--strategy", strategy]
        none = cluster.run("generate", *flags)
        assert none.exit_code == 0, none.output
        assert [line for line in none.stdout.splitlines() if line.startswith("{")] == [
            '{"version":1,"partitions":[]}'
        ] * 2
    topics.write_text("nonsense")
    bad = cluster.run("generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2")
    assert (bad.exit_code, bad.stdout) == (1, "Error: The input string is not a valid JSON\n")
    assert "Traceback" not in bad.stderr


@pytest.mark.spec("ADM-32", "ADM-19")
@pytest.mark.parametrize("strategy", ["kafka", "minimal"])
def test_what_moves_is_planned_from_its_replicas_before_the_move(
    cluster: Cluster, tmp_path: Path, strategy: str
) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"t"}]}')
    flags = ["--topics-to-move-json-file", topics, "--broker-list", "1,2,3,4", "--strategy", strategy]
    cluster.moving = {0: ([3, 4, 1, 2], [3, 4], [1, 2]), 2: ([1, 3, 2], [3], [2])}
    found = cluster.run("generate", *flags)
    assert found.exit_code == 0, found.output
    current, proposed = (orjson.loads(x)["partitions"] for x in found.stdout.splitlines() if x.startswith("{"))
    assert [p["replicas"] for p in current] == [[1, 2], [2, 1], [1, 2]]
    assert [len(p["replicas"]) for p in proposed] == [2, 2, 2]
    assert found.stderr.startswith("[t,0],[t,2]: being moved; planned from the replicas before the move\n")
    ((_, asked),) = cluster.asked("ListPartitionReassignments")
    assert [(t.topic, t.partitions) for t in asked.topics] == [("t", [0, 1, 2])]
    for broker in cluster.brokers:
        broker.answers[listing.API.key] = lambda _: listing.ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[]
        )
    cluster.moving.clear()
    untold = cluster.run("generate", *flags)
    assert untold.exit_code == 0 and "whether any of it is being moved is not known" in untold.stderr, untold.output


@pytest.mark.spec("ADM-33")
def test_a_flag_of_another_mode_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    found = cluster.run("verify", "--reassignment-json-file", _plan(tmp_path, {0: [1, 2]}), "--additional")
    assert found.exit_code == 2
    assert """Option "[additional]" can't be used with action "[verify]\"""" in found.stderr
    assert all(not broker.asked for broker in cluster.brokers)
