"""Candidates are played by processes of their own: the last that showed it stays, and no run outlasts the time there is."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.histories.clients.client import Cell
from tests.histories.kept import __main__ as command
from tests.histories.kept.plan import Plan, read, written
from tests.histories.kept.player import SHRUNK, Player
from tests.histories.kept.shrinking import TimeOverError

_PLAN = Plan(1, Cell("assign", "plain"), 40, ())
_STAND_IN = """#!/usr/bin/env bash
# Stands in for Python and its run: -m tests.histories.run --schedule FILE --keep DIRECTORY
mkdir "$6"; cp "$4" "$6/schedule.json"; echo $$ > "%(pid)s"
%(does)s
"""
_SHOWS = """found="no anomaly that is not allowed"
if grep -q '"operations": [1-9][0-9],' "$4"; then found="ANOMALY: stuck 1 times: x"; fi
echo "$found" > "$6/verdict.txt"
"""


@pytest.fixture
def pid(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def _stand_in(monkeypatch: pytest.MonkeyPatch, pid: Path, does: str) -> None:
    (program := pid.with_name("python")).write_text(_STAND_IN % {"pid": pid, "does": does})
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_the_smallest_that_shows_the_same_kind_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pid: Path
) -> None:
    """Played runs are stuck where they have ten operations or more, whoever works."""
    _stand_in(monkeypatch, pid, _SHOWS)
    (kept := tmp_path / "kept").mkdir()
    (kept / "schedule.json").write_bytes(written(_PLAN))
    (kept / "verdict.txt").write_text("ANOMALY: stuck 2 times: y\nANOMALY: unseen 1 times: z\n")
    monkeypatch.setattr(sys, "argv", ["history-shrink", str(kept)])
    assert command.main() == 0
    assert {path.name for path in kept.iterdir()} == {"schedule.json", "verdict.txt", SHRUNK}
    least = read(kept / SHRUNK / "schedule.json")
    assert (least.operations, len(least.workers)) == (10, 1)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "looking for stuck or unseen"
    assert "20 operations, 0 steps, 24 workers, run 1: stuck" in said
    assert "5 operations, 0 steps, 24 workers, run 3: nothing of it" in said
    assert said[-1] == f"it is kept in {kept / SHRUNK}"
    assert "seed 1 on ours: 10 operations" in said


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("stays", ["", "trap '' TERM; "])
def test_the_run_under_way_ends_with_the_time_though_it_does_not_want_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: Path, stays: str
) -> None:
    monkeypatch.setattr("tests.histories.kept.player._ENDING_S", 1.0)
    _stand_in(monkeypatch, pid, f"{stays}while :; do sleep 1; done")
    over = time.monotonic() + 3
    player = Player(tmp_path, {"stuck"}, over)
    with pytest.raises(TimeOverError):
        player(_PLAN)
    assert time.monotonic() >= over
    assert not pid.exists() or not psutil.pid_exists(int(pid.read_text()))
    with pytest.raises(TimeOverError):
        player(_PLAN)
    player.close()
    assert not (tmp_path / "shrinking").exists() and not (tmp_path / SHRUNK).exists()


@pytest.mark.spec("HIS-48")
def test_where_nothing_was_found_there_is_nothing_to_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["history-shrink", str(tmp_path)])
    assert command.main() == 2
    (tmp_path / "verdict.txt").write_text("no anomaly that is not allowed\n")
    (tmp_path / "schedule.json").write_bytes(written(_PLAN))
    assert command.main() == 2
    assert "no run that showed what is not allowed" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"schedule.json", "verdict.txt"}
