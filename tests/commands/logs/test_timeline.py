"""``kt logs timeline`` as a user meets it."""

import json
from pathlib import Path

import pytest

from tests.commands.logs.tools import EXAMPLE, NoSpark, document, run, without_spark
from tests.core.statelog.logs import CAPTURES, record


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> type[NoSpark]:
    return without_spark(monkeypatch)


@pytest.mark.spec("SCL-17X")
def test_one_line_for_each_fact_with_its_witnesses() -> None:
    result = run("timeline", "--logs", EXAMPLE, "--topic", "payments", "--partition", 2)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        "2026-11-21 16:06:55,717  payments-2            created         replicas 2,1; by controller 1 epoch 1  [c1 +0 ms]",
        "2026-11-21 16:06:55,850  payments-2            leader elected  none -> 2, leader epoch 0, ISR 2,1; by controller 1 "
        "epoch 1  [c1 +0 2 +5 1 +19 3 +144 ms]",
        "2026-11-21 16:07:37,714  payments-2            OFFLINE         leader lost; by controller 1 epoch 1  [c1 +0 ms]",
        "2026-11-21 16:07:38,235  payments-2            leader elected  2 -> 1, leader epoch 1, ISR 1; by controller 1 "
        "epoch 1  [c1 +0 1 +8 3 +787 ms]",
        "2026-11-21 16:07:38,235  payments-2            ISR shrunk      -2 -> ISR 1; by controller 1 epoch 1  "
        "[c1 +0 1 +8 3 +787 ms]",
    ]
    assert lines[-1] == (
        "2026-11-21 16:10:37,990  payments-2            at the end      leader 2, leader epoch 4, ISR 1,2"
    )
    assert "1 partition, from 1349 lines in 3 files" in result.stderr


@pytest.mark.spec("SCL-17X", "SCL-19X")
def test_the_example_ends_as_zookeeper_had_it() -> None:
    states = json.loads((EXAMPLE / "states-at-the-end.json").read_text())
    items = document("timeline", "--logs", EXAMPLE)["items"]
    final = {f"{i['topic']}-{i['partition']}": i for i in items if i["fact"] == "final"}
    assert {name: (i["leader"], i["leader_epoch"], i["isr"]) for name, i in final.items()} == {
        name: (state["leader"], state["leader_epoch"], state["isr"]) for name, state in states.items()
    }


@pytest.mark.spec("SCL-17X", "COM-4X")
def test_json_and_tsv_hold_the_same_facts_as_text() -> None:
    items = document("timeline", "--logs", EXAMPLE, "--by-time")["items"]
    assert [item["time"] for item in items] == sorted(item["time"] for item in items)
    witness = next(item for item in items if item["fact"] == "elected")["witnesses"][0]
    assert set(witness) == {"broker", "role", "time", "late_ms", "file", "line"}
    assert Path(witness["file"]).is_file()
    rows = run("timeline", "--logs", EXAMPLE, "--by-time", "--output", "tsv").stdout.splitlines()
    assert len(rows) == len(items) + 1
    assert {len(row.split("\t")) for row in rows} == {28}
    text = run("timeline", "--logs", EXAMPLE, "--by-time").stdout.splitlines()
    assert len(text) == len(items)


@pytest.mark.spec("SCL-17X", "SCL-4")
def test_times_choose_the_facts_and_the_end_shows_the_state_of_that_moment() -> None:
    bounds = ("--start-time", "2026-11-21 16:07:38,000", "--end-time", "2026-11-21 16:09:00,000")
    items = document("timeline", "--logs", EXAMPLE, "--topic", "clicks", *bounds)["items"]
    assert {item["time"] for item in items if item["fact"] != "final"} <= {
        i["time"] for i in items if i["time"] >= bounds[1]
    }
    assert {item["time"] for item in items if item["fact"] == "final"} == {bounds[3]}
    states = {item["partition"]: item["reason"] for item in items if item["fact"] == "final"}
    assert states == {0: "no leader", 1: "no leader", 2: None}
    edges = ("--start-time", "2026-11-21 16:07:37,714", "--end-time", "2026-11-21 16:07:38,235")
    items = document("timeline", "--logs", EXAMPLE, "--topic", "payments", "--partition", 2, *edges)["items"]
    assert [(item["time"][17:], item["fact"]) for item in items] == [
        ("37,714", "offline"),
        ("38,235", "elected"),
        ("38,235", "isr_shrunk"),
        ("38,235", "final"),
    ]


