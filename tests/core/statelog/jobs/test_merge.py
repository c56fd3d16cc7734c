"""Filters and counts of the merge, against Kafka's own merger and on small logs."""

import itertools
import os
import pickle
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.jobs import ordered_merge
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.cuts import MOST_RANGES
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here, PartFiles
from kafkatool.core.statelog.jobs.merge import Merged, merge, plan_merge, replacing
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.grammar import record_time
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.merging.merge_slice import SliceMerger
from kafkatool.core.statelog.sources import spilling
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.slices import plan_slices
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.session import Spark
from tests.core.statelog.logs import (
    CAPTURES,
    NEWER,
    VERSIONS,
    InProcess,
    lines_of,
    merger_output,
    record,
    source,
    story,
    written,
)

TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")


def merged_story(version: str, selection: Selection, directory: Path, slices: int = 3) -> tuple[list[bytes], Counts]:
    """Return the lines written for the four brokers' logs of that version."""
    with spool() as own:
        opened = open_logs(story(version), own, join_rolled=not selection.kafka_compatible)
        plan = plan_slices(opened.sources, slices, sample_bytes=4096, precision_bytes=500, margin_bytes=1000)
        merged = merge(plan, selection, InProcess(), directory)
    return text_of(merged).splitlines(), merged.counts


def text_of(merged: Merged) -> bytes:
    return b"".join(part.read_bytes() for part in merged.parts)


def of_one_log(tmp_path: Path, content: bytes, selection: Selection) -> tuple[bytes, Counts]:
    merged = merge(plan_merge([source(tmp_path / "log", content)], InProcess()), selection, InProcess(), tmp_path)
    return text_of(merged), merged.counts


@pytest.mark.spec("SCL-13X", "SCL-1")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("capture", "asked"),
    [
        ("47-merge", Selection()),
        ("48-merge-topic", Selection(topic="orders", partitions=frozenset({0, 1}))),
    ],
)
def test_kafka_compatible_writes_the_lines_kafkas_merger_wrote(
    version: str, capture: str, asked: Selection, tmp_path: Path
) -> None:
    selection = Selection(topic=asked.topic, partitions=asked.partitions, kafka_compatible=True, continuation=False)
    written, _ = merged_story(version, selection, tmp_path)
    kafka = merger_output(version, capture).splitlines()
    assert sorted(written) == sorted(kafka)  # within one millisecond Kafka's order is that of a heap
    assert times(written) == times(kafka)


@pytest.mark.spec("SCL-1", "SCL-3", "SCL-4")
@pytest.mark.parametrize("version", VERSIONS)
def test_time_bounds_are_inclusive_as_in_kafkas_merger(version: str, tmp_path: Path) -> None:
    kafka = merger_output(version, "201-merge-times").splitlines()
    given = {
        "0.10.2.2": ("2026-11-21 09:28:25,724", "2026-11-21 09:28:51,823"),
        "1.1.1": ("2026-11-21 09:25:18,406", "2026-11-21 09:25:44,935"),
        "2.8.2": ("2026-11-21 09:23:20,038", "2026-11-21 09:23:38,549"),
    }[version]
    written, counts = merged_story(version, Selection(*given, kafka_compatible=True, continuation=False), tmp_path)
    assert sorted(written) == sorted(kafka)
    assert counts.filtered_by_time > 0
    everything, counts = merged_story(version, Selection(*given), tmp_path)
    assert set(kafka) <= set(everything)
    assert {given[0].encode() <= time <= given[1].encode() for time in times(everything)} == {True}


@pytest.mark.spec("SCL-13X", "SCL-4")
def test_a_time_within_a_line_counts_for_kafka_only(tmp_path: Path) -> None:
    odd = (CAPTURES / "odd.log").read_bytes()
    assert of_one_log(tmp_path, odd, Selection(kafka_compatible=True))[0] == merger_output(
        "1.1.1", "202-merge-odd-lines"
    )
    text, counts = of_one_log(tmp_path, odd, Selection())
    assert text == b""
    assert (counts.orphan_lines, counts.unknown_form) == (3, 2)


