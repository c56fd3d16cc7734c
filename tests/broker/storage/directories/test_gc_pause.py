"""Thousands of logs must not cost pauses: the cycle collector does not look at them, and need not (gc_pause.py)."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.runtime import gc_pause
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.model.values import TopicPartition
from tests.broker.runtime.timers import standing_still
from tests.broker.storage.logs import broker_config
from tests.waiting import eventually

MANY = 120


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogManager]:
    monkeypatch.setattr(gc_pause, "_ours", True)  # as in a process that is a broker
    scheduler = Scheduler(2)
    found = LogManager(broker_config(log_dirs=str(tmp_path), log_segment_delete_delay_ms="0"), lambda _: {}, scheduler)
    found.load()
    gc.unfreeze()  # what was loaded, which is the whole test run
    yield found
    found.shutdown()
    scheduler.shutdown()
    gc.unfreeze()
    gc.enable()


def make(manager: LogManager, count: int) -> list[TopicPartition]:
    made = [TopicPartition("t", n) for n in range(count)]
    for partition in made:
        manager.get_or_create(partition, is_new=True)
    return made


def test_the_collector_rests_while_many_logs_are_made_and_does_not_look_at_them(manager: LogManager) -> None:
    with standing_still():  # all in one moment
        make(manager, MANY)
        assert not gc.isenabled()
    eventually(gc.isenabled, "the collector to go on", 60)
    assert gc.get_freeze_count() > 5 * MANY


def test_for_a_few_logs_nothing_is_taken_from_the_collector(manager: LogManager) -> None:
    make(manager, 3)
    eventually(gc.isenabled, "the collector to go on", 60)
    assert gc.get_freeze_count() == 0


@pytest.mark.spec("BRK-150")
def test_a_deleted_log_goes_without_the_collector(manager: LogManager) -> None:
    made = make(manager, MANY)
    eventually(gc.isenabled, "the collector to go on", 60)
    logs = [weakref.ref(log) for log in manager.logs()]
    gc.disable()
    for partition in made:
        manager.delete(partition)
    assert [log() for log in logs] == MANY * [None]