@pytest.mark.spec("SCL-17X", "SCL-2")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "exactly one of the two options"),
        (["--logs", str(EXAMPLE), "--partition", "1"], "--topic needs to be provided"),
        (["--logs", str(EXAMPLE), "--topic", "a", "--topic-regex", "a"], "exclude each other"),
        (["--logs", str(EXAMPLE), "--tz", "Europe/Nowhere"], "no such time zone"),
        (
            [
                "--logs",
                str(EXAMPLE),
                "--start-time",
                "2026-11-21 16:08:00,000",
                "--end-time",
                "2026-11-21 16:07:00,000",
            ],
            "is after --end-time",
        ),
    ],
)
def test_usage_errors_exit_2_before_spark_starts(arguments: list[str], told: str, no_spark: type[NoSpark]) -> None:
    result = run("timeline", *arguments)
    assert (result.exit_code, result.stdout, no_spark.started) == (2, "", 0)
    assert told in result.stderr


@pytest.mark.spec("SCL-17X", "SCL-23X", "SCL-25X")
def test_nothing_found_and_lines_of_unknown_form_are_said(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(record("00,001", "[Broker id=1] what is this"))
    result = run("timeline", "--logs", log, "--topic", "x")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        f"cannot say: 1 of 1 dated lines are of unknown form (first: {log}:1); read: nothing in these logs about topic x"
    )
    assert "1 of unknown form" in result.stderr
    assert run("timeline", "--logs", log, "--strict").exit_code == 1


@pytest.mark.spec("SCL-17X", "SCL-22X")
def test_out_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    result = run("timeline", "--logs", EXAMPLE, "--topic", "clicks", "--out", tmp_path / "facts")
    assert result.stdout == ""
    assert (tmp_path / "facts").read_text() == run("timeline", "--logs", EXAMPLE, "--topic", "clicks").stdout
    assert run("timeline", "--logs", EXAMPLE, "--out", tmp_path / "no" / "facts").exit_code == 1


@pytest.mark.spec("SCL-25X")
def test_nothing_about_a_partition_is_not_that_nothing_happened_to_it() -> None:
    result = run("timeline", "--logs", EXAMPLE, "--topic", "payments", "--partition", 99)
    assert (result.exit_code, result.stdout) == (0, "Nothing in these logs about payments-99\n")
    told = document("timeline", "--logs", EXAMPLE, "--topic", "payments", "--partition", 99)
    assert told["verdict"] == {"state": "complete", "reasons": [], "asked": "payments-99"}


@pytest.mark.spec("SCL-25X")
def test_a_broker_without_a_file_is_named_before_the_facts(tmp_path: Path) -> None:
    state = "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 7), zkVersion=0)"
    (tmp_path / "state-change.log").write_bytes(
        record(
            "00,001",
            f"[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state {state}",
        )
    )
    lines = run("timeline", "--logs", tmp_path).stdout.splitlines()
    assert lines[0] == "no log of broker 7 is here"
    told = document("timeline", "--logs", tmp_path)["verdict"]
    assert (told["state"], told["reasons"][0]) == ("partial", lines[0])


@pytest.mark.spec("SCL-21X")
def test_a_topic_regex_is_of_whole_names() -> None:
    assert run("timeline", "--logs", EXAMPLE, "--topic-regex", "click|lick.*").stdout == (
        "Nothing in these logs about topics click|lick.*\n"
    )
    found = document("timeline", "--logs", EXAMPLE, "--topic-regex", "click.|x")["items"]
    assert {item["topic"] for item in found} == {"clicks"}


@pytest.mark.spec("SCL-17X")
def test_each_kind_of_fact_has_its_words(tmp_path: Path) -> None:
    def online(time: str, before: str, leader: int, epoch: int, isr: str) -> bytes:
        state = f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({isr}), zkVersion={epoch})"
        return said(time, f"Changed partition t-0 from {before} to OnlinePartition with state {state}")

    def said(time: str, text: str) -> bytes:
        return record(time, f"[Controller id=1 epoch=7] {text}")

    moved = "ReplicaAssignment(replicas=1,2,4, addingReplicas=4, removingReplicas=3)"
    states = "from OfflinePartition to OnlinePartition"
    failed = said("12,000", f"Controller 1 epoch 7 failed to change state for partition t-0 {states}")
    failed += b"kafka.X: none is alive\n"
    (tmp_path / "state-change.log").write_bytes(
        said(
            "00,000",
            "Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2,3",
        )
        + online("00,010", "NewPartition", 1, 0, "1, 2, 3")
        + said(
            "05,000",
            "Sent LeaderAndIsr request (Leader:1,ISR:1,2,3,LeaderEpoch:1,ZkVersion:1,ControllerEpoch:7) with new replica "
            f"assignment {moved} to leader 1 for partition being reassigned t-0",
        )
        + said("10,000", "Changed partition t-0 state from OnlinePartition to OfflinePartition")
        + failed
        + failed.replace(b"12,000", b"14,500")
        + online("20,000", "OfflinePartition", 2, 2, "2, 4")
        + online("25,000", "OnlinePartition", 2, 3, "2, 4, 1")
        + said("30,000", "Changed partition t-0 state from OnlinePartition to OfflinePartition")
        + said("30,001", "Changed partition t-0 state from OfflinePartition to NonExistentPartition")
    )
    lines = run("timeline", "--logs", tmp_path, "--topic", "t").stdout.splitlines()
    by = "by controller 1 epoch 7"
    assert [line[17:].split("  [")[0].split() for line in lines if line.startswith("2016")] == [
        text.split()
        for text in (
            f"00,000 t-0 created replicas 1,2,3; {by}",
            f"00,010 t-0 leader elected none -> 1, leader epoch 0, ISR 1,2,3; {by}",
            f"05,000 t-0 reassigned replicas 1,2,3 -> 1,2,4; {by}",
            f"10,000 t-0 OFFLINE leader lost; {by}",
            "12,000 t-0 FAILED partition change failed: kafka.X: none is alive (2 times until 10:00:14,500)",
            f"20,000 t-0 leader elected 1 -> 2, leader epoch 2, ISR 2,4; {by}",
            f"20,000 t-0 ISR shrunk -1 -3 -> ISR 2,4; {by}",
            f"20,000 t-0 ISR grown +4 -> ISR 2,4; {by}",
            f"25,000 t-0 ISR grown +1 -> ISR 2,4,1; {by}",
            f"30,001 t-0 deleted {by}",
            "30,001 t-0 at the end deleted",
        )
    ]


