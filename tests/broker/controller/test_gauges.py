"""What the controller says of itself: by name, and in its file."""

import json
from pathlib import Path

import pytest

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.gauges import FILE_NAME, Durations, Gauges
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.controller.fake_cluster import FakeCluster
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
