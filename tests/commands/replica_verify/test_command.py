"""kt replica-verify as its users see it, against brokers that answer in real frames from lists of batches."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.shared.progress_line import ProgressLine
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.verification.fake_broker import FakeBroker, batch, batches, fake_cluster
from tests.core.zookeeper import cluster_nodes as nodes

T0 = TopicPartition("t", 0)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


@pytest.fixture(autouse=True)
def no_long_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for what never moves less long than on a real cluster."""
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.STALL_S", 0.2)


def run(brokers: Mapping[int, FakeBroker], *args: object) -> Result:
    addresses = next(iter(brokers.values())).addresses
    listed = ",".join(f"127.0.0.1:{port}" for port in addresses.values())
    flags = ["replica-verify", "--broker-list", listed, "--max-wait-ms", "50", *map(str, args)]
    return CliRunner().invoke(kt, flags)


def replicas(*logs: list[bytes]) -> dict[int, dict[TopicPartition, list[bytes]]]:
    return {broker: {T0: log} for broker, log in enumerate(logs, 1)}


@pytest.mark.spec("RPV-1", "RPV-2", "RPV-3", "RPV-7X", "RPV-11X")
def test_equal_replicas_read_from_their_own_brokers_as_a_debugging_consumer() -> None:
    same = batches(b"a", b"b", b"c")
    with fake_cluster(replicas(same, same, same)) as brokers:
        result = run(brokers, "--once", "--fetch-size", len(same[0]) + 10)
        assert result.exit_code == 0, result.output
        assert all(broker.replica_ids == {-2} for broker in brokers.values())
    lines = result.stdout.splitlines()
    assert re.fullmatch(TIME + ": verification process is started.", lines[0])
    assert lines[1:] == [
        "partition [t,0] equal: replicas 1,2,3, isr 1,2,3, offsets 0 to 3, 3 entries, 0 mismatches",
    ]


@pytest.mark.spec("RPV-5", "RPV-11X", "RPV-7X", "COM-9X")
def test_checksums_that_differ_are_all_told() -> None:
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), batches(b"x", b"b", b"y"))) as brokers:
        result = run(brokers, "--once", "--partition-form", "dash")
        as_json = run(brokers, "--once", "--output", "json")
    assert result.exit_code == 1
    told = [line for line in result.stdout.splitlines() if "unmatched" in line]
    assert len(told) == 2
    for line, offset in zip(told, (0, 2), strict=True):
        told_checksums = r"; replica 1's checksum \d+; replica 2's checksum \d+"
        assert re.fullmatch(TIME + rf": partition t-0 has unmatched checksum at offset {offset}" + told_checksums, line)
    (item,) = json.loads(as_json.stdout)["items"]
    assert (item["status"], item["entries"], [m["offset"] for m in item["mismatches"]]) == ("different", 3, [0, 2])


@pytest.mark.spec("RPV-5")
def test_offsets_that_differ_end_the_run_at_once() -> None:
    holed = [batch(0, b"a"), b"", batch(2, b"c")]
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), holed)) as brokers:
        result = run(brokers, "--time", "-2")
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert re.fullmatch(TIME + r": partition \[t,0\]: replica 1's offset 1 doesn't match replica 2's offset 2", last)


