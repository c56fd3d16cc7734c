"""Rows: their schema, what stands in them, and their order."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.merging.rows import COLUMNS, REPEATED_TEXT_BYTES
from kafkatool.core.statelog.sources.clocks import clocks
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import NEWER, VERSIONS, InProcess, lines_of, record, source, story, written
from tests.paths import ROOT

SCHEMA = ROOT / "docs" / "logs-rows.schema.json"
CREATED = (
    "[Controller id=3 epoch=7] Changed partition a-1.b-0 from NewPartition to OnlinePartition with state "
    "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0)"
)


def rows_of(
    sources: tuple[Source, ...] | list[Source],
    directory: Path,
    selection: Selection = Selection(),  # noqa: B008 -- frozen
    *,
    zones: tuple[str, ...] = (),
    chunk_bytes: int = 1 << 20,
) -> tuple[list[dict[str, Any]], Counts]:
    merged = merge_ordered(
        Logs(tuple(sources), clocks(sources, zones)),
        selection,
        Here(InProcess(), directory),
        as_rows=True,
        chunk_bytes=chunk_bytes,
    )
    rows = [json.loads(line) for line in written(merged.parts).splitlines()]
    assert len(rows) == merged.rows
    return rows, merged.counts


@pytest.mark.spec("SCL-16X", "SCL-27X")
def test_the_schema_file_and_the_columns_agree() -> None:
    schema = json.loads(SCHEMA.read_text())
    properties = schema["properties"]
    assert list(properties) == schema["required"] == [column.name for column in COLUMNS]
    assert schema["additionalProperties"] is False
    for column in COLUMNS:
        assert column.json_type in properties[column.name]["type"]
        assert properties[column.name]["description"] == column.meaning


@pytest.mark.spec("SCL-8", "SCL-12X", "SCL-16X", "SCL-24X", "SCL-27X")
@pytest.mark.parametrize("version", [*VERSIONS, *NEWER])
def test_every_row_of_a_real_log_fits_the_schema_and_leads_back_to_its_line(version: str, tmp_path: Path) -> None:
    types = {"string": str, "integer": int, "array": list}
    with spool() as own:
        opened = open_logs(story(version), own)
        rows, counts = rows_of(opened.sources, own)
        again, counts_again = rows_of(opened.sources, own, chunk_bytes=3000)
    assert (rows, counts) == (again, counts_again)
    assert counts.lines == counts.lines_written == counts.records + counts.continuation_lines
    assert counts.unknown_form == 0
    lines = {source.label: lines_of(Path(source.name)) for source in opened.sources}
    told = set()
    for row in rows:
        assert [type(row[c.name]) for c in COLUMNS if row[c.name] is not None] == [
            types[c.json_type] for c in COLUMNS if row[c.name] is not None
        ]
        assert lines[row["source"]][row["line"] - 1] == row["text"].split("\n")[0]
        assert row["event"]
        told.add((row["source"], row["line"]))
    assert len(told) == counts.records
    epochs = {row["controller_epoch"] for row in rows}
    assert epochs == ({None} if version == "4.1.0" else {None, 1} if version == "2.8.2" else {None, 1, 2})
    assert rows == sorted(rows, key=lambda row: row["time"])


@pytest.mark.spec("SCL-16X", "SCL-27X")
def test_a_row_holds_all_that_a_line_says(tmp_path: Path) -> None:
    log = source(tmp_path / "log", record("00,001", CREATED, "INFO") + b"\tat trace \xff\n", label="west")
    (row,), _ = rows_of([log], tmp_path)
    assert row == {
        "time": "2016-01-01T10:00:00.001",
        "level": "INFO",
        "actor": "controller",
        "actor_id": 3,
        "controller_epoch": 7,
        "event": "partition_online",
        "topic": "a-1.b",
        "partition": 0,
        "leader": 1,
        "isr": [1, 2],
        "replicas": None,
        "leader_epoch": 0,
        "correlation_id": None,
        "from_state": "NewPartition",
        "to_state": "OnlinePartition",
        "partition_epoch": 0,
        "topic_id": None,
        "leader_recovery_state": None,
        "adding_replicas": None,
        "removing_replicas": None,
        "mode": "zookeeper",
        "source": "west",
        "line": 1,
        "text": record("00,001", CREATED, "INFO").decode() + "\tat trace \ufffd",
    }


@pytest.mark.spec("SCL-16X")
def test_a_request_from_a_controller_and_lists_in_both_spellings(tmp_path: Path) -> None:
    received = (
        "Broker 1 received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=5, isr=[1, 2], "
        "zkVersion=0, replicas=[1, 2, 33]) correlation id 12 from controller 4 epoch 6 for partition [a-1.b,10]"
    )
    moved = (
        "Controller 1 epoch 3 sent LeaderAndIsr request (Leader:2,ISR:1,2,LeaderEpoch:9,ControllerEpoch:3) with new "
        "assigned replica list 2,3 to leader 2 for partition being reassigned [t,1]"
    )
    log = source(tmp_path / "log", record("00,001", received) + record("00,002", moved))
    (first, second), _ = rows_of([log], tmp_path)
    chosen = (
        "actor",
        "actor_id",
        "controller_epoch",
        "topic",
        "partition",
        "leader",
        "isr",
        "replicas",
        "leader_epoch",
    )
    assert [first[name] for name in chosen] == ["broker", 1, 6, "a-1.b", 10, 1, [1, 2], [1, 2, 33], 5]
    assert first["correlation_id"] == 12
    assert [second[name] for name in chosen] == ["controller", 1, 3, "t", 1, 2, [1, 2], [2, 3], 9]


@pytest.mark.spec("SCL-16X", "SCL-13X")
def test_one_row_for_each_partition_named_and_one_where_none_is(tmp_path: Path) -> None:
    content = (
        record("00,001", "[Controller id=1] Mark replicas a-1-0,b-12 on broker 2 as offline", "INFO")
        + record(
            "00,002",
            "[Controller id=1 epoch=3] Sending UpdateMetadata request to brokers HashSet(1, 2) for 3 partitions",
        )
        + record("00,003", "something else")
        + b"[2016-99-99 10:00:00,000] TRACE no such day\n"
    )
    rows, counts = rows_of([source(tmp_path / "log", content)], tmp_path)
    assert [(row["topic"], row["partition"], row["event"], row["line"]) for row in rows] == [
        ("a-1", 0, "replicas_marked_offline", 1),
        ("b", 12, "replicas_marked_offline", 1),
        (None, None, "update_metadata_sent", 2),
        (None, None, None, 3),
        (None, None, None, 4),
    ]
    assert rows[4]["time"] is None
    assert counts.unknown_form == 2


@pytest.mark.spec("SCL-16X", "SCL-22X")
def test_a_long_text_about_many_partitions_is_not_repeated_for_each(tmp_path: Path) -> None:
    named = ",".join(f"topic-{i}" for i in range(2000))
    log = source(tmp_path / "log", record("00,001", f"[Controller id=1] Mark replicas {named} on broker 2 as offline"))
    rows, _ = rows_of([log], tmp_path)
    assert len(rows) == 2000
    assert len(rows[0]["text"]) > REPEATED_TEXT_BYTES
    assert {row["text"] for row in rows[1:]} == {None}
    assert {row["line"] for row in rows} == {1}


@pytest.mark.spec("SCL-9X", "SCL-16X")
def test_lines_are_numbered_in_their_file_also_where_a_roll_cut_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "state-change.log.2016-01-01-10").write_bytes(
        record("00,001", "[Broker id=1] x", "ERROR") + b"\tat a\n"
    )
    (tmp_path / "state-change.log").write_bytes(b"\tat b\n\tat c\n" + record("2016-01-01 11:00:00,000"))
    with spool() as own:
        opened = open_logs([tmp_path / "state-change.log.2016-01-01-10", tmp_path / "state-change.log"], own)
        rows, counts = rows_of(opened.sources, own)
    assert [row["line"] for row in rows] == [1, 3]
    assert rows[0]["text"].splitlines()[1:] == ["\tat a", "\tat b", "\tat c"]
    assert counts.lines == 5
