"""``kt logs merge`` as a user meets it: mostly with slices merged in the process, twice on a real Spark."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.logs import session
from kafkatool.commands.logs.session import output
from kafkatool.commands.main import kt
from tests.commands.logs.tools import EXAMPLE, NoSpark, nothing_is_left, without_spark
from tests.core.statelog.logs import merger_output, record, story
from tests.paths import ROOT

DEADLINE_S = 300  # a JVM starts in two seconds, or in a minute


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> type[NoSpark]:
    return without_spark(monkeypatch)


def run(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(kt, ["logs", "merge", *map(str, arguments)], input=stdin)


def counts(result: Result) -> dict[str, int]:
    rows = [line.rsplit(None, 1) for line in result.stderr.splitlines() if not line.startswith("kt:")]
    return {name: int(number) for name, number in rows}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "state-change.log"
    path.write_bytes(
        record("00,002", "[Broker id=1] Handling stop replica (delete=true) for partition orders-1")
        + b"\tat trace\n"
        + record("00,001", "[Broker id=1] Handling stop replica (delete=true) for partition pay-0")
    )
    return path


@pytest.mark.spec("SCL-1", "SCL-6", "COM-2")
def test_the_log_goes_to_stdout_and_the_account_to_stderr(no_spark: object, log: Path) -> None:
    result = run("--logs", log)
    assert result.exit_code == 0
    assert [line[21:24] for line in result.stdout_bytes.splitlines()] == [b"001", b"002", b""]
    assert counts(result) == {
        "files": 1,
        "lines": 3,
        "records": 2,
        "continuation lines": 1,
        "orphan lines": 0,
        "written": 2,
        "lines written": 3,
        "filtered by time": 0,
        "filtered by level": 0,
        "filtered by event": 0,
        "filtered by topic": 0,
        "dropped, naming no partition": 0,
        "records without partition": 0,
        "records out of order in their file": 1,
        "dated lines of unknown form": 0,
        "dated lines of other loggers": 0,
    }


@pytest.mark.spec("SCL-2", "SCL-21X", "SCL-23X", "COM-3X")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "exactly one of the two options"),
        (["--logs", "{log}", "--logs-regex", "b"], "exactly one of the two options"),
        (["--logs", "{log}", "--partitions", "1"], "--topic needs to be provided"),
        (["--logs", "{log}", "--topic", "t", "--partitions", "1,2,1"], "The list of partitions contains repeated entr"),
        (["--logs", "{log}", "--topic", "t", "--partitions", "x"], "not a list of partition numbers"),
        (["--logs", "{log}.nothing"], "no such file"),
        (["--logs", "{log}", "--start-time", "yesterday"], "--start-time 'yesterday' is not a time of the form"),
        (["--logs", "{log}", "--end-time", "2016-02-30 00:00:00,000"], "--end-time"),
        (["--logs", "{log}", "--event", "nothing"], "no such event"),
        (["--logs", "{log}", "--topic-regex", "("], "not a regular expression"),
        (["--logs", "{log}", "--topic", "t", "--topic-regex", "t"], "exclude each other"),
        (["--logs", "{log}", "--kafka-compatible", "--level", "WARN"], "Kafka's merger knows no"),
        (["--logs", "{log}", "--no-such-flag"], "--no-such-flag"),
    ],
)  # fmt: skip
def test_usage_errors_exit_2_before_spark_starts(
    arguments: list[str], told: str, log: Path, no_spark: type[NoSpark]
) -> None:
    result = run(*(argument.format(log=log) for argument in arguments))
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""
    assert no_spark.started == 0


@pytest.mark.spec("SCL-4", "SCL-5", "SCL-9X", "SCL-21X")
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--start-time", '"2016-01-01 10:00:00,002"'], 2),
        (["--end-time", "2016-01-01 10:00:00,001"], 1),
        (["--topic", "orders"], 2),
        (["--topic", "orders", "--partitions", "0, 2"], 0),
        (["--topic-regex", "o.*|p.*"], 3),
        (["--no-continuation"], 2),
        (["--level", "info"], 0),
        (["--event", "stop_replica_started"], 3),
        (["--event", "leader_elected"], 0),
    ],
)
def test_filters(arguments: list[str], lines: int, log: Path, no_spark: object) -> None:
    result = run("--logs", log, *arguments)
    assert result.exit_code == 0
    assert result.stdout.count("\n") == lines == counts(result)["lines written"]


@pytest.mark.spec("SCL-4")
@pytest.mark.parametrize("way", [(), ("--tz", "UTC"), ("--format", "jsonl")])
@pytest.mark.parametrize(("first", "last"), [(1, 3), (2, 2), (2, 3), (3, 3)])
def test_bounds_take_in_their_own_millisecond_and_no_other(
    way: tuple[str, ...], first: int, last: int, tmp_path: Path, no_spark: object
) -> None:
    (tmp_path / "log").write_bytes(b"".join(record(f"00,00{n}") for n in range(5)))
    bounds = [f"--{end}-time=2016-01-01 10:00:00,00{n}" for end, n in (("start", first), ("end", last))]
    result = run("--logs", tmp_path / "log", *bounds, *way)
    assert re.findall(r"10:00:00[,.]00(\d)\D", re.sub(r'"text".*', "", result.stdout)) == [
        str(n) for n in range(first, last + 1)
    ]


@pytest.mark.spec("SCL-12X", "SCL-13X", "SCL-21X")
@pytest.mark.parametrize(
    ("flags", "written", "dropped"),
    [
        ((), (9, 11), {}),
        (("--start-time", "2016-01-01 10:00:00,002"), (8, 9), {"filtered by time": 1}),
        (("--level", "info"), (7, 8), {"filtered by level": 2}),
        (("--event", "replicas_marked_offline", "--event", "stop_replica_started"), (4, 6), {"filtered by event": 5}),
        (("--topic", "orders"), (3, 5), {"filtered by topic": 1, "dropped, naming no partition": 5}),
        (("--topic", "orders", "--with-context"), (8, 10), {"filtered by topic": 1}),
        (("--no-continuation",), (9, 9), {}),
    ],
)
def test_each_class_of_lines_has_its_own_count(
    flags: tuple[str, ...], written: tuple[int, int], dropped: dict[str, int], tmp_path: Path, no_spark: object
) -> None:
    stopping = "[Broker id=1] Handling stop replica (delete=true) for partition {}"
    nobody = "[Controller id=1 epoch=1] Sending UpdateMetadata request to brokers HashSet(1, 2) for 3 partitions"
    (tmp_path / "log").write_bytes(
        b"\tat orphan\n" * 3
        + record("00,001", stopping.format("orders-1"))
        + b"\tat trace\n"
        + record("00,002", stopping.format("orders-0"), "INFO")
        + b"\tat trace\n"
        + record("00,004", stopping.format("pay-0"), "INFO")
        + record("00,003", "[Controller id=1] Mark replicas orders-2,pay-1 on broker 2 as offline", "INFO")
        + record("00,005", nobody, "INFO") * 3
        + record("00,006", "nothing known", "WARN")
        + record("00,006", "nothing known", "TRACE")
    )
    assert counts(run("--logs", tmp_path / "log", *flags)) == {
        "files": 1,
        "lines": 14,
        "records": 9,
        "continuation lines": 2,
        "orphan lines": 3,
        "written": written[0],
        "lines written": written[1],
        **dict.fromkeys(("filtered by time", "filtered by level", "filtered by event", "filtered by topic"), 0),
        "dropped, naming no partition": 0,
        "records without partition": 5,
        "records out of order in their file": 1,
        "dated lines of unknown form": 2,
        "dated lines of other loggers": 0,
        **dropped,
    }


@pytest.mark.spec("SCL-16X", "SCL-12X")
def test_rows_are_asked_for_by_their_format(
    log: Path, tmp_path: Path, no_spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("--logs", log, "--format", "jsonl", "--label", f"{log}=west")
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert [(row["time"], row["topic"], row["source"], row["line"]) for row in rows] == [
        ("2016-01-01T10:00:00.001", "pay", "west", 3),
        ("2016-01-01T10:00:00.002", "orders", "west", 1),
    ]
    assert counts(made)["rows written"] == 2
    in_utc = run("--logs", log, "--format", "jsonl", "--tz", "+02:00").stdout.splitlines()
    assert [json.loads(line)["time"] for line in in_utc] == ["2016-01-01T08:00:00.001Z", "2016-01-01T08:00:00.002Z"]
    given: list[bytes] = []

    def write(parts: Sequence[Path], directory: Path, spark: object, *, utc: bool) -> None:
        assert not utc
        given.extend(part.read_bytes() for part in parts)
        directory.mkdir()

    monkeypatch.setattr("kafkatool.commands.logs.merge.write_parquet", write)
    parquet = run("--logs", log, "--format", "parquet", "--label", f"{log}=west", "--out", tmp_path / "rows")
    assert (parquet.exit_code, parquet.stdout) == (0, "") and (tmp_path / "rows").is_dir()
    assert b"".join(given) == made.stdout_bytes


@pytest.mark.spec("SCL-14X", "SCL-11X")
def test_standard_input_gzipped_and_labelled(no_spark: object) -> None:
    result = run("--logs", "-", "--show-source", "--label", "-=west", stdin=gzip.compress(record("00,001")))
    assert result.exit_code == 0
    assert result.stdout_bytes == b"west\t" + record("00,001")


@pytest.mark.spec("SCL-22X")
def test_out_writes_the_file_and_nothing_on_stdout(log: Path, tmp_path: Path, no_spark: object) -> None:
    result = run("--logs", log, "--out", tmp_path / "merged", "--no-continuation")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert (tmp_path / "merged").read_bytes().count(b"\n") == 2
    refused = run("--logs", log, "--out", tmp_path / "no" / "merged")
    assert refused.exit_code == 1
    assert "cannot write" in refused.stderr


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("command", ["merge", "timeline"])
def test_who_reads_no_further_ends_it_without_a_word(
    command: str, log: Path, no_spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    @contextmanager
    def closed(_: Path | None) -> Iterator[BinaryIO]:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", io.TextIOWrapper(Closed()))
            with output(None) as file:
                yield file

    monkeypatch.setattr(f"kafkatool.commands.logs.{command}.output", closed)
    result = CliRunner().invoke(kt, ["logs", command, "--logs", str(log)])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")


@pytest.mark.spec("SCL-23X", "SCL-12X")
def test_exit_1_for_a_broken_gz_and_with_strict_for_unknown_forms(log: Path, tmp_path: Path, no_spark: object) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(log.read_bytes())[:-9])
    broken = run("--logs", f"{log},{cut}")
    assert broken.exit_code == 1
    assert "cut.gz breaks off" in broken.stderr
    assert broken.stdout.count("\n") >= 3
    assert run("--logs", log, "--strict").exit_code == 0
    with log.open("ab") as more:
        more.write(record("09,000", "[Broker id=1] Metadata batch 7 applied"))
    assert run("--logs", log).exit_code == 0
    strict = run("--logs", log, "--strict")
    assert strict.exit_code == 1
    assert counts(strict)["dated lines of unknown form"] == 1


@pytest.mark.spec("SCL-7", "SCL-12X")
def test_a_copy_is_told(log: Path, tmp_path: Path, no_spark: object) -> None:
    (tmp_path / "copy").write_bytes(log.read_bytes())
    result = run("--logs", f"{log},{tmp_path / 'copy'}")
    assert "is a copy of" in result.stderr
    assert counts(result)["records"] == 2
    assert counts(result)["files"] == 2


@pytest.fixture
def kt_process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start ``kt logs merge`` as a process of its own, whose temporary files are in ``tmp_path/temporary``."""
    (tmp_path / "temporary").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", "from kafkatool.commands.main import main; main()", "logs", "merge", *arguments],
                cwd=tmp_path,
                env=os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.timeout(400)
