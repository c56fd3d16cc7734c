"""A crash or a power failure at each step of a truncation and of retention: what is found is a log without a hole."""

from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.storage.log.log import Log
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import Later, everything, make_log
from tests.broker.storage.power_loss import at_every_step

_BATCHES = 24


def _filled(directory: Path) -> Log:
    """Make a log of several segments, with epochs and a producer, all on the disk."""
    log = make_log(directory, Later(), segment_bytes="400", index_interval_bytes="100", retention_ms="-1")
    for number in range(_BATCHES):
        log.append_as_leader(batch(2, timestamp=1000 + number, producer=(5, 0, 2 * number)), number // 3)
    assert len(log.segments) > 4
    log.high_watermark = log.log_end_offset
    log.flush()
    return log


def _offsets(log: Log) -> list[int]:
    return [header.base_offset for _, header in iter_batches(everything(log))]


def _check(found: Log, why: str, *, epochs_from: int = 0) -> None:
    """Look into the log by offset and by time; append to it."""
    offsets = _offsets(found)
    assert offsets == list(range(found.log_start_offset, found.log_end_offset, 2)), f"{why}: a hole"
    for offset in offsets:
        read = found.read(offset, 1, found.log_end_offset, min_one_batch=True)
        assert read.start.offset == offset and read.size_bytes, why
        assert offset < epochs_from or found.leader_epochs.epoch_at(offset) == offset // 6, why
        by_time = found.find_by_timestamp(1000 + offset // 2, found.log_end_offset)
        assert by_time is not None and by_time.offset == offset, why
    end = found.log_end_offset
    assert found.append_as_leader(batch(1, producer=(5, 0, end)), 99).first_offset == end, why


@pytest.mark.spec("BRK-142", "BRK-136", "BRK-137")
@pytest.mark.parametrize("cut", [5, 20, 46])
@pytest.mark.parametrize("trusted", [False, True])
def test_a_log_that_was_being_cut_is_found_without_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, trusted: bool
) -> None:
    ends = set()
    for why, directory in at_every_step(tmp_path, monkeypatch, _filled, lambda log: log.truncate_to(cut)):
        point = 2 * _BATCHES if trusted else 0  # as if its checkpoint had not been lowered yet
        found = make_log(directory, recovery_point=point, segment_bytes="400", index_interval_bytes="100")
        assert found.log_start_offset == 0, why
        ends.add(found.log_end_offset)
        _check(found, why)
    assert {cut // 2 * 2, 2 * _BATCHES} <= ends


@pytest.mark.spec("BRK-142", "BRK-136")
def test_a_log_that_was_being_emptied_is_found_whole_in_part_or_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for why, directory in at_every_step(
        tmp_path, monkeypatch, _filled, lambda log: log.truncate_fully_and_start_at(60)
    ):
        found = make_log(directory, segment_bytes="400", index_interval_bytes="100")
        assert found.log_start_offset in (0, 60), why
        if found.log_start_offset == 0:
            _check(found, why)


@pytest.mark.spec("BRK-143", "BRK-136")
def test_a_log_whose_old_segments_were_being_removed_is_found_without_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retain(log: Log) -> None:
        log.advance_log_start(30)
        log.apply_retention()

    for why, directory in at_every_step(tmp_path, monkeypatch, _filled, retain):
        found = make_log(directory, segment_bytes="400", index_interval_bytes="100")
        assert found.log_end_offset == 2 * _BATCHES, why
        _check(found, why, epochs_from=30)


@pytest.mark.spec("BRK-137", "BRK-136")
def test_a_damaged_log_that_was_being_recovered_is_found_without_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted one: gaps between its segments could not be told from those that compaction leaves."""
    options: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100", "cleanup_policy": "compact"}

    def damaged(directory: Path) -> Path:
        log = _filled(directory)
        third_last = list(log.segments)[-3]
        log.close()
        path = directory / f"{third_last.base_offset:020d}.log"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return directory

    for why, directory in at_every_step(
        tmp_path, monkeypatch, damaged, lambda at: make_log(at, recovery_point=30, **options)
    ):
        _check(make_log(directory, **options), why)
