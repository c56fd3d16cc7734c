"""``kt logs`` where logs and output are URIs: which carrier serves, what it writes, and what a killed kt leaves."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatool.commands.logs.session import wanted_logs
from tests.commands.logs.tools import NoSpark, run, without_spark
from tests.core.statelog.logs import record
from tests.waiting import eventually

DEADLINE_S = 280
FACTS = 150_000
PACKED_LINES = 800_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = [
        record(
            f"{n // 1000 % 60:02d},{n % 1000:03d}",
            f"[Broker id=1] Handling stop replica (delete=true) for partition t-{n % 7}",
        )
        for n in range(60_000)
    ]
    (directory := tmp_path / "there").mkdir()
    (path := directory / "state-change.log").write_bytes(b"".join(lines))
    return path


def kt_merge(log: Path, out: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kafkatool", "logs", "merge", "--master", "local[2]", "--logs", log.as_uri()]
    return subprocess.Popen([*command, "--out", out, *more], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("SCL-22X", "SCL-8")
def test_a_killed_merge_leaves_nothing_under_the_name_and_a_second_run_works(log: Path, tmp_path: Path) -> None:
    (target := tmp_path / "out").mkdir()
    merged = target / "merged"
    with kt_merge(log, merged.as_uri()) as process:
        eventually(lambda: process.poll() is not None or any(target.iterdir()), "the writing", DEADLINE_S)
        process.kill()
    if merged.exists():  # we stood still until it was done
        assert (merged / "_SUCCESS").exists(), "half a result under the name"
        shutil.rmtree(merged)
    with kt_merge(log, merged.as_uri(), "--spark-conf", "spark.default.parallelism=3") as process:
        told = process.stderr.read() if process.stderr else ""
    assert process.returncode == 0, told
    assert told.startswith("kt: carried by Spark's connectors and shuffle, on local[2]\n")
    written = b"".join(path.read_bytes() for path in sorted(merged.glob("part-*")))
    in_order = sorted(log.read_bytes().splitlines(keepends=True), key=lambda line: line[:24])
    assert written == b"".join(in_order)


def _isr(change: int) -> bytes:
    state = f"leader=1, leaderEpoch=1, isr=[{'1' if change % 2 else '1, 2'}], zkVersion={change}, replicas=[1, 2]"
    return record(
        f"2016-01-01 10:{change // 6000:02d}:{change // 100 % 60:02d},{change % 100:02d}0",
        f"[Broker id=1] Cached leader info PartitionState(controllerEpoch=1, {state}, offlineReplicas=[]) for partition t-0 "
        "in response to UpdateMetadata request sent by controller 1 epoch 1 with correlation id 1",
    )


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(600)
@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("command", ["timeline", "report"])
def test_a_partition_with_more_facts_than_a_task_has_memory_for_is_told_as_files_are(
    command: str, tmp_path: Path
) -> None:
    (directory := tmp_path / "there").mkdir()
    with (directory / "state-change.log").open("wb") as log:
        log.writelines(_isr(change) for change in range(FACTS))
    told = []
    # Only where Spark carries everything is a limit set, which its Python keeps to: 150,000 facts at once need 450 MB.
    for logs, *more in ((str(directory),), (directory.as_uri(), "--spark-conf", "spark.executor.pyspark.memory=300m")):
        kt = [sys.executable, "-m", "kafkatool", "logs", command, "--master", "local[2]", "--logs", logs, *more]
        done = subprocess.run(kt, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.replace(directory.as_uri(), str(directory)))
    assert told[0] == told[1]
    assert command != "timeline" or told[0].count("\n") > FACTS


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(600)
@pytest.mark.spec("SCL-11X", "SCL-22X")
@pytest.mark.parametrize("command", ["merge", "report"])
def test_a_gzip_file_that_holds_more_than_a_task_has_memory_for_is_read(command: str, tmp_path: Path) -> None:
    (directory := tmp_path / "there").mkdir()
    with gzip.open(directory / "state-change.log", "wb", 1) as log:
        log.writelines(_isr(n).replace(b"t-0", b"t-%d" % (n % 200)) for n in range(PACKED_LINES))
    kt = [sys.executable, "-m", "kafkatool", "logs", command, "--master", "local[1]", "--logs", directory.as_uri()]
    kt += ["--spark-conf", "spark.executor.pyspark.memory=300m"]
    if command == "merge":
        kt += ["--out", (tmp_path / "merged").as_uri()]
    done = subprocess.run(kt, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if command == "merge":
        parts = sorted((tmp_path / "merged").glob("part-*"))
        assert sum(path.read_bytes().count(b"\n") for path in parts) == PACKED_LINES


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("SCL-1", "SCL-8", "SCL-16X")
def test_names_with_blanks_and_signs_are_the_same_to_hadoop(tmp_path: Path) -> None:
    odd = tmp_path / "my logs 100% #1 [é]"
    (odd / "tmp").mkdir(parents=True)
    (odd / "state-change.log").write_bytes(b"".join(record(f"00,{n:03d}") for n in range(5)))
    ways: tuple[tuple[str, ...], ...] = (
        ("--logs", str(odd), "--out", f"file://{odd}/merged"),
        ("--logs", str(odd), "--format", "parquet", "--out", str(odd / "here.parquet")),
        ("--logs", f"file://{odd}", "--format", "parquet", "--out", str(odd / "there.parquet")),
    )
    for arguments in ways:
        kt = [sys.executable, "-m", "kafkatool", "logs", "merge", "--master", "local[1]", *arguments]
        environment = os.environ | {"TMPDIR": str(odd / "tmp")}
        done = subprocess.run(kt, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in odd.iterdir()} == {
        *("state-change.log", "tmp"),
        *("merged", "here.parquet", "there.parquet"),
    }
    written = b"".join(path.read_bytes() for path in sorted((odd / "merged").glob("part-*")))
    assert written == (odd / "state-change.log").read_bytes()
    assert all(list((odd / name).glob("part-*.parquet")) for name in ("here.parquet", "there.parquet"))
    assert list(tmp_path.iterdir()) == [odd], "nothing under an escaped name"


@pytest.mark.spec("SCL-2")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["merge", "--spark-conf", "executor.memory=1g"], "is not of the form spark.KEY=VALUE"),
        (["timeline", "--out", "hdfs://nn/timeline"], "a timeline is written here"),
        (
            ["merge", "--master", "spark://m:7077", "--format", "parquet", "--out", "new"],
            "name an URI that they and this",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_before_spark_starts(
    arguments: list[str], told: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark: type[NoSpark] = without_spark(monkeypatch)
    result = run(*arguments, "--logs", log)
    assert (result.exit_code, spark.started) == (2, 0)
    assert told in result.stderr


@pytest.mark.spec("SCL-1", "SCL-11X")
@pytest.mark.parametrize(
    ("named", "uris"),
    [
        ("hdfs://nn/{a,b}/x,s3a://c/{d,{e,f}}/g,h", ["hdfs://nn/{a,b}/x", "s3a://c/{d,{e,f}}/g"]),
        ("hdfs://nn/a,hdfs://nn/b,h", ["hdfs://nn/a", "hdfs://nn/b"]),
    ],
)
def test_a_comma_in_the_braces_of_a_pattern_of_hadoops_cuts_no_name(
    named: str, uris: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h").touch()
    wanted = wanted_logs(named, None)
    assert (wanted.uris, wanted.files) == (uris, [Path("h")])