@pytest.mark.spec("SCL-5", "SCL-13X")
@pytest.mark.parametrize(("version", "about_orders"), [("0.10.2.2", 570), ("1.1.1", 565), ("2.8.2", 374)])
def test_all_lines_about_the_partitions_are_found(version: str, about_orders: int, tmp_path: Path) -> None:
    written, counts = merged_story(version, Selection(topic="orders", partitions=frozenset({0, 1})), tmp_path)
    assert len(written) == counts.written == about_orders
    with_context, _ = merged_story(
        version, Selection(topic="orders", partitions=frozenset({0, 1}), with_context=True), tmp_path
    )
    assert len(with_context) == about_orders + counts.dropped_without_partition


@pytest.mark.spec("SCL-5", "SCL-24X")
@pytest.mark.parametrize("version", NEWER)
def test_all_lines_of_newer_versions_about_the_partitions_are_found_and_no_other(version: str, tmp_path: Path) -> None:
    """By a look at the words, that knows no forms: in these logs nothing else is spelled like the partitions."""
    words = re.compile(r"(?<![\w.-])orders-[01](?![\w-])|topicName='orders', partitionIndex=[01]\b")
    records = [line for path in story(version) for line in lines_of(path) if record_time(line)]
    written, counts = merged_story(version, Selection(topic="orders", partitions=frozenset({0, 1})), tmp_path)
    found = sorted(line for line in (line.decode("latin-1") for line in written) if record_time(line))
    assert found == sorted(filter(words.search, records))
    assert len(found) == counts.written > 90


@pytest.mark.spec("SCL-12X")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(topic="orders", start_time="2026-11-21 09:25:00,000", end_time="2026-11-21 09:28:30,000"),
        Selection(level="INFO", events=frozenset({"leader_started", "partition_online"})),
        Selection(topic_regex="ord.*"),
    ],
)
def test_every_line_is_accounted_for(version: str, selection: Selection, tmp_path: Path) -> None:
    _, counts = merged_story(version, selection, tmp_path)
    assert counts.lines == {"0.10.2.2": 2002, "1.1.1": 2111, "2.8.2": 2273}[version]
    assert counts.lines == counts.records + counts.continuation_lines + counts.orphan_lines
    dropped = counts.filtered_by_time + counts.filtered_by_level + counts.filtered_by_event + counts.filtered_by_topic
    assert counts.records == counts.written + dropped + counts.dropped_without_partition


