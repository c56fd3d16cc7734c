"""Logs named by URI: Hadoop's file system for ``file://`` stands for those of hdfs and s3a, which it is one of."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.cuts import places_to_sample
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.spark.jvm import SparkError
from kafkatool.core.statelog.spark.session import Spark
from kafkatool.core.statelog.there import output
from kafkatool.core.statelog.there.carrier import RemoteParts, There
from kafkatool.core.statelog.there.files import is_remote, open_remote
from kafkatool.core.statelog.there.output import save
from kafkatool.core.statelog.there.workers import Workers
from tests.core.statelog.logs import InProcess, source, written

LINE = "[2026-11-21 16:00:0%d,000] TRACE Broker %d received LeaderAndIsr request\n"


def test_a_path_is_no_uri() -> None:
    assert [is_remote(name) for name in ("hdfs://nn/logs", "s3a://b/l", "file:///l", "a/b", "C:/l", "-", "/a://b")] == [
        True,
        True,
        True,
        *[False] * 4,
    ]


@pytest.mark.slow
@pytest.mark.spec("SCL-1", "SCL-2", "SCL-10X", "SCL-11X", "SCL-14X")
def test_files_directories_and_patterns_are_found_and_what_is_not_there_is_named(spark: Spark, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for broker in (1, 2):
        (there / f"b{broker}").mkdir(parents=True)
        (there / f"b{broker}" / "state-change.log").write_text(LINE % (broker, broker))
    (there / "b2" / "server.log").write_text("no state change\n")
    (there / "b1" / "state-change.log.2026-11-21-15").write_bytes(gzip.compress((LINE % (0, 1)).encode()))
    (there / "b2" / "state-change.log.2026-11-21-15").write_bytes(gzip.compress((LINE % (0, 2)).encode())[:-9])
    workers = Workers(spark, tmp_path)
    opened = open_remote(workers, [f"{there.as_uri()}/b1", f"{there.as_uri()}/b?/state-change.log*"], [])
    names = [source.name.removeprefix("file:").removeprefix(str(there)) for source in opened.sources]
    rolled = "state-change.log.2026-11-21-15"
    assert names == [f"/b1/{rolled}", "/b1/state-change.log", f"/b2/{rolled}", "/b2/state-change.log"]
    assert [source.label for source in opened.sources] == ["1", "1", "2", "2"]
    assert [source.whole for source in opened.sources] == [True, False, True, False]
    assert [source.read(0, source.size) for source in opened.sources][:2] == [
        (LINE % (0, 1)).encode(),
        (LINE % (1, 1)).encode(),
    ]
    assert [f"/b2/{rolled} breaks off" in said for said in opened.broken] == [True]
    for uri, told in (("file:///nowhere/x", "no such file"), ("nothing://x/y", 'No FileSystem for scheme "nothing"')):
        with pytest.raises(UsageError, match=f"{uri}: .*{told}"):
            open_remote(workers, [uri], [])


LINES = [LINE % (n % 10, n) for n in range(10_000)]
"""Of a log that is longer than what is looked at when it is opened."""


@pytest.mark.slow
@pytest.mark.spec("SCL-7")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("rolled", "was replaced while it was read, as when it is rolled; start again, or merge a copy of it"),
        ("cut", "became shorter while it was read; merge a copy of it"),
        ("removed", r"was removed while it was read; merge a copy of it: File \S+/state-change.log does not exist"),
        ("grown", None),
    ],
)
def test_a_log_that_is_replaced_while_it_is_read_is_told_and_one_that_grows_is_read_as_it_was(
    change: str, told: str | None, packed: bool, spark: Spark, tmp_path: Path
) -> None:
    live = tmp_path / "state-change.log"
    text = "".join(LINES).encode()
    live.write_bytes(gzip.compress(text) if packed else text)
    carrier = There(Workers(spark, tmp_path))
    opened = open_remote(carrier.workers, [live.as_uri()], [])
    if change == "rolled":
        live.rename(f"{live}.2026-11-21-16")
        live.write_bytes(b"".join((LINE % (9, n)).encode() for n in range(20_000)))
    elif change == "cut":
        live.write_bytes(live.read_bytes()[:-1])
    elif change == "removed":
        live.unlink()
    else:
        with live.open("ab") as file:
            file.write(gzip.compress(b"more\n") if packed else b"more\n")
    logs = Logs(opened.sources, (None,))

    def from_the_driver() -> bytes:
        return opened.sources[0].read(200_000, 300_000)

    def by_tasks() -> bytes:
        return written(merge_ordered(logs, Selection(), carrier, as_rows=False, chunk_bytes=1 << 20).parts)

    in_order = "".join(sorted(LINES, key=lambda line: line[:24])).encode()
    for read, expected in ((from_the_driver, text[200_000:300_000]), (by_tasks, in_order)):
        if told is None:
            assert read() == expected
        else:
            with pytest.raises(KafkatoolError, match=f"/state-change.log {told}$"):
                read()


@pytest.mark.slow
def test_a_log_that_workers_cannot_see_is_told_as_that_and_not_as_removed(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let it go once it is listed: as where paths lie on a disk of this machine, and the master is elsewhere."""
    log = tmp_path / "state-change.log"
    log.write_text(LINE % (0, 1))
    workers = Workers(spark, tmp_path)
    listed = workers.listed

    def seen_here_alone(*given: Any) -> Any:
        found = list(listed(*given))
        log.unlink()
        return found

    monkeypatch.setattr(workers, "listed", seen_here_alone)
    told = r"/state-change.log cannot be read where the work is done: File \S+/state-change.log does not exist$"
    with pytest.raises(SparkError, match=told):
        open_remote(workers, [], [log])