@pytest.mark.spec("SCL-17X")
def test_each_rarer_kind_of_fact_has_its_words(tmp_path: Path) -> None:
    def cached(time: str, leader: int, isr: str, version: int) -> bytes:
        state = f"controllerEpoch=1, leader={leader}, leaderEpoch=4, isr=[{isr}], zkVersion={version}"
        return record(
            time,
            f"[Broker id=3] Cached leader info PartitionState({state}, replicas=[1, 2], offlineReplicas=[]) for partition "
            "t-0 in response to UpdateMetadata request sent by controller 1 epoch 1 with correlation id 1",
        )

    (tmp_path / "state-change.log").write_bytes(
        cached("00,000", 1, "1, 2", 5)
        + cached("10,000", 1, "1", 8)
        + record("20,000", "[Controller id=1] Mark replicas t-0 on broker 2 as offline", "INFO")
        + record(
            "30,000",
            "[Broker id=2] Ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 1 for partition t-0 "
            "since its associated leader epoch 3 is smaller than the current leader epoch 4",
            "WARN",
        )
        + cached("40,000", -2, "1", 9)
    )

    def told(*flags: str) -> list[tuple[str, list[str]]]:
        lines = run("timeline", "--logs", tmp_path, "--topic", "t", *flags).stdout.splitlines()
        dated = [line.split("  [")[0] for line in lines if line.startswith("2016")]
        return [(line[17:23], line[23:].split("t-0", 1)[1].split()) for line in dated]

    words = [
        ("00,000", "first seen leader 1, leader epoch 4, ISR 1,2"),
        ("10,000", "not told 2 changes not in these logs"),
        ("10,000", "ISR shrunk -2 -> ISR 1; by leader 1"),
        ("20,000", "DISK FAILED replicas marked offline: offline"),
        (
            "30,000",
            "ignored leader and isr ignored: its associated leader epoch 3 is smaller than the current leader epoch 4",
        ),
        ("40,000", "being deleted by controller 1 epoch 1"),
        ("40,000", "at the end deleted"),
    ]
    wanted = [(time, text.split()) for time, text in words]
    assert told("--ignored") == wanted
    assert told() == [*wanted[:4], *wanted[5:]], "ignored requests are asked for"


@pytest.mark.spec("SCL-25X", "SCL-27X", "SCL-28X")
def test_gaps_unclean_elections_and_what_is_hidden_are_told(tmp_path: Path) -> None:
    logs = CAPTURES / "4.1.0" / "story"
    lines = run("timeline", "--logs", logs, "--topic", "solo", "--partition", 2).stdout.splitlines()
    assert lines[0] == "2 changes of partitions not in these logs (gaps in partition epochs)"
    assert [line for line in lines if "not told        1 change not in these logs" in line]
    assert [
        line
        for line in lines
        if "none -> 3, leader epoch 2, ISR 3 (UNCLEAN: records may be lost); told by repl" in line
    ]
    items = document("timeline", "--logs", logs, "--topic", "solo", "--partition", 2)["items"]
    assert {item["topic_id"] for item in items} == {"9YtsxfyJRBGv8-XeE5-eNQ"}
    assert {item["mode"] for item in items} == {"kraft"}
    assert (items[-1]["partition_epoch"], items[-1]["leader_recovery_state"]) == (6, "RECOVERING")
