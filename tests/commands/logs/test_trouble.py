"""``kt logs`` as a process on a real Spark, ended in the middle, or without room for what its workers write."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands.logs.tools import nothing_is_left
from tests.core.statelog.logs import record
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEADLINE_S = 240
TRIES = 20
LIMIT_BYTES = 2_000_000
TEXT = "[Broker id=1] Handling stop replica (delete=true) for partition orders-1"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Make some 8 MB, which are two slices."""
    lines = b"".join(record(f"{second:02d},{milli:03d}", TEXT) for second in range(60) for milli in range(1000))
    (path := tmp_path / "state-change.log").write_bytes(lines)
    return path


def start(directory: Path, *arguments: object, limit_bytes: int = resource.RLIM_INFINITY) -> "subprocess.Popen[bytes]":
    """Start ``kt logs`` with its temporary files in ``directory/temporary``; files may grow to ``limit_bytes``."""
    (temporary := directory / "temporary").mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkatool", "logs", *map(str, arguments)],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "KAFKATOOL_CLASS_DATA": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    return process


@pytest.mark.spec("SCL-22X", "SCL-23X", "COM-3X")
@pytest.mark.parametrize("form", ["text", "jsonl", "parquet"])
def test_workers_without_room(form: str, log: Path, tmp_path: Path) -> None:
    (to := tmp_path / "to").mkdir()
    process = start(tmp_path, "merge", "--logs", log, "--format", form, "--out", to / "out", limit_bytes=LIMIT_BYTES)
    _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    (error,) = told.decode().splitlines()
    assert error.startswith("kt: ")
    assert error.endswith(": File too large")
    assert list(to.iterdir()) == []
    assert nothing_is_left(tmp_path / "temporary")


@pytest.mark.spec("SCL-22X", "COM-3X")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_while_the_workers_write(number: signal.Signals, log: Path, tmp_path: Path) -> None:
    """Try again where the merge was done before the signal came: it ended nothing then."""
    (to := tmp_path / "to").mkdir()
    out = to / "out"
    for number_of_try in range(TRIES):
        directory = tmp_path / f"try-{number_of_try}"
        process = start(directory, "merge", "--logs", log, "--out", out)
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None and not any(_blocks(path) for path in to.iterdir() if path != out):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(number)
        _, told = process.communicate(timeout=DEADLINE_S)
        if not out.exists():
            break
        out.unlink()
    else:
        pytest.fail(f"{TRIES} merges were done before the signal came")
    assert process.returncode == 128 + number, told
    assert b"Traceback" not in told
    assert list(to.iterdir()) == []
    assert nothing_is_left(directory / "temporary")


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks
    except FileNotFoundError:  # renamed: the merge is done
        return 0