@pytest.mark.spec("SCL-12X", "SCL-5", "SCL-21X")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("slices", [1, 4])
def test_filters_by_shape_count_and_keep_what_a_look_at_every_line_does(
    version: str, slices: int, tmp_path: Path
) -> None:
    lines = sorted({line.encode("latin-1") for path in story(version) for line in lines_of(path)})
    stamps = sorted(line[1:24].decode() for line in lines)
    window = (stamps[len(stamps) // 4], stamps[-len(stamps) // 4])
    log = source(tmp_path / "log", b"\n".join(lines))
    for selection in (
        Selection(topic="orders"),
        Selection(*window, topic="orders", partitions=frozenset({1}), with_context=True),
        Selection(*window, topic_regex="o.*|pay.*", level="INFO"),
        Selection(events=frozenset({"leader_started", "partition_online", "metadata_cached"}), topic="orders"),
        Selection(*window, level="WARN"),
        Selection(*window),
        Selection(*window, kafka_compatible=True, topic="orders", continuation=False),
    ):
        shapes, reason, expected = selection.shapes(), selection.filter(), Counts()
        assert reason
        kept = []
        for line in lines:
            if dropped := reason(line[1:24], line, shapes.of(line)):
                expected.drop(dropped)
            else:
                kept.append(line)
        merger = SliceMerger(plan_slices([log], slices, sample_bytes=4096), selection, tmp_path, block_bytes=3000)
        results = [merger.merge(index) for index in range(merger.plan.slices)]
        counts = Counts()
        for result in results:
            counts.add(result.counts)
        text = b"".join(result.part.path.read_bytes() for result in results)
        assert sorted(text.splitlines()) == kept
        assert counts.written == len(kept)
        for name in ("time", "level", "event", "topic"):
            assert getattr(counts, f"filtered_by_{name}") == getattr(expected, f"filtered_by_{name}")
        assert counts.dropped_without_partition == expected.dropped_without_partition


@pytest.mark.spec("SCL-21X")
def test_filters_by_level_event_and_topic_regex(tmp_path: Path) -> None:
    content = b"".join(
        [
            record("00,001", "[Broker id=1] Handling stop replica (delete=true) for partition orders-1"),
            record(
                "00,002", "[Broker id=1] Finished handling stop replica (delete=true) for partition orders-1", "WARN"
            ),
            record("00,003", "[Broker id=1] Handling stop replica (delete=true) for partition pay-1", "ERROR"),
            record("00,004", "no actor", "FATAL"),
        ]
    )

    def kept(selection: Selection) -> list[bytes]:
        return [line[21:24] for line in of_one_log(tmp_path, content, selection)[0].splitlines()]

    assert kept(Selection(level="WARN")) == [b"002", b"003", b"004"]
    assert kept(Selection(events=frozenset({"stop_replica_started"}))) == [b"001", b"003"]
    assert kept(Selection(topic_regex="orders|x")) == [b"001", b"002"]
    assert kept(Selection(topic_regex="order")) == []


@pytest.mark.spec("SCL-9X", "SCL-6")
def test_a_stack_trace_moves_with_its_record_byte_for_byte(tmp_path: Path) -> None:
    failed = record(
        "00,005", "[Broker id=1] Error while processing LeaderAndIsr request with correlationId 1 x", "ERROR"
    )
    trace = b"java.lang.Foo: \xe9\xff\r\n\n\tat a.B(B.scala:1) [Topic=t,Partition=1,Replica=2]\n"
    early = record("00,001", "[Broker id=1] Handling stop replica (delete=true) for partition t-1")
    text, counts = of_one_log(tmp_path, failed + trace + early, Selection())
    assert text == early + failed + trace
    assert (counts.records, counts.continuation_lines, counts.out_of_order, counts.unknown_form) == (2, 3, 1, 1)
    text, counts = of_one_log(tmp_path, failed + trace + early, Selection(continuation=False))
    assert text == early + failed
    assert (counts.continuation_lines, counts.lines_written) == (3, 2)


@pytest.mark.spec("SCL-14X")
def test_show_source_begins_each_record_with_the_label(tmp_path: Path) -> None:
    one = source(tmp_path / "a", record("00,002") + b"\tat x\n", label="1")
    two = source(tmp_path / "b", record("00,001"), label="west")
    text = text_of(merge(plan_merge([one, two], InProcess()), Selection(), InProcess(), tmp_path, show_source=True))
    assert text == b"west\t" + record("00,001") + b"1\t" + record("00,002") + b"\tat x\n"


@pytest.mark.spec("SCL-8", "SCL-22X")
@pytest.mark.slow
def test_spark_writes_the_same_bytes_as_one_sort_for_any_slicing(spark: Spark, tmp_path: Path) -> None:
    with spool() as own:
        sources = open_logs([path for version in VERSIONS for path in story(version)], own).sources
        outputs = []
        for slices, mapper in ((1, InProcess()), (5, spark), (12, spark), (7, InProcess())):
            plan = plan_slices(sources, slices, sample_bytes=2000, precision_bytes=300, margin_bytes=200)
            outputs.append(merge(plan, Selection(), mapper, tmp_path))
            text = text_of(outputs[-1])
            assert text.count(b"\n") == 6386
            outputs[-1] = (text, outputs[-1].counts)  # type: ignore[call-overload]
    assert all(left == right for left, right in itertools.pairwise(outputs))


@pytest.mark.spec("SCL-8")
def test_the_number_of_cores_changes_the_slices_and_not_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkatool.core.statelog.jobs.merge.SMALL_BYTES", 10_000)
    monkeypatch.setattr("kafkatool.core.statelog.jobs.merge.SLICE_BYTES", 70_000)
    with spool() as own:
        sources = open_logs(story("1.1.1"), own).sources
        texts = []
        for cores in (1, 2, 5):
            merged = merge(plan_merge(sources, InProcess(cores)), Selection(), InProcess(cores), own)
            assert len(merged.parts) > 2
            texts.append((text_of(merged), merged.counts))
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.spec("SCL-8", "SCL-22X")
@pytest.mark.parametrize("as_rows", [False, True])
def test_a_range_of_which_memory_holds_little_is_in_order_all_the_same(
    as_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spool() as own:
        sources = open_logs(story("1.1.1"), own).sources
        results = []
        for held in (spilling.MOST_HELD, 50):
            monkeypatch.setattr(spilling, "MOST_HELD", held)
            logs = Logs(sources, (None,) * len(sources))
            merged = merge_ordered(logs, Selection(), Here(InProcess(), own), as_rows=as_rows)
            results.append(written(merged.parts))
    assert results[0] == results[1]
    assert results[0].count(b"\n") > 2000


@pytest.mark.spec("SCL-8", "SCL-22X")
def test_there_are_never_more_ranges_than_names_of_part_files_that_sort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = source(tmp_path / "log", b"".join(record(f"00,{n:03d}") for n in range(1000)))
    parts = []
    for most in (MOST_RANGES, 7):
        monkeypatch.setattr(ordered_merge, "MOST_RANGES", most)
        carrier = Here(InProcess(), tmp_path)
        merged = merge_ordered(Logs((log,), (None,)), Selection(), carrier, as_rows=False, chunk_bytes=log.size // 50)
        assert isinstance(merged.parts, PartFiles)
        assert written(merged.parts) == log.read(0, log.size)
        parts.append(len(merged.parts))
    assert parts[0] > 40 and parts[1] == 7


class Weighing(InProcess):
    """Notes how much its tasks send back to the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        found = super().map(function, items)
        self.sent_bytes += len(pickle.dumps(found))
        return found


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("what", ["merge", "rows", "timeline and report"])
def test_what_comes_back_to_the_driver_does_not_grow_with_the_lines(what: str, tmp_path: Path) -> None:
    sent = []
    for repeats in (1, 40):
        lines = [
            record(
                f"{n // 1000 % 60:02d},{n % 1000:03d}",
                f"[Broker id=1] Handling stop replica (delete=true) for partition t-{n % 7}",
            )
            for n in range(300 * repeats)
        ]
        (directory := tmp_path / str(repeats)).mkdir()
        log = source(directory / "log", b"".join(lines))
        mapper = Weighing()
        if what == "merge":
            merge(plan_slices([log], 3, sample_bytes=1000), Selection(), mapper, directory)
        else:
            logs, chunk_bytes = Logs((log,), (None,)), log.size // 3
            if what == "rows":
                merge_ordered(logs, Selection(), Here(mapper, directory), as_rows=True, chunk_bytes=chunk_bytes)
            else:
                gather(logs, Selection(), Here(mapper, directory), 1, chunk_bytes=chunk_bytes)
        sent.append(mapper.sent_bytes)
    assert sent[1] < 2 * sent[0], "forty times the lines, in as many pieces"


@pytest.mark.spec("SCL-22X")
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.log"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as output:
        output.write(b"half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    with replacing(target) as output:
        output.write(b"new")
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(KafkatoolError), replacing(tmp_path / "no" / "dir"):
        pass


@pytest.mark.spec("SCL-22X")
def test_what_is_no_file_is_written_into_and_a_link_stays_one(tmp_path: Path) -> None:
    """Else root would put a file where /dev/null was."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe) as output:
        output.write(b"through")
    assert os.read(reading, 100) == b"through" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reading)
    link.symlink_to("target")
    for content in (b"new", b"newer"):  # first the link leads nowhere
        with replacing(link) as output:
            output.write(content)
        assert link.is_symlink() and (tmp_path / "target").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


def times(lines: list[bytes]) -> list[bytes]:
    return [found[0] for line in lines if (found := TIME.search(line))]
