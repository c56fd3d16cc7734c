"""The file with gauges: written only when something changed, by nobody who must not wait."""

import json
import threading
from pathlib import Path

import pytest

from kafkatool.broker.runtime.gauges_file import GaugesFile
from tests.broker.controller.fake_cluster import FakeTimer
from tests.waiting import eventually

NAME = "some-gauges.json"


def test_the_file_is_written_some_time_after_the_first_change(tmp_path: Path) -> None:
    timer, asked = FakeTimer(), []

    def read() -> dict[str, float]:
        asked.append(1)
        return {"EventQueueSize": len(asked)}

    file = GaugesFile(tmp_path / "logs" / NAME, timer, read)
    for _ in range(3):
        file.changed()
    assert not asked
    timer.advance(2000)
    path = tmp_path / "logs" / NAME
    eventually(lambda: path.exists() and json.loads(path.read_text())["EventQueueSize"] == 1, "the file")
    assert not timer.tasks  # nothing happened: nothing is written


def test_a_disk_that_hangs_holds_up_neither_the_timer_nor_more_than_two_threads(tmp_path: Path) -> None:
    """The same timer starts elections: what it calls must not block."""
    timer, goes_on, asked = FakeTimer(), threading.Event(), threading.Semaphore(0)

    def hang() -> dict[str, float]:
        asked.release()
        goes_on.wait()
        return {}

    def writers() -> int:
        return sum(t.name == "some-gauges" for t in threading.enumerate())

    before = writers()
    file = GaugesFile(tmp_path / NAME, timer, hang)
    try:
        file.changed()
        timer.advance(2000)  # returns: with the write on the timer's thread it would not
        asked.acquire()
        for _ in range(5):
            file.changed()
            timer.advance(2000)
        assert writers() - before <= 2
    finally:
        goes_on.set()
    eventually(lambda: writers() == before, "what was due to be written")
    assert (tmp_path / NAME).exists()


def test_a_file_that_cannot_be_written_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("in the way")
    file = GaugesFile(tmp_path / "logs" / NAME, FakeTimer(), dict)
    file.write()
    file.write()
    assert len(caplog.records) == 1
