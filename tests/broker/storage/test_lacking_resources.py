"""Without descriptors, memory or room: what fails, what stays online, and what is there when it is tried again."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import OutOfResourcesError, StorageError
from tests.broker.replication.following.test_convergence import Pair
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.descriptors import few_descriptors
from tests.broker.storage.logs import PARTITION, Later, broker_config, everything, make_log

_SMALL: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100", "retention_ms": "-1"}


def _filled(directory: Path, later: Later) -> Log:
    log = make_log(directory, later, **_SMALL)
    for number in range(20):
        log.append_as_leader(batch(2, timestamp=1000 + number), number // 4)
    log.high_watermark = log.log_end_offset
    for segment in log.segments:
        segment.release()
    return log


def _retain(log: Log) -> None:
    log.advance_log_start(20)
    log.apply_retention()


_OPERATIONS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append_as_leader(batch(2, timestamp=3000), 9),
    "append and roll": lambda log: log.append_as_leader(batch(12, timestamp=3000), 9),
    "append as follower": lambda log: log.append_as_follower(
        memoryview(batch(12, base_offset=log.log_end_offset, epoch=9))
    ),
    "flush": lambda log: log.flush(),
    "cut": lambda log: log.truncate_to(38),
    "cut segments": lambda log: log.truncate_to(9),
    "retention": _retain,
    "read": lambda log: log.read(5, 1000, 40, min_one_batch=True),
    "read by time": lambda log: log.find_by_timestamp(1009, 40),
}


@pytest.mark.spec("BRK-146")
@pytest.mark.parametrize("name", _OPERATIONS)
def test_an_operation_that_lacks_descriptors_fails_alone_and_succeeds_when_there_are_some(
    tmp_path: Path, name: str
) -> None:
    operation = _OPERATIONS[name]
    expected = _filled(tmp_path / "expected", Later())
    operation(expected)
    free, failed = 0, True
    while failed:
        later = Later()
        log = _filled(tmp_path / str(free), later)
        try:
            with few_descriptors(free):
                operation(log)
            failed = False
        except OutOfResourcesError:
            operation(log)
        assert not later.errors, f"with {free} descriptors the log dir went offline"
        assert everything(log) == everything(expected), free
        assert log.leader_epochs.entries == expected.leader_epochs.entries, free
        assert (log.log_start_offset, log.log_end_offset) == (expected.log_start_offset, expected.log_end_offset)
        log.close()
        found = make_log(tmp_path / str(free), log_start_offset=log.log_start_offset, **_SMALL)
        assert everything(found) == everything(expected), free
        free += 1
    assert free > 1, "it needs no descriptor"


@pytest.mark.spec("BRK-146")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_system_lacks_for_a_while_is_no_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lacking(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    later = Later()
    log = _filled(tmp_path, later)
    with monkeypatch.context() as system:
        system.setattr(os, "open", lacking)
        with pytest.raises(OutOfResourcesError):
            log.append_as_leader(batch(), 9)
    assert not later.errors
    assert log.append_as_leader(batch(), 9).first_offset == 40


@pytest.mark.spec("BRK-146", "BRK-137")
def test_a_full_disk_takes_its_dir_offline_and_what_was_appended_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka does: it cannot know that anything it writes from now on, checkpoints included, will be there."""
    later = Later()
    log = _filled(tmp_path, later)
    before, write = everything(log), os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if position < 100:
            return write(fd, memoryview(data)[:10], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as system:
        system.setattr(os, "pwrite", full)
        with pytest.raises(StorageError):
            log.append_as_leader(batch(12), 9)
    assert [error.errno for error in later.errors] == [errno.ENOSPC]
    assert everything(make_log(tmp_path, **_SMALL)) == before


@pytest.mark.spec("BRK-146", "BRK-147", "BRK-41")
def test_a_log_dir_stays_online_whatever_the_manager_lacked_descriptors_for(tmp_path: Path) -> None:
    def load() -> LogManager:
        manager = LogManager(broker_config(log_dirs=str(tmp_path)), lambda _: {}, ManualScheduler())
        manager.load()
        return manager

    manager = load()
    for free in range(10):
        with few_descriptors(free):
            manager.write_recovery_points()
            manager.write_log_starts()
            try:
                manager.get_or_create(PARTITION, is_new=True)
            except OutOfResourcesError:
                assert manager.get(PARTITION) is None
    assert manager.live_dirs == [tmp_path]
    log = manager.get_or_create(PARTITION, is_new=True)
    log.append_as_leader(batch(3), 0)
    manager.write_high_watermarks({PARTITION: 3})
    with few_descriptors(0), pytest.raises(OutOfResourcesError):
        manager.read_high_watermarks()
    manager.shutdown()
    for free in range(3):
        with few_descriptors(free), pytest.raises(OutOfResourcesError):
            load()
    manager = load()
    assert [one.log_end_offset for one in manager.logs()] == [3]
    assert manager.read_high_watermarks() == {PARTITION: 3}
    manager.shutdown()


@pytest.mark.spec("BRK-71", "BRK-72", "BRK-146")
def test_a_follower_that_lacks_descriptors_goes_on_when_there_are_some(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lead(1)
    for _ in range(12):
        pair.append(2)
    pair.lead(2)
    pair.append(1)
    pair.lead(1)
    pair.append(1)
    for broker in (1, 2):
        for segment in pair.replicas[broker].log.segments:
            segment.release()
    logs = [pair.replicas[broker].log for broker in (1, 2)]
    with few_descriptors(0):
        pair.follow(rounds=3)
    for free in range(2, 8):
        logs[1].release_idle()
        with few_descriptors(free):
            pair.follow(rounds=3)
    assert not pair.failed
    pair.follow(rounds=20)
    assert not pair.failed
    assert everything(logs[0]) == everything(logs[1])
