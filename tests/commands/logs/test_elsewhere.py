"""``kt logs`` where logs and output are URIs: which carrier serves, what it writes, and what a killed kt leaves."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.logs.tools import NoSpark, run, without_spark
from tests.core.statelog.logs import record
from tests.waiting import eventually

DEADLINE_S = 280


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


@pytest.mark.spec("SCL-2")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["merge", "--spark-conf", "executor.memory=1g"], "is not of the form spark.KEY=VALUE"),
        (["timeline", "--out", "hdfs://nn/timeline"], "a timeline is written here"),
    ],
)
def test_what_cannot_be_meant_is_said_before_spark_starts(
    arguments: list[str], told: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark: type[NoSpark] = without_spark(monkeypatch)
    result = run(*arguments, "--logs", log)
    assert (result.exit_code, spark.started) == (2, 0)
    assert told in result.stderr