@pytest.mark.spec("SCL-8", "SCL-13X")
@pytest.mark.slow
def test_on_real_spark_the_same_command_selects_what_kafkas_merger_selected(
    tmp_path: Path, kt_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    names = ",".join(map(str, story("0.10.2.2")))
    process = kt_process("--logs", names, "--kafka-compatible", "--master", "local[2]")
    written, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, told
    assert sorted(written.splitlines()) == sorted(merger_output("0.10.2.2", "47-merge").splitlines())
    assert nothing_is_left(tmp_path / "temporary")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.spec("SCL-8")
def test_on_one_core_of_real_spark_the_bytes_are_those_of_one_sort(
    kt_process: Callable[..., subprocess.Popen[bytes]], no_spark: object
) -> None:
    names = ",".join(map(str, story("2.8.2")))
    written, told = kt_process("--logs", names, "--master", "local[1]").communicate(timeout=DEADLINE_S)
    here = run("--logs", names)
    assert written == here.stdout_bytes
    assert told == here.stderr_bytes


@pytest.mark.timeout(400)
@pytest.mark.spec("SCL-22X")
@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly_and_leaves_nothing(
    tmp_path: Path, kt_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    lines = b"".join(record(f"{second:02d},{milli:03d}") for second in range(60) for milli in range(0, 1000, 50))
    (tmp_path / "log").write_bytes(lines)
    process = kt_process("--logs", "log")
    assert process.stdout and process.stderr
    assert process.stdout.read(1) == b"["
    process.stdout.close()
    told = process.stderr.read().decode()
    process.wait(DEADLINE_S)
    assert "Traceback" not in told
    assert "BrokenPipe" not in told
    assert nothing_is_left(tmp_path / "temporary")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path, kt_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = kt_process("--logs", "pipe")
    deadline = time.monotonic() + DEADLINE_S
    while not list((tmp_path / "temporary").glob("*/log-*")):  # it now waits for someone to write into the pipe
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number
    assert b"Traceback" not in told
    assert nothing_is_left(tmp_path / "temporary")


def test_a_disk_that_is_full_is_told_in_one_line(log: Path, no_spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session, "open_logs", full)
    result = run("--logs", log)
    assert result.exit_code == 1
    assert result.stderr.startswith("kt: temporary files in")
    assert result.stderr.endswith(": No space left on device\n")


@pytest.mark.spec("SCL-5")
def test_who_mistypes_a_topic_is_told_that_no_line_names_it(no_spark: object) -> None:
    result = run("--logs", EXAMPLE, "--topic", "paymets")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "kt: no line names topic paymets\n" in result.stderr
    early = run("--logs", EXAMPLE, "--topic", "payments", "--end-time", "2001-01-01 00:00:00,000")
    assert "no line names" not in early.stderr, "they may, later"


@pytest.mark.spec("SCL-12X", "SCL-23X")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a,b\n1,2\n", "no line begins with a time such as [2016-01-01 10:00:00,000]; the first is 'a,b'"),
        (
            "[2016-01-01 10:00:00,000] INFO starting (kafka.server.KafkaServer)\n[2016-01-01 10:00:00,001] INFO x (a.b)\n",
            "none of 2 dated lines looked at is of a known form; its lines are of kafka.server.KafkaServer, as in "
            "a server.log",
        ),
        ("[2016-01-01 10:00:00,000] INFO what a later Kafka may write (state.change.logger)\n", None),
        ("", None),
    ],
    ids=["table", "server.log", "later Kafka", "empty"],
)
def test_a_file_that_is_no_state_change_log_is_named(
    no_spark: object, tmp_path: Path, content: str, why: str | None
) -> None:
    (path := tmp_path / "some.log").write_text(content)
    result = run("--logs", f"{EXAMPLE},{path}")
    assert result.exit_code == 0, "each line is accounted for"
    said = [line for line in result.stderr.splitlines() if "seems to be" in line]
    assert said == ([f"kt: {path} seems to be no state-change log: {why}"] if why else [])