@pytest.mark.spec("RPV-4")
def test_reports_name_the_worst_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some rounds the replicas go different ways: that ends the endless run."""
    same = batches(b"a", b"b", b"c")
    with fake_cluster(replicas(same, same)) as brokers:
        answer = brokers[2].answer
        requests = 0

        def part_ways_later(key: int, version: int, request: object) -> object:
            nonlocal requests
            requests += 1
            if requests > 8:
                brokers[1].logs[T0] = [*same, batch(3, b"d"), batch(4, b"e")]
                brokers[2].logs[T0] = [*same, b"", batch(4, b"e")]
            return answer(key, version, request)

        monkeypatch.setattr(brokers[2], "answer", part_ways_later)
        result = run(brokers, "--time", "-2", "--report-interval-ms", "1")
    reports = [line for line in result.stdout.splitlines() if "max lag" in line]
    assert reports
    assert all(
        re.fullmatch(TIME + r": max lag is \d for partition \[t,0\] at offset \d among 1 partitions", line)
        for line in reports
    )
    assert reports[0].split(": ", 1)[1] == "max lag is 0 for partition [t,0] at offset 3 among 1 partitions"


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_is_down_is_reported_and_the_others_are_compared() -> None:
    same = batches(b"a", b"b")
    with fake_cluster(replicas(same, same, same), down=[2]) as brokers:
        result = run(brokers, "--once", "--output", "json")
        allowed = run(brokers, "--once", "--allow-missing")
    assert result.exit_code == 1
    (item,) = json.loads(result.stdout)["items"]
    assert (item["status"], item["entries"], list(item["unreachable"])) == ("unreachable", 2, ["2"])
    assert allowed.exit_code == 0 and "replica 2 is unreachable" in allowed.stderr


@pytest.mark.spec("RPV-7X")
def test_a_replica_that_is_behind_is_not_equal() -> None:
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), batches(b"a"))) as brokers:
        result = run(brokers, "--once")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == (
        "partition [t,0] incomplete: replicas 1,2, isr 1,2, offsets 0 to 1 of 3, 1 entries, 0 mismatches, lag 2: 2"
    )


@pytest.mark.spec("RPV-3", "RPV-11X")
def test_rotten_data_under_an_intact_checksum_is_found() -> None:
    good = batches(b"a", b"b")
    rotten = [good[0], good[1][:-2] + b"\xff" + good[1][-1:]]
    with fake_cluster(replicas(good, rotten)) as brokers:
        result = run(brokers, "--once")
    assert result.exit_code == 1
    assert "unmatched checksum at offset 1" in result.stdout and "replica 2's checksum -1" in result.stdout


@pytest.mark.spec("RPV-3", "RPV-11X")
@pytest.mark.parametrize(("copies", "where"), [(2, "1 and 2"), (1, "1")])
def test_rotten_data_is_found_where_every_replica_is_rotten(copies: int, where: str) -> None:
    good = batches(b"a", b"b")
    rotten = [good[0], good[1][:-2] + b"\xff" + good[1][-1:]]
    with fake_cluster(replicas(*[rotten] * copies)) as brokers:
        result = run(brokers, "--once")
        as_json = run(brokers, "--once", "--output", "json")
    assert result.exit_code == 1 == as_json.exit_code
    assert f"partition [t,0] is rotten at offset 1 on {where}: it does not fit its checksum" in result.stdout
    (item,) = json.loads(as_json.stdout)["items"]
    assert item["status"] == "different" and [m["kind"] for m in item["mismatches"]] == ["rotten"]


@pytest.mark.spec("RPV-1", "COM-3X")
def test_no_topic_is_an_error_and_a_bad_pattern_too() -> None:
    with fake_cluster(replicas(batches(b"a"))) as brokers:
        none = run(brokers, "--once", "--topic-white-list", "zzz")
        bad = run(brokers, "--once", "--topic-white-list", "(")
    assert none.exit_code == 1 and "No topics found." in none.stderr
    assert bad.exit_code == 1 and "( is an invalid regex." in bad.stderr


@pytest.mark.spec("RPV-8X", "RPV-2")
def test_the_layout_may_come_from_zookeeper(zk: ZooKeeper, zk_connect: str) -> None:
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 2)}, "u": {0: (1,)}})
    result = CliRunner().invoke(
        kt, ["replica-verify", "--zookeeper", zk_connect, "--topic-white-list", "t,u", "--once", "--output", "json"]
    )
    document = json.loads(result.stdout)
    items = document["items"]
    assert result.exit_code == 1 and document["cluster_id"] == "the-cluster"
    assert [(i["topic"], i["replicas"], list(i["unreachable"])) for i in items] == [
        ("t", [1, 2], ["1", "2"]),
        ("u", [1], ["1"]),
    ]


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--broker-list or --zookeeper is required"),
        (["--broker-list", "localhost"], "is not of the form host:port"),
        (["--broker-list", "localhost:1", "--allow-missing"], "need --once"),
    ],
)
def test_usage_errors(flags: list[str], message: str) -> None:
    result = CliRunner().invoke(kt, ["replica-verify", *flags])
    assert result.exit_code == 2 and message in result.stderr


def test_a_broker_too_old_is_told_apart_from_one_that_is_down() -> None:
    with fake_cluster(replicas(batches(b"a"), batches(b"a"))) as brokers:
        brokers[2].fetch_versions = (0, 2)
        result = run(brokers, "--once")
    assert "serves Fetch up to version 2, kt needs 3: is it older than Kafka 0.10.1?" in result.stderr


@pytest.mark.spec("RPV-6")
def test_an_endless_run_ends_with_an_interrupt() -> None:
    same = batches(b"a")
    with fake_cluster(replicas(same, same)) as brokers:
        listed = ",".join(f"127.0.0.1:{port}" for port in brokers[1].addresses.values())
        command = [sys.executable, "-m", "kafkatool", "replica-verify", "--broker-list", listed]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            assert "verification process is started." in child.stdout.readline()
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate(timeout=60)
        finally:
            child.kill()
            child.wait(60)
    assert child.returncode == 130 and stderr.strip() == "interrupted"


@pytest.mark.spec("RPV-7X")
def test_a_long_run_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.ProgressLine", partial(ProgressLine, interval_s=0))
    same = batches(b"a", b"b", b"c")
    with fake_cluster(replicas(same, same)) as brokers:
        result = run(brokers, "--once", "--fetch-size", len(same[0]))
    assert result.exit_code == 0
    assert re.search(r"0/1 partitions, 1 of 3 offsets, ETA \d+:\d\d", result.stderr)
    assert result.stderr.splitlines()[-1] == "1/1 partitions, 3 of 3 offsets, ETA 0:00"
