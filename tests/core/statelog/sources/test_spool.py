"""The directory that a run of kt logs has for itself, and those of runs that were killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kafkatool.core.statelog.sources.spool import ABANDONED_AFTER_S, PREFIX, spool
from tests.paths import ROOT

HOLDING = """
import sys
from pathlib import Path
from kafkatool.core.statelog.sources.spool import spool
with spool() as directory:
    (directory / "log").write_bytes(b"lines")
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def age(directory: Path, by_s: float) -> None:
    then = directory.stat().st_mtime - by_s
    os.utime(directory, (then, then))


def left(parent: Path) -> set[Path]:
    """Begin another run; return what it leaves of others'."""
    with spool() as own:
        assert own.parent == parent
        return set(parent.iterdir()) - {own}


@pytest.mark.spec("SCL-22X")
def test_what_a_killed_run_left_is_removed_by_a_later_one_and_not_while_it_runs(parent: Path) -> None:
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        directory = Path(running.stdout.readline().strip())
        age(directory, ABANDONED_AFTER_S + 60)
        assert left(parent) == {directory}  # it works on
        running.send_signal(signal.SIGKILL)
    assert left(parent) == set()


@pytest.mark.spec("SCL-22X")
def test_only_old_directories_of_ours_are_taken_for_abandoned(parent: Path) -> None:
    young, other, file, pointed = (parent / name for name in (f"{PREFIX}young", "kt-code-1", f"{PREFIX}file", "else"))
    for directory in (young, other, pointed):
        directory.mkdir()
    file.touch()
    link = parent / f"{PREFIX}link"
    link.symlink_to(pointed)
    age(young, ABANDONED_AFTER_S - 600)
    for path in (other, file, pointed):
        age(path, ABANDONED_AFTER_S + 600)
    assert left(parent) == {young, other, file, pointed, link}


def test_a_run_takes_its_own_with_it(parent: Path) -> None:
    with spool() as own:
        (own / "log").touch()
    assert list(parent.iterdir()) == []
