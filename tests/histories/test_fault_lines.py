"""Fault lines: each fault has one where it begins and one where it is over, on either side of what is done."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.schedule import Fault, Step
from tests.histories.analyser.notation import HEADER
from tests.histories.history import History, read_file
from tests.histories.nemesis import Stage, play
from tests.histories.writer import HistoryWriter


class Noting:
    """A stage on which nothing happens but that it is written down, as a process of its own."""

    def __init__(self, writer: HistoryWriter, trouble: Exception | None = None) -> None:
        self._writer, self._trouble = writer, trouble

    def begin(self, step: Step) -> None:
        self._writer.write(1, "invoke", "poll", [["poll"]])

    def end(self, step: Step) -> None:
        if self._trouble is not None:
            raise self._trouble
        self._writer.write(1, "ok", "poll", [["poll", {}]])


def _played(file: Path, steps: list[Step], trouble: Exception | None = None) -> History:
    with HistoryWriter(file, HEADER) as writer:
        for number, step in enumerate(steps):
            play(cast(Stage, Noting(writer, trouble)), step, number, writer)
    return read_file(file)


def _step(*kinds: Any) -> Step:
    return Step(tuple(Fault(kind, broker, 3, "", "heals", 0) for broker, kind in enumerate(kinds, 1)), 0.0, False)  # type: ignore[arg-type]


@pytest.mark.spec("HIS-12", "HIS-45")
def test_faults_begin_and_end_on_lines_of_the_nemesis_that_name_them_and_their_step(tmp_path: Path) -> None:
    history = _played(tmp_path / "h", [_step("kill"), _step("freeze", "stop")])
    assert [(line["process"], line["type"], line["value"]) for line in history.faults] == [
        ("nemesis", "info", {"step": 0, "begins": True, "faults": ["kill 1"]}),
        ("nemesis", "info", {"step": 0, "begins": False, "faults": ["kill 1"]}),
        ("nemesis", "info", {"step": 1, "begins": True, "faults": ["freeze 1", "stop 2"]}),
        ("nemesis", "info", {"step": 1, "begins": False, "faults": ["freeze 1", "stop 2"]}),
    ]
    assert [line["index"] for line in history.faults] == [0, 3, 4, 7]
    assert [(one.invoked, one.completed) for one in history.operations] == [(1, 2), (5, 6)]


@pytest.mark.spec("HIS-12")
def test_a_fault_that_is_not_mended_has_no_line_of_an_end(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not mended"):
        _played(tmp_path / "h", [_step("kill")], OSError("not mended"))
    assert [line["value"]["begins"] for line in read_file(tmp_path / "h").faults] == [True]
