"""Of a seed that fails there is something to read: history, page, the brokers' log, and the least of its schedule."""

import logging
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.storage.log import log_reader
from tests.histories.history import read_file
from tests.histories.simulated import __main__ as command
from tests.histories.simulated.faults import Fault
from tests.histories.simulated.kept import keep, told
from tests.histories.simulated.simulation import Schedule, drawn, run

KEPT = {"history.jsonl", "timeline.html", "brokers.log", "schedule.txt", "verdict.txt", "versions.txt", "disks"}
SHOWN = drawn(1, 100)


@pytest.fixture(autouse=True)
def blind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have readers not be told of what was aborted, in this process; leave logging as it was."""
    monkeypatch.setattr(log_reader, "_aborted_transactions", lambda *_: [])
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


@pytest.mark.spec("HIS-48")
def test_a_schedule_is_played_again_the_same_while_brokers_say_what_they_do(tmp_path: Path) -> None:
    logging.disable()
    run(tmp_path / "run", SHOWN)
    verdict = keep(tmp_path / "kept", SHOWN)
    assert {path.name for path in (tmp_path / "kept").iterdir()} == KEPT
    played = (tmp_path / "run" / "history.jsonl").read_bytes()
    assert (tmp_path / "kept" / "history.jsonl").read_bytes() == played
    said = (tmp_path / "kept" / "brokers.log").read_text().splitlines()
    times = [float(line.split()[0]) for line in said if re.match(r"\d+\.\d{3} s broker [123] [A-Z]+ \S+: ", line)]
    last = read_file(tmp_path / "kept" / "history.jsonl").times[-1] / 1e9
    assert times == sorted(times) and times[0] >= 1000 and times[-1] <= last
    assert len({line.split()[3] for line in said if " broker " in line}) > 1
    assert "G1a" in {anomaly.kind for anomaly in verdict.unallowed}
    assert "ANOMALY: G1a" in (tmp_path / "kept" / "verdict.txt").read_text()
    assert (tmp_path / "kept" / "schedule.txt").read_text().splitlines() == list(told(SHOWN))
    assert logging.root.manager.disable == logging.CRITICAL


@pytest.mark.spec("HIS-48")
def test_its_page_marks_what_is_at_odds_and_shades_faults(tmp_path: Path) -> None:
    fault = Fault(20, "freeze", 2, 40)
    keep(tmp_path, replace(SHOWN, faults=(fault,)))
    page = (tmp_path / "timeline.html").read_text()
    assert '<i class="op odd ' in page and '<section data-kind="G1a">' in page
    lanes = re.findall(r'<div class="row broker"><span class="name">(broker \d)</span>(.*?)</div></div>', page)
    assert {lane for lane, _ in lanes} == {"broker 1", "broker 2", "broker 3"}
    befallen = {(lane, told) for lane, row in lanes for told in re.findall(r'title="(at [^,]*),', row)}
    assert befallen == {("broker 2", str(fault))}
    widths = re.findall(r'<i class="shade" style="[^"]*width:([\d.]+)%', page)
    assert widths and any(float(width) < 100 for width in widths)


def _shrunk(schedule: Schedule, still_fails: Callable[[Schedule], bool]) -> Schedule:
    """Stand in for the search, which plays many: this one plays what is left."""
    least = replace(schedule, operations=50, faults=()).with_only([2, 5])
    assert still_fails(least)
    return least


@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("shrinks", [True, False])
def test_what_fails_is_kept_though_nobody_asked_and_the_least_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shrinks: bool
) -> None:
    monkeypatch.setattr(command, "ProcessPoolExecutor", ThreadPoolExecutor)  # what is patched here is patched there
    monkeypatch.setattr(command, "shrunk", _shrunk)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = ["--seeds", "1", "--operations", "100", *(() if shrinks else ("--no-shrink",))]
    monkeypatch.setattr(sys, "argv", ["history-simulate", *arguments])
    assert command.main() == 1
    (kept,) = tmp_path.iterdir()
    said = capsys.readouterr().out
    assert f"seed 1: history, timeline.html and brokers.log are kept in {kept}\n" in said
    found = [kept, kept / "shrunk"] if shrinks else [kept]
    assert (kept / "shrunk").exists() == shrinks
    for directory in found:
        assert {path.name for path in directory.iterdir()} - {"shrunk"} == KEPT
    if shrinks:
        (least, *faults) = (kept / "shrunk" / "schedule.txt").read_text().splitlines()
        assert (least, faults) == ("seed 1: 50 operations, 2 processes (2, 5 of 8)", [])
        assert "\n".join((least, *faults)) in said


@pytest.mark.spec("HIS-48")
def test_of_what_is_clean_seed_and_verdict_are_told_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(command, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["history-simulate", "--seeds", "1", "--operations", "100"])
    assert command.main() == 0
    assert not list(tmp_path.iterdir())
    assert re.match(r"seed 1: clean; operations: .*send ok \d+", capsys.readouterr().out)
