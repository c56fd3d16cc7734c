"""kt replica-verify as its users see it, against brokers that answer in real frames from lists of batches."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.replica_verify.rendering import mismatch_text, report_item, report_line, unread_texts
from kafkatool.commands.shared.output import Output
from kafkatool.commands.shared.progress_line import ProgressLine
from kafkatool.core.client.connections import Connections
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification import comparison, replica_reader
from kafkatool.core.operations.verification.comparison import Layout, Mismatch, PartitionReport, Verifier
from kafkatool.core.operations.verification.replica_reader import layout_from_zookeeper
from kafkatool.core.planner.plan_files import bracketed
from kafkatool.core.protocol.messages import fetch
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.verification.fake_broker import FakeBroker, batch, batches, fake_cluster
from tests.core.zookeeper import cluster_nodes as nodes

T0 = TopicPartition("t", 0)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


@pytest.fixture(autouse=True)
def no_long_stall(unhurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for what never moves less long than on a real cluster."""
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.STALL_S", 0.2)


def run(brokers: Mapping[int, FakeBroker], *args: object) -> Result:
    addresses = next(iter(brokers.values())).addresses
    listed = ",".join(f"127.0.0.1:{port}" for port in addresses.values())
    flags = ["replica-verify", "--broker-list", listed, "--max-wait-ms", "50", *map(str, args)]
    return CliRunner().invoke(kt, flags)


def replicas(*logs: list[bytes]) -> dict[int, dict[TopicPartition, list[bytes]]]:
    return {broker: {T0: log} for broker, log in enumerate(logs, 1)}


@pytest.mark.spec("RPV-1", "RPV-2", "RPV-3", "RPV-4", "RPV-7X", "RPV-11X", "COM-2", "COM-9X", "ADM-51")
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


@pytest.mark.spec("RPV-1", "RPV-5", "RPV-11X", "RPV-7X", "COM-2", "COM-9X")
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
    assert [list(m["replicas"]) for m in item["mismatches"]] == [["1", "2"]] * 2
    assert (item["replicas"], item["start"], item["verified"], item["lag"]) == ([1, 2], 0, 3, {"1": 0, "2": 0})


@pytest.mark.spec("RPV-5")
@pytest.mark.parametrize("batches_of_a_fetch", [1, 3])
def test_offsets_that_differ_end_the_run_at_once(batches_of_a_fetch: int) -> None:
    holed = [batch(0, b"z"), b"", batch(2, b"c")]
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), holed)) as brokers:
        result = run(brokers, "--time", "-2", "--fetch-size", batches_of_a_fetch * len(holed[0]))
    assert result.exit_code == 1
    _, checksum, last = result.stdout.splitlines()
    assert "has unmatched checksum at offset 0" in checksum, "that is told and it goes on"
    assert re.fullmatch(TIME + r": partition \[t,0\]: replica 1's offset 1 doesn't match replica 2's offset 2", last)


@pytest.mark.spec("RPV-5")
def test_each_replica_is_told_with_its_own_value() -> None:
    assert mismatch_text(Mismatch(T0, "checksum", 5, 1, 111, 2, 222), bracketed) == (
        "partition [t,0] has unmatched checksum at offset 5; replica 1's checksum 111; replica 2's checksum 222"
    )
    assert mismatch_text(Mismatch(T0, "offset", 5, 1, 5, 2, 6), bracketed) == (
        "partition [t,0]: replica 1's offset 5 doesn't match replica 2's offset 6"
    )


