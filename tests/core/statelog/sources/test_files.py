"""Which files are read, in which order, and what is made of gz, pipes, copies and rolled files."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.jobs.merge import merge, plan_merge
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.files import OpenedLogs, find_files, open_logs
from kafkatool.core.statelog.sources.source import FileExtent, Source, SourceChangedError
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import InProcess, record

LIVE = "state-change.log"


def content_of(opened: OpenedLogs) -> list[bytes]:
    return [source.read(0, source.size) for source in opened.sources]


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@pytest.mark.spec("SCL-3", "SCL-7")
def test_the_regex_is_searched_in_names_and_rolled_files_come_before_the_live_one(tmp_path: Path) -> None:
    names = [LIVE, f"{LIVE}.2016-01-01-09", f"{LIVE}.2016-01-01-10.gz", "server.log"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f"{LIVE}-directory").mkdir()
    (tmp_path / f"{LIVE}-directory" / LIVE).touch()  # in DIR, not below it
    found = find_files(None, f"{tmp_path}/{LIVE}*")
    assert [path.name for path in found] == [f"{LIVE}.2016-01-01-09", f"{LIVE}.2016-01-01-10.gz", LIVE]


@pytest.mark.spec("SCL-3")
def test_a_regex_without_a_directory_looks_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LIVE).touch()
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in find_files(None, "state.*log$")] == [LIVE]


@pytest.mark.spec("SCL-3")
def test_the_regex_need_not_match_the_whole_name_nor_its_beginning(tmp_path: Path) -> None:
    for name in (LIVE, "old-change.log.gz", "server.log"):
        (tmp_path / name).touch()
    assert [path.name for path in find_files(None, f"{tmp_path}/change.l")] == ["old-change.log.gz", LIVE]


@pytest.mark.spec("SCL-11X", "SCL-10X")
def test_logs_may_be_files_directories_and_globs_each_read_once_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b2/state-change.log", "b1/state-change.log", "b1/server.log", "extra.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files(f"{tmp_path}/extra.txt,{tmp_path},{tmp_path}/b*/state*,{tmp_path}/b1/../b1/{LIVE}", None)
    assert [str(path.resolve().relative_to(tmp_path)) for path in found] == [
        "b1/state-change.log",
        "b2/state-change.log",
        "extra.txt",
    ]


@pytest.mark.spec("SCL-2")
@pytest.mark.parametrize(
    ("logs", "regex", "told"),
    [
        ("{0}/missing.log", None, "missing.log: no such file"),
        ("{0}/*.nothing", None, "no file matches"),
        ("{0}", None, "no file named"),
        (",", None, "no log files named"),
        (None, "{0}/state(", "not a regular expression"),
        (None, "{0}/nothing", "no file name"),
        (None, "{0}/no/such/x", "cannot list"),
    ],
)
def test_what_is_not_there_is_a_usage_error(logs: str | None, regex: str | None, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        find_files(logs and logs.format(tmp_path), regex and regex.format(tmp_path))


@pytest.mark.spec("SCL-11X")
def test_gz_is_known_by_its_content(tmp_path: Path, own: Path) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress(record("00,001")) + gzip.compress(record("00,002")))
    (tmp_path / "plain.gz").write_bytes(record("00,003"))
    opened = open_logs([tmp_path / "packed", tmp_path / "plain.gz"], own)
    assert content_of(opened) == [record("00,001") + record("00,002"), record("00,003")]
    assert opened.broken == ()


@pytest.mark.spec("SCL-23X")
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:-8] + b"\0" * 8, lambda data: data[:5]])
def test_of_damaged_gz_what_can_be_unpacked_is_read_and_it_is_told(damage: object, tmp_path: Path, own: Path) -> None:
    assert callable(damage)
    lines = b"".join(record(f"{second:02d},{milli:03d}") for second in range(60) for milli in range(0, 1000, 7))
    (tmp_path / "cut.gz").write_bytes(damage(gzip.compress(lines)))
    opened = open_logs([tmp_path / "cut.gz"], own)
    assert len(opened.broken) == 1
    assert "cut.gz breaks off" in opened.broken[0]
    assert lines.startswith(content_of(opened)[0])


@pytest.mark.spec("SCL-11X")
def test_a_pipe_is_read_to_its_end(tmp_path: Path, own: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(record("00,001")),))
    writer.start()
    opened = open_logs(find_files(str(pipe), None), own)
    writer.join()
    assert content_of(opened) == [record("00,001")]


def test_what_is_not_text_is_refused(tmp_path: Path, own: Path) -> None:
    (tmp_path / "jar").write_bytes(b"PK\x03\x04\0\0")
    with pytest.raises(UsageError, match="not text"):
        open_logs([tmp_path / "jar"], own)


@pytest.mark.spec("SCL-7")
def test_a_copy_is_read_once_with_a_warning(tmp_path: Path, own: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(record("00,001"))
    (tmp_path / "c").write_bytes(record("00,002"))
    (tmp_path / "empty").touch()
    (tmp_path / "empty2").touch()
    opened = open_logs([tmp_path / n for n in ("a", "b", "c", "empty", "empty2")], own)
    assert [Path(source.name).name for source in opened.sources if source.size] == ["a", "c"]
    assert len(opened.warnings) == 1
    assert "b is a copy of" in opened.warnings[0]
    assert opened.files == 5


@pytest.mark.spec("SCL-9X")
def test_lines_at_a_rolled_files_start_join_the_record_in_the_older_file(tmp_path: Path, own: Path) -> None:
    (tmp_path / f"{LIVE}.2016-01-01-10").write_bytes(record("01,000"))
    (tmp_path / LIVE).write_bytes(b"\tat trace\n" + record("00,500"))
    for name, second in (("other.log", 2), ("z.log", 3)):  # before and behind them in order of name
        (tmp_path / name).write_bytes(b"\tat orphan\n" + record(f"0{second},000"))
    paths = find_files(f"{tmp_path}/*", None)
    opened = open_logs(paths, own)
    merged = merge(plan_merge(opened.sources, InProcess()), Selection(), InProcess(), own)
    assert merged.parts[0].read_bytes() == b"".join(
        [record("00,500"), record("01,000"), b"\tat trace\n", record("02,000"), record("03,000")]
    )
    assert merged.counts.orphan_lines == 2
    unjoined = open_logs(paths, own, join_rolled=False).sources
    apart = merge(plan_merge(unjoined, InProcess()), Selection(), InProcess(), own)
    assert apart.counts.orphan_lines == 3


@pytest.mark.spec("SCL-14X")
def test_a_log_is_called_by_its_label_or_broker_id_or_name(tmp_path: Path, own: Path) -> None:
    (tmp_path / "a").write_bytes(record("00,001", "[Broker id=7] x"))
    (tmp_path / "b").write_bytes(record("00,001", "nobody"))
    (tmp_path / "c").write_bytes(record("00,003", "Controller 3 epoch 1 x"))
    paths = [tmp_path / name for name in "abc"]
    opened = open_logs(paths, own, labels=[f"{tmp_path}/c=west"])
    assert [source.label for source in opened.sources] == ["7", "b", "west"]
    assert [source.label for source in open_logs([tmp_path / "c"], own).sources] == ["3"], "lines of before 1.0, too"
    late = record("00,002", "[Broker id=8] x")
    (tmp_path / "far").write_bytes((line := record("00,001", "nobody")) * (65_536 // len(line) + 1) + late)
    (tmp_path / "near").write_bytes(line * (65_536 // len(line) - 1) + late)
    assert [source.label for source in open_logs([tmp_path / "far", tmp_path / "near"], own).sources] == ["far", "8"]
    for wrong in ("nopath", f"{tmp_path}/missing=x"):
        with pytest.raises(UsageError, match="--label"):
            open_logs(paths, own, labels=[wrong])


@pytest.mark.spec("SCL-7")
def test_growth_is_not_seen_and_a_file_rolled_meanwhile_is_found_again(tmp_path: Path, own: Path) -> None:
    live = tmp_path / LIVE
    live.write_bytes(record("00,001"))
    (source,) = open_logs([live], own).sources
    with live.open("ab") as log:
        log.write(record("00,002"))
    live.rename(tmp_path / f"{LIVE}.2016-01-01-10")
    live.write_bytes(record("59,000") * 3)
    assert source.read(0, source.size) == record("00,001")


@pytest.mark.spec("SCL-23X")
def test_a_file_cut_or_removed_while_it_is_read_is_an_error(tmp_path: Path, own: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(record("00,001") * 4)
    (source,) = open_logs([log], own).sources
    os.truncate(log, 10)
    with pytest.raises(SourceChangedError, match="became shorter"):
        source.read(0, source.size)
    log.unlink()
    with pytest.raises(SourceChangedError, match="replaced"):
        source.read(0, 1)


def test_extents_are_read_as_one_and_records_found_across_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(record("00,001") + b"skipped" + b"x\n" * 9000 + record("00,002"))
    size, length = path.stat().st_size, len(record("00,001"))
    inode = path.stat().st_ino
    log = Source("log", "", (FileExtent(path, inode, 0, length), FileExtent(path, inode, length + 7, size)))
    whole = record("00,001") + b"x\n" * 9000 + record("00,002")
    assert log.read(0, log.size) == whole
    assert log.read(length - 3, length + 5) == whole[length - 3 : length + 5]
    assert log.next_record(0) == (0, b"2016-01-01 10:00:00,001")
    assert log.next_record(1) == (length + 18000, b"2016-01-01 10:00:00,002")
    assert log.next_record(length + 18001) == (log.size, None)


def test_the_spool_is_removed_at_the_end() -> None:
    with spool() as made:
        (made / "x").touch()
    assert not made.exists()
