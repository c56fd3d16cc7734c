"""Power loss at each step of writing each checkpoint file, and of the changes of a log that go by them (BRK-147)."""

from collections.abc import Callable
from pathlib import Path
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
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import check_crc, iter_batches
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import PARTITION, Later, broker_config, everything, make_log
from tests.broker.storage.power_loss import at_every_step

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


@pytest.mark.spec("BRK-60", "BRK-142", "BRK-137")
@pytest.mark.parametrize("cut", [20, 9])
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