def part_ways_later(brokers: Mapping[int, FakeBroker], same: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the replicas go different ways after some rounds, which ends an endless run."""
    answer, requests = brokers[2].answer, 0

    def counted(key: int, version: int, request: object) -> object:
        nonlocal requests
        requests += 1
        if requests > 8:
            brokers[1].logs[T0] = [*same, batch(3, b"d"), batch(4, b"e")]
            brokers[2].logs[T0] = [*same, b"", batch(4, b"e")]
        return answer(key, version, request)

    monkeypatch.setattr(brokers[2], "answer", counted)


@pytest.mark.spec("RPV-4")
def test_reports_name_the_worst_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some rounds the replicas go different ways: that ends the endless run."""
    same, behind = batches(b"a", b"b", b"c"), TopicPartition("u", 0)
    with fake_cluster({1: {T0: same, behind: same}, 2: {T0: same, behind: same[:1]}}) as brokers:
        part_ways_later(brokers, same, monkeypatch)
        result = run(brokers, "--time", "-2", "--report-interval-ms", "1")
    reports = [line for line in result.stdout.splitlines() if "max lag" in line]
    said = TIME + re.escape(": max lag is 2 for partition [u,0] at offset 1 among 2 partitions")
    assert [bool(re.fullmatch(said, line)) for line in reports[:2]] == [True, True], "while all is as at first"


@pytest.mark.spec("RPV-4")
def test_there_is_no_report_before_its_time() -> None:
    holed = [batch(0, b"a"), b"", batch(2, b"c")]
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), holed)) as brokers:
        result = run(brokers, "--time", "-2", "--report-interval-ms", 3_600_000)
    assert "max lag" not in result.stdout


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_is_down_is_reported_and_the_others_are_compared() -> None:
    same = batches(b"a", b"b")
    with fake_cluster(replicas(same, same, same), down=[2]) as brokers:
        result = run(brokers, "--once", "--output", "json")
        allowed = run(brokers, "--once", "--allow-missing")
    assert result.exit_code == 1
    (item,) = json.loads(result.stdout)["items"]
    assert (item["status"], item["entries"], list(item["unreachable"])) == ("unreachable", 2, ["2"])
    why = item["unreachable"]["2"]
    assert why.startswith("cannot connect to 127.0.0.1:")
    assert allowed.exit_code == 0 and f"replica 2 is unreachable, e.g. of partition [t,0]: {why}\n" in allowed.stderr


@pytest.mark.spec("RPV-9X", "RPV-7X")
@pytest.mark.parametrize("led_by_2", [True, False])
def test_no_partition_of_a_broker_that_is_down_is_equal_whether_it_leads_or_not(led_by_2: bool) -> None:
    same = batches(b"a", b"b")
    followed, led, elsewhere = T0, TopicPartition("t", 1), TopicPartition("u", 0)
    held: dict[int, list[TopicPartition]] = {1: [followed, elsewhere], 2: [followed], 3: [elsewhere]}
    if led_by_2:
        held[2].append(led)
        held[3].append(led)
    with fake_cluster({b: dict.fromkeys(partitions, same) for b, partitions in held.items()}, down=[2]) as brokers:
        result = run(brokers, "--once", "--output", "json")
    assert result.exit_code == 1
    items = {
        (i["topic"], i["partition"]): (i["status"], list(i["unreachable"])) for i in json.loads(result.stdout)["items"]
    }
    down = ("unreachable", ["2"])
    assert items == {followed: down, elsewhere: ("equal", [])} | ({led: down} if led_by_2 else {})


@pytest.mark.spec("RPV-9X")
def test_a_missing_replica_is_forgiven_and_nothing_else() -> None:
    same, other, short = batches(b"a", b"b"), batches(b"a", b"x"), batches(b"a")
    for logs in (replicas(same, same, other), replicas(same, same, short)):
        with fake_cluster(logs, down=[2]) as brokers:
            assert run(brokers, "--once", "--allow-missing").exit_code == 1


NO_HEADER = batch(0, b"a")[:8] + bytes(4) + batch(0, b"a")[12:]
"""A batch of no length: where it ends, and what comes after it, nobody can tell."""


