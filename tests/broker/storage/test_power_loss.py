"""Power loss at each step of writing each checkpoint file, and of the changes of a log that go by them (BRK-147)."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkatool.broker.storage.checkpoint import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    read_offsets,
    write_offsets,
)
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.directories.meta_properties import read_meta_properties, write_meta_properties
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, check_crc, iter_batches
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.logs import PARTITION, Later, broker_config, everything, make_log
from tests.broker.storage.power_loss import at_every_step
from tests.histories.power.disk import Disk, put
from tests.histories.power.noting import Noting

_SMALL: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100", "retention_ms": "-1"}


def _offsets(name: str) -> tuple[Callable[[Path, int], None], Callable[[Path], object]]:
    def write(directory: Path, offset: int) -> None:
        write_offsets(directory / name, {TopicPartition("t", 0): offset})

    return write, lambda directory: read_offsets(directory / name).get(TopicPartition("t", 0))


def _write_meta(directory: Path, broker_id: int) -> None:
    write_meta_properties(directory, broker_id, "cluster")


def _write_epochs(directory: Path, epoch: int) -> None:
    cache = LeaderEpochCache(directory / LEADER_EPOCHS)
    cache.assign(epoch, epoch)
    cache.sync()


_FILES: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], object]]] = {
    **{name: _offsets(name) for name in (RECOVERY_POINTS, REPLICATION_OFFSETS, LOG_START_OFFSETS, CLEANER_OFFSETS)},
    LEADER_EPOCHS: (_write_epochs, lambda directory: LeaderEpochCache(directory / LEADER_EPOCHS).latest),
    "meta.properties": (_write_meta, lambda directory: read_meta_properties([directory]).broker_id),
}


@pytest.mark.spec("BRK-147", "BRK-149")
@pytest.mark.parametrize("name", _FILES)
def test_a_file_is_the_old_one_or_the_new_one_and_the_new_one_once_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write, read = _FILES[name]

    def old(directory: Path) -> Path:
        write(directory, 1)
        return directory

    found = [(why, read(copy)) for why, copy in at_every_step(tmp_path, monkeypatch, old, lambda at: write(at, 2))]
    assert {value for _, value in found} == {1, 2}, found
    assert {value for _, value in found[-6:]} == {2}, "what was written is durable"


def _check(log: Log, why: str, *, at_least: int = 0) -> None:
    """Look at each batch: whole, in order, with its epoch; its offset and its producer's sequence are one number."""
    stored = everything(log)
    expected = log.log_start_offset
    assert log.log_end_offset >= at_least, why
    for position, header in iter_batches(stored):
        assert check_crc(stored, position), why
        assert header.base_offset == expected, why
        assert log.leader_epochs.epoch_at(expected) == header.partition_leader_epoch, why
        expected = header.next_offset
    assert expected == log.log_end_offset, why
    log.append_as_leader(batch(1, producer=(5, 0, expected)), 99)


def _append(log: Log, count: int, epoch: int) -> None:
    for _ in range(count):
        log.append_as_leader(batch(2, producer=(5, 0, log.log_end_offset)), epoch)


def _flushed(directory: Path) -> Log:
    log = make_log(directory, Later(), **_SMALL)
    for epoch in range(4):
        _append(log, 3, epoch)
    log.high_watermark = log.log_end_offset
    log.flush()
    return log


@pytest.mark.spec("BRK-59", "BRK-60", "BRK-137", "BRK-139")
def test_epochs_and_producers_are_those_of_the_records_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(log: Log) -> None:
        _append(log, 2, 4)
        _append(log, 3, 6)  # rolls: a snapshot is written, not flushed yet
        log.flush()
        _append(log, 1, 7)

    for why, directory in at_every_step(tmp_path, monkeypatch, _flushed, act):
        _check(make_log(directory, recovery_point=24, **_SMALL), why, at_least=24)


@pytest.mark.spec("BRK-140")
def test_what_is_below_the_recovery_point_is_there_also_in_segments_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one epoch, so that no file of epochs is written, and no name comes to the disk with its own."""
    logs: list[Log] = []

    def act(log: Log) -> None:
        logs.append(log)
        _append(log, 8, 3)
        log.flush()
        _append(log, 8, 3)

    points = set()
    for why, directory in at_every_step(tmp_path, monkeypatch, _flushed, act):
        points.add(point := logs[-1].state.recovery_point)
        _check(make_log(directory, recovery_point=point, **_SMALL), why, at_least=point)
    assert points == {24, 40}
    assert any(24 <= segment.base_offset < 40 for segment in logs[-1].segments), "one is new"


@pytest.mark.spec("BRK-140", "BRK-103")
def test_what_was_aborted_below_the_recovery_point_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No start looks at markers below it again: readers would be given records that never were."""
    logs: list[Log] = []

    def act(log: Log) -> None:
        logs.append(log)
        for number in range(2):
            log.append_as_leader(
                batch(2, producer=(8, 0, 2 * number), attributes=TRANSACTIONAL), 3, verification=UNVERIFIED
            )
            log.append_as_leader(marker(commit=False, producer=(8, 0), base_offset=0), 3, origin_client=False)
            log.high_watermark = log.log_end_offset
            log.flush()

    points = set()
    for why, directory in at_every_step(tmp_path, monkeypatch, _flushed, act):
        points.add(point := logs[-1].state.recovery_point)
        found = make_log(directory, recovery_point=point, **_SMALL)
        found.high_watermark = found.log_end_offset
        for _, header in iter_batches(everything(found)):
            if header.attributes & CONTROL:
                read = found.read(header.base_offset - 2, 1, found.log_end_offset, min_one_batch=True)
                aborted = found.aborted_transactions(read, found.log_end_offset)
                assert [one.last_offset for one in aborted] == [header.base_offset], why
        assert found.log_end_offset >= point, why
    assert points == {24, 27, 30}


