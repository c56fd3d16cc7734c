"""What stays of a run: of one that is not clean, and where it is asked for, all there is; of any other a line."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.faults.schedule import Step, steps
from tests.faults.world import BROKERS
from tests.histories import nemesis
from tests.histories import run as histories_run
from tests.histories.analyser.notation import HEADER
from tests.histories.analyser.verdict import CLEAN, FOUND, Verdict, judge
from tests.histories.clients.client import Cell
from tests.histories.frames.doors import Doors
from tests.histories.history import read_file
from tests.histories.kept.keeping import leave, register, steps_begun
from tests.histories.kept.plan import Plan, read, told
from tests.histories.kept.versions import versions
from tests.histories.writer import HistoryWriter

_STEPS = tuple(islice(steps(8, BROKERS), 3))
_PLAN = Plan(8, Cell("assign", "idempotent"), 300, _STEPS)
_KEPT = {"history.jsonl", "verdict.txt", "schedule.txt", "schedule.json", "versions.txt", "timeline.html", "data"}


class Stage:
    """Brokers that stored a file each. What it is told to do with them is noted."""

    def __init__(
        self, directory: Path, doors: Doors | None = None, *, error: Exception | None = None, **_: object
    ) -> None:
        self.ended: list[Path | None] = []
        self._error = error
        (directory / "broker-1").mkdir(parents=True)
        (directory / "broker-1" / "server.log").write_text("it began\n")

    def plan(self, seed: int, kinds: Sequence[str] = ()) -> Iterator[Step]:
        return steps(seed, BROKERS)

    def down(self, keep: Path | None = None) -> None:
        self.ended.append(keep)
        if self._error is not None:
            raise self._error
        if keep is not None:
            (keep / "broker-1").mkdir(parents=True)


def _write(file: Path, *, polled: int, begun: int = 2) -> Verdict:
    """Write a history of a value that is sent and polled, while steps begin, and judge it."""
    with HistoryWriter(file, HEADER) as writer:
        for step in range(begun):
            for begins in (True, False):
                writer.write("nemesis", "info", "fault", {"step": step, "begins": begins, "faults": ["kill 1"]})
        writer.write("nemesis", "info", "fault", {"step": "upkeep of t", "begins": True, "faults": ["elect t"]})
        writer.write(0, "invoke", "send", [["send", 0, 97]])
        writer.write(0, "ok", "send", [["send", 0, [0, 97], "ok"]])
        writer.write(1, "invoke", "poll", [["poll"]])
        writer.write(1, "ok", "poll", [["poll", {0: [[0, polled]]}]])
    return judge(read_file(file))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the directory of what is temporary, which a run's own is made in and the register lies in."""
    (own := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (own := tmp_path / "run").mkdir()
    return own


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.spec("HIS-48")
def test_all_there_is_of_a_run_is_left_in_its_directory(directory: Path) -> None:
    verdict = _write(directory / "history.jsonl", polled=98)
    assert {anomaly.kind for anomaly in verdict.unallowed} >= {"phantom"}
    stage = Stage(directory / "cluster")
    leave(directory, stage, _PLAN, verdict, everything=True)
    assert stage.ended == [directory / "data"]
    assert _names(directory) == _KEPT | {"cluster"}
    assert (directory / "verdict.txt").read_text().splitlines() == list(verdict.lines())
    assert (directory / "schedule.txt").read_text().splitlines() == list(told(_PLAN))
    assert read(directory / "schedule.json") == _PLAN
    assert (directory / "versions.txt").read_text().splitlines() == list(versions())
    assert "phantom" in (directory / "timeline.html").read_text()
    (line,) = register().read_text().splitlines()
    assert "seed 8 on ours: 300 operations" in line and "not allowed: " in line and "phantom" in line
    assert line.endswith(f"; kept in {directory}")


@pytest.mark.spec("HIS-48")
def test_of_a_run_that_is_clean_its_seed_and_verdict_are_left(directory: Path) -> None:
    for _ in range(2):
        verdict = _write(directory / "history.jsonl", polled=97)
        stage = Stage(directory / "cluster")
        leave(directory, stage, _PLAN, verdict, everything=False)
        assert stage.ended == [None]
        assert not directory.exists()
        directory.mkdir()
    lines = register().read_text().splitlines()
    assert len(lines) == 2, "a line for each run"
    for line in lines:
        assert "seed 8 on ours: 300 operations; 3 steps; assign, idempotent" in line
        assert line.endswith("; ".join(verdict.lines())) and "no anomaly that is not allowed" in line


@pytest.mark.spec("HIS-48")
def test_a_run_that_ended_by_an_error_is_left_with_that(directory: Path) -> None:
    _write(directory / "history.jsonl", polled=97)
    with pytest.raises(AssertionError, match="no operation ends any more"):
        try:
            raise AssertionError("no operation ends any more")
        finally:
            leave(directory, Stage(directory / "cluster"), _PLAN, None, everything=True)
    assert _names(directory) == _KEPT | {"cluster"}
    said = (directory / "verdict.txt").read_text().splitlines()
    assert said[0] == "the run did not end" and said[-1] == "AssertionError: no operation ends any more"
    assert "The run did not end" in (directory / "timeline.html").read_text()
    assert "did not end: AssertionError" in register().read_text()


@pytest.mark.spec("HIS-48")
def test_what_cannot_be_done_keeps_nothing_else_from_being_left(directory: Path) -> None:
    (directory / "history.jsonl").write_text("no history\n")
    with pytest.raises(OSError, match="they do not end"):
        leave(directory, Stage(directory / "cluster", error=OSError("they do not end")), _PLAN, None, everything=True)
    assert _names(directory) == _KEPT - {"data", "timeline.html"} | {"cluster"}


def test_steps_that_had_begun_are_counted_though_the_file_is_torn(directory: Path) -> None:
    assert steps_begun(directory / "history.jsonl") == 0
    _write(directory / "history.jsonl", polled=97, begun=2)
    assert steps_begun(directory / "history.jsonl") == 2
    with (directory / "history.jsonl").open("ab") as file:
        file.write(b'{"index":9,"process":"nemesis","f":"fault","value":{"st')
    assert steps_begun(directory / "history.jsonl") == 2


@pytest.mark.spec("HIS-48")
def test_versions_are_of_all_that_took_part() -> None:
    ours, control = list(versions()), list(versions("2.8.2"))
    for name in ("kafkatool 0.", "librdkafka 2.", "confluent-kafka 2.", "Python 3.", "Java ", "kernel Linux "):
        assert sum(line.startswith(name) for line in ours) == 1, name
    assert "brokers: ours; no Kafka took part" in ours
    assert "brokers: Kafka 2.8.2" in control


class Ended(BaseException):
    """Stands for the end of the process."""


class Command:
    """``scripts/history-run``, with played brokers and a played run of two steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.polled = 97
        self.asked: dict[str, Any] = {}
        self.replaced_by: Sequence[str] = ()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(nemesis, "OurStage", Stage)
        monkeypatch.setattr(histories_run, "run", self._run)
        monkeypatch.setattr(histories_run, "end_if_frozen", lambda: None)
        monkeypatch.setattr(os, "_exit", self._exit)
        monkeypatch.setattr(os, "execv", self._exec)

    def _run(self, _: Stage, file: Path, seed: int, cell: Cell, **given: Any) -> Verdict:
        self.asked = {"seed": seed, "cell": cell, **given}
        return _write(file, polled=self.polled)

    def _exit(self, code: int) -> None:
        raise Ended(code)

    def _exec(self, _: str, command: Sequence[str]) -> None:
        self.replaced_by = command
        raise Ended(FOUND)

    def __call__(self, *arguments: str) -> int:
        self._monkeypatch.setattr(sys, "argv", ["history-run", *arguments])
        with pytest.raises(Ended) as ended:
            histories_run.main()
        code: int = ended.value.args[0]
        return code


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    handler = signal.getsignal(signal.SIGTERM)
    yield Command(monkeypatch)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.spec("HIS-48")
def test_a_run_that_passes_leaves_a_line_and_nothing_else(command: Command, temporary: Path) -> None:
    assert command("--seed", "8") == CLEAN
    assert _names(temporary) == {register().name}
    (line,) = register().read_text().splitlines()
    assert "seed 8 on ours: 20000 operations; 2 steps" in line and "no anomaly that is not allowed" in line


@pytest.mark.spec("HIS-48")
def test_a_run_that_passes_leaves_everything_where_that_is_asked_for(command: Command, tmp_path: Path) -> None:
    assert command("--seed", "8", "--keep", str(tmp_path / "kept"), "--frames") == CLEAN
    assert _names(tmp_path / "kept") == _KEPT | {"cluster", "frames.jsonl"}
    assert read(tmp_path / "kept" / "schedule.json").steps == tuple(islice(steps(8, BROKERS), 2)), "those that began"


@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("shrinks", [False, True])
def test_a_run_that_fails_leaves_everything_and_is_shrunk_if_that_is_asked_for(
    command: Command, temporary: Path, capsys: pytest.CaptureFixture[str], shrinks: bool
) -> None:
    command.polled = 98
    assert command("--seed", "8", *(["--shrink"] if shrinks else [])) == FOUND
    (kept,) = (path for path in temporary.iterdir() if path != register())
    assert _names(kept) == _KEPT | {"cluster"}
    assert f"is kept in {kept}" in capsys.readouterr().err
    assert list(command.replaced_by[1:]) == (["-m", "tests.histories.kept", str(kept)] if shrinks else [])


@pytest.mark.spec("HIS-48")
def test_a_plan_that_was_kept_is_played_instead_of_what_a_seed_draws(command: Command, tmp_path: Path) -> None:
    command("--seed", "8", "--keep", str(tmp_path / "first"), "--operations", "50")
    first = command.asked
    assert (first["seed"], first["operations"], first["plan"]) == (8, 50, None)
    command("--schedule", str(tmp_path / "first" / "schedule.json"), "--keep", str(tmp_path / "again"))
    again = command.asked
    assert again["plan"] == tuple(islice(steps(8, BROKERS), 2))
    assert (again["steps"], again["least"]) == (2, 2), "all of them, and no more"
    for name in ("seed", "cell", "operations", "pause_s", "workers"):
        assert again[name] == first[name]
    assert read(tmp_path / "again" / "schedule.json") == read(tmp_path / "first" / "schedule.json")
