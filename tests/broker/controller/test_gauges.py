"""What the controller says of itself: by name, in its file, and only when it did something."""

import json
import threading
from pathlib import Path

import pytest

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.gauges import FILE_NAME, Durations, Gauges, GaugesFile
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.controller.fake_cluster import FakeCluster, FakeTimer
from tests.broker.controller.test_controller import controller
from tests.waiting import eventually


def test_durations_know_mean_longest_and_last() -> None:
    durations = Durations()
    assert durations.mean_ms == 0
    for ms in (2.0, 6.0, 1.0):
        durations.add(ms)
    assert (durations.count, durations.mean_ms, durations.longest_ms, durations.last_ms) == (3, 3.0, 6.0, 1.0)
    with pytest.raises(ZeroDivisionError), durations.timed():
        1 / 0  # noqa: B018  what it takes counts, however it ends
    assert durations.count == 4


def test_the_queue_measures_how_long_events_wait() -> None:
    queue = EventQueue()
    queue.put(Event("one", lambda: None))
    queue.put(Event("two", lambda: None))
    assert queue.take() is not None
    assert queue.waits.count == 1 and len(queue) == 1


def test_the_file_is_written_some_time_after_the_first_change(tmp_path: Path) -> None:
    timer, asked = FakeTimer(), []

    def read() -> dict[str, float]:
        asked.append(1)
        return {"EventQueueSize": len(asked)}

    file = GaugesFile(tmp_path / "logs" / FILE_NAME, timer, read)
    for _ in range(3):
        file.changed()
    assert not asked
    timer.advance(2000)
    path = tmp_path / "logs" / FILE_NAME
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
        return sum(t.name == "controller-gauges" for t in threading.enumerate())

    before = writers()
    file = GaugesFile(tmp_path / FILE_NAME, timer, hang)
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
    assert (tmp_path / FILE_NAME).exists()


def test_a_file_that_cannot_be_written_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("in the way")
    file = GaugesFile(tmp_path / "logs" / FILE_NAME, FakeTimer(), dict)
    file.write()
    file.write()
    assert len(caplog.records) == 1


@pytest.mark.spec("CTL-29")
def test_a_controllers_work_is_measured() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.kill(3)
    cluster.run()
    gauges: Gauges = cluster.workers[1].gauges
    values = gauges.values()
    assert values["FailoverCount"] == 1 and values["FailoverTimeMs"] > 0
    assert values["LeaderElectionCount"] >= 2 and values["LeaderElectionTimeMs"] > 0
    assert gauges.batches.count > 0 and gauges.events.count > 0


@pytest.mark.spec("CTL-29", "CTL-24")
def test_the_gauges_of_a_controller_are_in_the_file_beside_its_log(
    base: ZooKeeper,
    zk_connect: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / FILE_NAME
    with controller(zk_connect, 1, StateChangeLog(tmp_path / "state-change.log")) as found:
        # Written some time after the first thing that it did, which may be before it has come to the last.
        eventually(lambda: file.exists() and json.loads(file.read_text())["FailoverCount"] == 1, "the file")
        shown = json.loads(file.read_text())
        assert shown["timestamp_ms"] > 0
        assert set(found.gauges()) == shown.keys() - {"timestamp_ms"}
        assert (shown["ActiveControllerCount"], shown["BrokerState"], shown["FailoverCount"]) == (1, 4, 1)
    assert json.loads(file.read_text())["ActiveControllerCount"] == 0
