"""Logs that are not what they should be: every command says so, and leaves nothing half-written."""

import gzip
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kafkatool.commands.logs import session as logs_session
from kafkatool.core.statelog.jobs.merge import replacing
from kafkatool.core.statelog.sources.source import Source
from tests.commands.logs.tools import NoSpark, run, without_spark
from tests.core.statelog.logs import record

COMMANDS = (("merge",), ("merge", "--format", "jsonl"), ("merge", "--tz", "UTC"), ("timeline",), ("report",))
ONLINE = (
    "[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state "
    "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0)"
)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> type[NoSpark]:
    return without_spark(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "state-change.log"


def one_line_of_error(result: Result, code: int) -> str:
    assert result.exit_code == code
    (told,) = [line for line in result.stderr.splitlines() if line.startswith("kt:")]
    assert result.stdout == ""
    return told


@pytest.mark.spec("SCL-23X", "COM-3X")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_text(command: tuple[str, ...], log: Path) -> None:
    log.write_bytes(b"\x7fELF\0\0\0" + os.urandom(100))
    assert "is not text" in one_line_of_error(run(*command, "--logs", log), 2)


@pytest.mark.spec("SCL-23X", "SCL-11X")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_truncated_gz_is_used_as_far_as_it_goes_and_told(command: tuple[str, ...], log: Path) -> None:
    lines = b"".join(record(f"{s:02d},{ms:03d}", f"{ONLINE}") for s in range(60) for ms in range(0, 1000, 50))
    log.write_bytes(gzip.compress(lines)[:-2000])
    result = run(*command, "--logs", log)
    assert result.exit_code == 1
    assert "breaks off: the gzip data is cut or damaged" in result.stderr
    assert result.stdout


@pytest.mark.slow
@pytest.mark.spec("SCL-4", "SCL-22X")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_line_of_ten_megabytes(command: tuple[str, ...], log: Path) -> None:
    log.write_bytes(record("00,001", ONLINE) + record("00,002", "x" * 10_000_000) + record("00,003", ONLINE))
    result = run(*command, "--logs", log)
    assert result.exit_code == 0
    assert "unknown form" in result.stderr + result.stdout


@pytest.mark.spec("SCL-12X", "SCL-23X")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("content", [b"", b"no time here\nnor here"])
def test_a_file_without_any_dated_line(content: bytes, command: tuple[str, ...], log: Path) -> None:
    log.write_bytes(content)
    result = run(*command, "--logs", log)
    assert result.exit_code == 0
    assert "Traceback" not in result.output


@pytest.mark.spec("SCL-7", "SCL-22X", "SCL-23X")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 10)], ids=["removed", "truncated"])
def test_a_file_that_goes_while_it_is_read(
    harm: Callable[[Path], None], command: tuple[str, ...], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(record("00,001", ONLINE) * 50)
    read, reads = Source.read, [0]

    def counted(source: Source, start: int, end: int) -> bytes:
        reads[0] += 1
        if reads[0] == 4 and log.exists():
            harm(log)
        return read(source, start, end)

    monkeypatch.setattr(Source, "read", counted)
    out = tmp_path / "out"
    told = one_line_of_error(run(*command, "--logs", log, *(() if command == ("report",) else ("--out", out))), 1)
    assert "while it was read" in told
    assert not out.exists()
    assert list(tmp_path.glob(".out*")) == []


@pytest.mark.spec("SCL-22X", "SCL-23X")
@pytest.mark.parametrize(
    ("command", "flag"),
    [(("merge", "--format", "jsonl"), "--out"), (("timeline",), "--out"), (("report", "--skew"), "--html")],
)
def test_no_room_for_the_output(
    command: tuple[str, ...], flag: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(record("00,001", ONLINE) * 2000)
    out = tmp_path / "out"
    out.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def cramped(*paths: object, **more: object) -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        return replacing(*paths, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(logs_session, "replacing", cramped)
    try:
        result = run(*command, "--logs", log, flag, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1
    assert f"kt: cannot write {out}: File too large" in result.stderr
    assert out.read_text() == "old"
    assert list(tmp_path.glob(".out*")) == []


@pytest.mark.spec("SCL-16X", "SCL-2")
def test_what_parquet_cannot_do_is_said_before_spark_starts(log: Path, tmp_path: Path, no_spark: type[NoSpark]) -> None:
    log.write_bytes(record("00,001"))
    parquet = ("merge", "--logs", log, "--format", "parquet")
    assert "needs --out DIRECTORY" in one_line_of_error(run(*parquet), 2)
    assert "exists" in one_line_of_error(run(*parquet, "--out", log), 2)
    assert "has a column source" in one_line_of_error(
        run("merge", "--logs", log, "--format", "jsonl", "--show-source"), 2
    )
    assert "knows no --format" in one_line_of_error(run("merge", "--logs", log, "--tz", "UTC", "--kafka-compatible"), 2)
    assert no_spark.started == 0