@pytest.mark.spec("BRK-137", "BRK-103")
def test_what_was_aborted_is_known_after_two_power_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start scans the last segment, below the recovery point, and writes anew what was aborted in it."""

    def with_one_aborted(directory: Path) -> Path:
        log = make_log(directory, Later(), **_SMALL)
        of_transaction = batch(value=bytes(180), producer=(8, 0, 0), attributes=TRANSACTIONAL)
        log.append_as_leader(of_transaction, 3, verification=UNVERIFIED)
        log.append_as_leader(marker(commit=False, producer=(8, 0), base_offset=0), 3, origin_client=False)
        log.flush()
        log.abandon()
        return directory

    def start_and_go_on(directory: Path) -> None:
        log = make_log(directory, recovery_point=2, **_SMALL)
        log.append_as_leader(batch(2), 3)
        assert [segment.base_offset for segment in log.segments] == [0, 2], "so the flush does not come to the first"
        log.flush()
        points.append(log.state.recovery_point)

    points = [2]
    for why, directory in at_every_step(tmp_path, monkeypatch, with_one_aborted, start_and_go_on):
        found = make_log(directory, recovery_point=points[-1], **_SMALL)
        read = found.read(0, 1, found.log_end_offset, min_one_batch=True)
        assert [one.last_offset for one in found.aborted_transactions(read, 2)] == [1], why
    assert len(points) == 2, "the last step is the end"


@pytest.mark.spec("BRK-60", "BRK-142", "BRK-137")
@pytest.mark.parametrize("cut", [pytest.param(20, marks=pytest.mark.slow), 9])
def test_what_is_written_after_a_cut_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """The recovery point was the old end; its checkpoint is lowered before anything is written behind the cut."""
    managers: list[LogManager] = []
    background = ManualScheduler()

    def load(directory: Path) -> LogManager:
        properties = {"log_segment_bytes": "400", "log_index_interval_bytes": "100", "log_retention_ms": "-1"}
        config = broker_config(log_dirs=str(directory), **properties)
        managers.append(LogManager(config, lambda _: {}, background))
        managers[-1].load()
        return managers[-1]

    def prepare(directory: Path) -> Path:
        manager = load(directory)
        log = manager.get_or_create(PARTITION)
        for epoch in range(4):
            _append(log, 3, epoch)
        log.high_watermark = log.log_end_offset
        manager.shutdown()
        return directory

    def act(directory: Path) -> None:  # the mark of the clean stop goes as well
        log = load(directory).get(PARTITION)
        assert log is not None
        log.truncate_to(cut)
        _append(log, 6, 9)
        background.run()

    for why, directory in at_every_step(tmp_path, monkeypatch, prepare, act):
        for manager in managers:
            manager.abandon()
        managers.clear()
        background.jobs.clear()
        found = load(directory).get(PARTITION)
        assert found is not None
        _check(found, why, at_least=cut // 2 * 2)
    managers[-1].abandon()


@pytest.mark.spec("BRK-140")
def test_a_log_that_was_made_just_now_is_there_once_it_was_flushed(tmp_path: Path) -> None:
    """Its directory is a name, too; no other log and no checkpoint brings it to the disk by chance."""

    def load(directory: Path) -> LogManager:
        directory.mkdir(exist_ok=True)
        config = broker_config(log_dirs=str(directory), log_flush_interval_messages="1")
        manager = LogManager(config, lambda _: {}, ManualScheduler())
        manager.load()
        return manager

    (root := tmp_path / "disk").mkdir()
    disk = Disk(root)
    with Noting(root, disk.take):
        manager = load(root)
        log = manager.get_or_create(PARTITION)
        log.append_as_leader(batch(2), 3)
        assert log.state.recovery_point == 2
    for seed in range(40):
        (copy := tmp_path / f"{seed}").mkdir()
        put(disk.left(Random(seed)), copy)
        again = load(copy)
        found = again.get(PARTITION)
        assert found is not None and found.log_end_offset == 2, seed
        again.abandon()
    manager.abandon()