@pytest.mark.slow
@pytest.mark.spec("SCL-8", "SCL-22X")
def test_records_are_looked_up_in_all_logs_by_few_jobs(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        "".join(LINES[:3000]),
        "".join(LINES[3000:]) + "of no end" * 200_000,  # the last record is longer than what is looked at for others
        "".join(LINES[5000:]),
        "".join(LINES[6000:]),
        "x" * 1_000_000 + "\n" + "".join(LINES[8000:]),
    ]
    here, there = [], tmp_path / "there"
    there.mkdir()
    for number, text in enumerate(texts):
        here.append(source(tmp_path / f"{number}", text.encode()))
        packed = number in (2, 3)
        (there / f"{number}.state-change.log").write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    workers = Workers(spark, tmp_path)
    opened = open_remote(workers, [there.as_uri()], [], join_rolled=False)
    jobs = 0
    run = workers.run

    def counted(*given: Any) -> Any:
        nonlocal jobs
        jobs += 1
        return run(*given)

    monkeypatch.setattr(workers, "run", counted)
    places = places_to_sample([log.size for log in here], 40)
    expected = Here(InProcess(), tmp_path).sample(here, places)
    assert sorted({*There(workers).sample(opened.sources, places)}) == sorted({*expected})
    assert jobs <= 3
    assert len({number for number, *_ in expected}) == len(texts)


@pytest.mark.slow
@pytest.mark.spec("SCL-22X")
def test_a_result_that_breaks_off_leaves_nothing_and_one_that_is_there_is_not_touched(
    spark: Spark, tmp_path: Path
) -> None:
    workers = Workers(spark, tmp_path)
    (target := tmp_path / "out").mkdir()

    def parts(function: Any) -> RemoteParts:
        return _parts(workers, function)

    with pytest.raises(SparkError):
        save(parts(_breaks_off), f"{target.as_uri()}/merged")
    assert list(target.iterdir()) == []
    save(parts(_whole), f"{target.as_uri()}/merged")
    assert [path.name for path in target.iterdir()] == ["merged"]
    written = sorted((target / "merged").glob("part-*"))
    assert [path.read_bytes() for path in written] == [b"\xff0\n", b"\xff1\n"]
    with pytest.raises(UsageError, match="exists"):
        save(parts(_whole), f"{target.as_uri()}/merged")
    assert sorted((target / "merged").glob("part-*")) == written


def _parts(workers: Workers, function: Any) -> RemoteParts:
    """Return two parts that hold something, as told by who made them."""
    pieces = workers.spark.with_context(lambda c: c.parallelize(range(2), 2).mapPartitions(function))
    return RemoteParts(workers, pieces, frozenset({0, 1}))


@pytest.mark.slow
@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_result_of_which_parts_cannot_be_seen_is_no_success(form: str, spark: Spark, tmp_path: Path) -> None:
    (target := tmp_path / "out").mkdir()
    with pytest.raises(KafkatoolError, match=r"1 of 2 parts .* cannot be seen from here"):
        save(_parts(Workers(spark, tmp_path), _first_alone), f"{target.as_uri()}/merged", form=form)
    assert list(target.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spec("SCL-22X")
def test_a_directory_made_at_the_last_moment_does_not_swallow_the_result(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target := tmp_path / "out").mkdir()
    free, asked = output.free_target, []

    def made_after_the_last_look(context: Any, uri: str) -> Any:
        found = free(context, uri)
        asked.append(uri)
        if len(asked) == 2:
            (target / "merged").mkdir()
            (target / "merged" / "other").touch()
        return found

    monkeypatch.setattr(output, "free_target", made_after_the_last_look)
    with pytest.raises(UsageError, match="exists"):
        save(_parts(Workers(spark, tmp_path), _whole), f"{target.as_uri()}/merged")
    assert [path.name for path in target.rglob("*")] == ["merged", "other"]


def _first_alone(numbers: Iterator[int]) -> Iterator[bytes]:
    yield from (b"{}\n" for number in numbers if number == 0)


def _whole(numbers: Iterator[int]) -> Iterator[bytes]:
    for number in numbers:
        yield b"\xff%d\n" % number


def _breaks_off(numbers: Iterator[int]) -> Iterator[bytes]:
    for number in numbers:
        yield b"%d\n" % number
        if number:
            raise ZeroDivisionError