def answering_a_code(broker: FakeBroker, code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the broker answer each fetch with that code, as for a directory that is offline."""

    def read(_topic: str, wanted: Any) -> fetch.FetchResponsePartition:
        return fetch.FetchResponsePartition(partition=wanted.partition, error_code=code, high_watermark=-1)

    monkeypatch.setattr(broker, "_read", read)


@pytest.mark.spec("RPV-9X", "RPV-7X")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (None, "corrupt data: batch at byte 0 has an impossible length of 0"),
        (ErrorCode.CORRUPT_MESSAGE, "CORRUPT_MESSAGE"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not permitted: Read on topic t (broker 2 as User:ANONYMOUS)"),
    ],
    ids=["rotten header", "corrupt", "directory offline", "refused"],
)
def test_what_is_damaged_or_refused_is_never_forgiven(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode | None, why: str
) -> None:
    same = batches(b"a", b"b")
    with fake_cluster(replicas(same, [NO_HEADER, same[1]], same), down=[3]) as brokers:
        if code is not None:
            answering_a_code(brokers[2], code, monkeypatch)
        result = run(brokers, "--once", "--allow-missing")
        as_json = run(brokers, "--once", "--allow-missing", "--output", "json")
    assert result.exit_code == 1 == as_json.exit_code
    assert result.stdout.splitlines()[1] == (
        "partition [t,0] unreadable: replicas 1,2,3, isr 1,2,3, offsets 0 to 2, 2 entries, 0 mismatches, "
        "unreachable 3, unreadable 2"
    )
    assert f"replica 2 cannot be read, e.g. of partition [t,0]: {why}\n" in result.stderr
    (item,) = json.loads(as_json.stdout)["items"]
    assert (item["status"], item["unreadable"], list(item["unreachable"])) == ("unreadable", {"2": why}, ["3"])


@pytest.mark.spec("RPV-6", "RPV-9X")
def test_an_endless_run_tells_of_a_broker_that_is_down_and_compares_the_others() -> None:
    holed = [batch(0, b"a"), b"", batch(2, b"c")]
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), holed, holed), down=[3]) as brokers:
        result = run(brokers, "--time", "-2")
    assert result.exit_code == 1 and "replica 3 is unreachable, e.g. of partition [t,0]" in result.stderr
    assert "replica 1's offset 1 doesn't match replica 2's offset 2" in result.stdout


@pytest.mark.spec("RPV-4", "RPV-9X")
def test_each_report_of_an_endless_run_names_a_broker_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "RETRY_S", 3600.0)  # none is made between two reports, however late one is
    same = batches(b"a", b"b", b"c")
    with fake_cluster(replicas(same, same, same), down=[3]) as brokers:
        part_ways_later(brokers, same, monkeypatch)
        result = run(brokers, "--time", "-2", "--report-interval-ms", "1")
    reports = result.stdout.count("max lag")
    assert reports > 1 and result.stderr.count("compared without broker 3: cannot connect to 127.0.0.1:") == reports


@pytest.mark.spec("RPV-4", "RPV-9X")
def test_each_report_of_an_endless_run_says_what_is_not_read_and_tells_no_lag_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "RETRY_S", 3600.0)
    same, alone, offline = batches(b"a", b"b", b"c"), TopicPartition("u", 0), TopicPartition("v", 0)
    held = {1: [T0], 2: [T0], 3: [alone], 4: [offline]}
    with fake_cluster({b: dict.fromkeys(held[b], same) for b in held}, down=[3]) as brokers:
        answering_a_code(brokers[4], ErrorCode.KAFKA_STORAGE_ERROR, monkeypatch)
        part_ways_later(brokers, same, monkeypatch)
        result = run(brokers, "--time", "-2", "--report-interval-ms", "1")
    lags = [line for line in result.stdout.splitlines() if "max lag" in line]
    assert len(lags) > 1
    assert all(
        re.fullmatch(TIME + r": max lag is \d for partition \[t,0\] at offset \d among 1 partitions", s) for s in lags
    )
    said = [line.partition(": not read: ")[2] for line in result.stderr.splitlines() if ": not read: " in line]
    assert said[::2] == ["2 of 3 partitions: [u,0], [v,0]"] * len(lags)
    replica_texts = r"2 of 4 replicas: replica 3 of \[u,0\] \(cannot .*\), replica 4 of \[v,0\] \(KAFKA_STORAGE_ERROR\)"
    assert len(said[1::2]) == len(lags) and all(re.fullmatch(replica_texts, text) for text in said[1::2])


@pytest.mark.spec("RPV-4", "RPV-9X")
def test_where_nothing_is_read_no_lag_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = 0

    def note(_out: Output, text: str) -> None:
        nonlocal told
        told += "not read: 1 of 1 partition: [t,0]" in text
        if told == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Output, "note", note)
    with fake_cluster(replicas(batches(b"a"))) as brokers:
        answering_a_code(brokers[1], ErrorCode.KAFKA_STORAGE_ERROR, monkeypatch)
        result = run(brokers, "--report-interval-ms", "1")
    assert told == 3 and "max lag" not in result.stdout


@pytest.mark.spec("RPV-9X")
def test_of_what_is_not_read_the_first_are_named() -> None:
    reports = [PartitionReport(TopicPartition("t", n), (1, 2), (1,)) for n in range(5)]
    for report in reports:
        report.note_unread(2, "why")
    reports[4].high_watermarks[1] = 7
    named = ", ".join(f"replica 2 of [t,{n}] (why)" for n in range(3))
    assert list(unread_texts(reports, bracketed)) == [
        "not read: 4 of 5 partitions: [t,0], [t,1], [t,2] and 1 more",
        f"not read: 5 of 10 replicas: {named} and 2 more",
    ]
    assert list(unread_texts(reports[4:], bracketed)) == ["not read: 1 of 2 replicas: replica 2 of [t,4] (why)"]
    reports[4].unread.clear()
    assert not list(unread_texts(reports[4:], bracketed))


@pytest.mark.spec("RPV-10X", "RPV-11X")
def test_a_row_tells_what_was_skipped_and_how_far_each_replica_is() -> None:
    report = PartitionReport(T0, (1, 2), (1,), start=0, offset=8, end=9, entries=2)
    report.skipped.append((0, 6))
    report.high_watermarks.update({1: 9, 2: 8})
    assert report_line(report, lambda tp: f"[{tp.topic},{tp.partition}]") == (
        "partition [t,0] incomplete: replicas 1,2, isr 1, offsets 0 to 8 of 9, 2 entries, 0 mismatches, lag 2: 1, "
        "skipped 0 to 5"
    )
    item = report_item(report)
    assert (item["skipped"], item["lag"], item["isr"], item["entries"]) == ([[0, 6]], {"1": 0, "2": 1}, (1,), 2)


@pytest.mark.spec("RPV-10X", "RPV-6")
def test_a_range_that_is_skipped_is_printed_also_without_once() -> None:
    whole, holed = batches(b"a", b"b", b"c", b"d"), [b"", b"", batch(2, b"c"), b""]
    with fake_cluster(replicas(whole, [*holed, batch(4, b"e")])) as brokers:
        brokers[2].start = 2
        brokers[1].logs[T0] = [*whole, batch(4, b"e")]
        result = run(brokers, "--time", "-2")
    assert result.exit_code == 1 and "replica 1's offset 3 doesn't match replica 2's offset 4" in result.stdout
    assert "partition [t,0]: offsets 0 to 1 are not on every replica\n" in result.stderr


@pytest.mark.spec("ADM-52")
def test_what_is_in_tiered_storage_is_left_out_and_the_range_printed() -> None:
    with fake_cluster(replicas(batches(b"a", b"b", b"c", b"d"), batches(b"a", b"X", b"c", b"d"))) as brokers:
        brokers[1].local_start = 1
        brokers[
            2
        ].local_start = 2  # before that its copy is not asked for, so the difference there is none of a replica
        result = run(brokers, "--once")
    assert result.exit_code == 0, result.output
    assert "partition [t,0]: offsets 0 to 1 are not on every replica\n" in result.stderr


@pytest.mark.spec("RPV-2", "RPV-7X")
@pytest.mark.parametrize(
    ("flags", "time_ms"),
    [((), -1), (("--once",), -2), (("--time", "-2"), -2), (("--once", "--time", "-1"), -1), (("--time", "1234"), 1234)],
)
def test_it_starts_at_the_latest_and_once_at_the_earliest_unless_told(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], time_ms: int
) -> None:
    begun: list[int] = []

    def begin(_: Verifier, timestamp_ms: int) -> None:
        begun.append(timestamp_ms)
        raise KeyboardInterrupt

    monkeypatch.setattr(Verifier, "begin", begin)
    with fake_cluster(replicas(batches(b"a"))) as brokers:
        run(brokers, *flags)
    assert begun == [time_ms]


@pytest.mark.spec("RPV-7X")
def test_a_replica_that_is_behind_is_not_equal() -> None:
    with fake_cluster(replicas(batches(b"a", b"b", b"c"), batches(b"a"))) as brokers:
        result = run(brokers, "--once")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == (
        "partition [t,0] incomplete: replicas 1,2, isr 1,2, offsets 0 to 1 of 3, 1 entry, 0 mismatches, lag 2: 2"
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
    with fake_cluster({1: {TopicPartition(topic, 0): batches(b"a") for topic in "tuv"}}) as brokers:
        two = run(brokers, "--once", "--topic-white-list", "t|v", "--output", "json")
    assert [item["topic"] for item in json.loads(two.stdout)["items"]] == ["t", "v"]
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


@pytest.mark.spec("RPV-8X")
def test_all_of_the_layout_is_in_zookeeper(zk: ZooKeeper) -> None:
    u0 = TopicPartition("u", 0)
    nodes.make_cluster(
        zk, brokers=(1, 2), topics={"t": {0: (1, 2)}, "u": {0: (2, 3)}, "x": {0: (1,)}}, states={T0: (2, (2,))}
    )
    zk.delete("/brokers/topics/u/partitions/0/state")
    assert layout_from_zookeeper(zk, lambda topics: [t for t in topics if t != "x"], Connections()) == Layout(
        {1: ("127.0.0.1", 1), 2: ("127.0.0.1", 1)},
        {T0: (1, 2), u0: (2, 3)},
        {T0: 2, u0: None},
        {T0: (2,), u0: ()},
        "the-cluster",
    )


@pytest.mark.spec("COM-3X", "RPV-7X")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--once", "--broker-list", "localhost"], "is not of the form host:port"),
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
        allowed = run(brokers, "--once", "--allow-missing")
    assert "serves Fetch up to version 2, kt needs 3: is it older than Kafka 0.10.1?" in result.stderr
    assert " unreadable: replicas 1,2, " in allowed.stdout and allowed.exit_code == 1


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


@pytest.mark.spec("RPV-12X")
def test_no_broker_is_read_faster_than_it_may_be_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now, read, requests = [100.0], [0], list[tuple[int, float, int]]()

    class Passing(threading.Event):
        """Time passes when it is waited for."""

        def wait(self, timeout: float | None = None) -> bool:
            now[0] += timeout or 0
            return self.is_set()

    monkeypatch.setattr(replica_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(replica_reader, "threading", SimpleNamespace(Event=Passing))
    log = batches(*(b"%d" % n for n in range(10)))
    with fake_cluster(replicas(log)) as brokers:
        answer = brokers[1].answer

        def noted(key: int, version: int, request: Any) -> Any:
            found = answer(key, version, request)
            if key == fetch.API.key:
                requests.append((request.max_bytes, now[0] - 100, read[0]))
                read[0] += sum(len(p.records or b"") for t in found.topics for p in t.partitions)
            return found

        monkeypatch.setattr(brokers[1], "answer", noted)
        result = run(brokers, "--once", "--fetch-size", len(log[0]), "--max-bytes-per-second", 200)
    assert result.exit_code == 0, result.output
    assert read[0] == sum(map(len, log)) and len(requests) >= 10
    assert {most for most, _, _ in requests} == {200}, "what a second allows"
    assert [s for _, s, _ in requests] == [pytest.approx(before / 200) for _, _, before in requests]


@pytest.mark.spec("RPV-7X")
def test_a_long_run_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.ProgressLine", partial(ProgressLine, interval_s=0))
    same = batches(b"a", b"b", b"c")
    with fake_cluster(replicas(same, same)) as brokers:
        result = run(brokers, "--once", "--fetch-size", len(same[0]))
    assert result.exit_code == 0
    assert re.search(r"0/1 partitions, 1 of 3 offsets, ETA \d+:\d\d", result.stderr)
    assert result.stderr.splitlines()[-1] == "1/1 partitions, 3 of 3 offsets, ETA 0:00"
