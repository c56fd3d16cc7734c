"""``kt logs timeline`` as a user meets it."""

import json
from pathlib import Path

import pytest

from tests.commands.logs.tools import EXAMPLE, NoSpark, document, run, without_spark
from tests.core.statelog.logs import record


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
    assert "1 partitions, from 1349 lines in 3 files" in result.stderr


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
    assert {len(row.split("\t")) for row in rows} == {20}
    text = run("timeline", "--logs", EXAMPLE, "--by-time").stdout.splitlines()
    assert len(text) == len(items)


@pytest.mark.spec("SCL-17X")
def test_times_choose_the_facts_and_the_end_shows_the_state_of_that_moment() -> None:
    bounds = ("--start-time", "2026-11-21 16:07:38,000", "--end-time", "2026-11-21 16:09:00,000")
    items = document("timeline", "--logs", EXAMPLE, "--topic", "clicks", *bounds)["items"]
    assert {item["time"] for item in items if item["fact"] != "final"} <= {
        i["time"] for i in items if i["time"] >= bounds[1]
    }
    assert {item["time"] for item in items if item["fact"] == "final"} == {bounds[3]}
    states = {item["partition"]: item["reason"] for item in items if item["fact"] == "final"}
    assert states == {0: "no leader", 1: "no leader", 2: None}


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


@pytest.mark.spec("SCL-17X", "SCL-23X")
def test_nothing_found_and_lines_of_unknown_form_are_said(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(record("00,001", "[Broker id=1] what is this"))
    result = run("timeline", "--logs", log, "--topic", "x")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the logs tell nothing about such a partition" in result.stderr
    assert "1 of unknown form" in result.stderr
    assert run("timeline", "--logs", log, "--strict").exit_code == 1


@pytest.mark.spec("SCL-17X", "SCL-22X")
def test_out_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    result = run("timeline", "--logs", EXAMPLE, "--topic", "clicks", "--out", tmp_path / "facts")
    assert result.stdout == ""
    assert (tmp_path / "facts").read_text() == run("timeline", "--logs", EXAMPLE, "--topic", "clicks").stdout
    assert run("timeline", "--logs", EXAMPLE, "--out", tmp_path / "no" / "facts").exit_code == 1
