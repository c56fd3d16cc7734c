import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.segment import retention
from kafkatool.broker.storage.segment.segment import Segment
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import PARTITION, Later, log_config, make_log

_HOUR = 3_600_000
_SIZE = len(batch())


def _log(directory: Path, later: Later | None = None, ages_h: tuple[int, ...] = (9, 7, 5, 0), **options: Any) -> Log:
    """Make a log of a segment for each age, with one record."""
    options = {"segment_bytes": str(_SIZE), "retention_ms": "-1"} | options
    log = make_log(directory, later, **options)
    now = int(time.time() * 1000)
    for age in ages_h:
        log.append_as_leader(batch(timestamp=now - age * _HOUR), 0)
    log.high_watermark = log.log_end_offset
    return log


def _bases(log: Log) -> list[int]:
    return [s.base_offset for s in log.segments]


@pytest.mark.spec("BRK-143", "BRK-144")
def test_segments_older_than_the_limit_go_oldest_first(tmp_path: Path) -> None:
    later = Later()
    log = _log(tmp_path, later, retention_ms=str(6 * _HOUR))
    assert log.apply_retention() == 2
    assert (_bases(log), log.log_start_offset) == ([2, 3], 2)
    assert len(list(tmp_path.glob("*.deleted"))) >= 2
    later.run()
    assert list(tmp_path.glob("*.deleted")) == []
    assert log.leader_epochs.entries == [(0, 2)]


@pytest.mark.spec("BRK-143")
@pytest.mark.parametrize(("later_ms", "gone"), [(5000, 0), (5001, 1)])
def test_a_segment_goes_when_its_largest_time_is_older_than_the_limit_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_ms: int, gone: int
) -> None:
    log = make_log(tmp_path, retention_ms="5000")
    for timestamp in (1_000_000, 2_000_000, 1_500_000):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    log.roll(3)
    log.high_watermark = 3
    monkeypatch.setattr(retention, "time", SimpleNamespace(time=lambda: (2_000_000 + later_ms) / 1000))
    assert log.apply_retention() == gone


@pytest.mark.spec("BRK-143")
def test_an_old_segment_behind_a_young_one_stays(tmp_path: Path) -> None:
    assert _log(tmp_path, ages_h=(0, 9, 0), retention_ms=str(_HOUR)).apply_retention() == 0


@pytest.mark.spec("BRK-143")
def test_size_limit_keeps_at_least_that_much(tmp_path: Path) -> None:
    log = _log(tmp_path, retention_bytes=str(2 * _SIZE + 1))
    assert log.apply_retention() == 1
    log.update_config(log_config(retention_bytes=str(2 * _SIZE), retention_ms="-1", segment_bytes=str(_SIZE)))
    assert log.apply_retention() == 1


@pytest.mark.spec("BRK-143")
def test_nothing_beyond_the_high_watermark_goes(tmp_path: Path) -> None:
    log = _log(tmp_path, retention_ms="0")
    log.high_watermark = 2
    assert log.apply_retention() == 2


@pytest.mark.spec("BRK-143")
def test_the_last_segment_makes_room_for_an_empty_one_which_stays(tmp_path: Path) -> None:
    log = _log(tmp_path, ages_h=(9, 8), retention_ms=str(_HOUR))
    assert log.apply_retention() == 2
    assert (_bases(log), log.log_start_offset, log.log_end_offset) == ([2], 2, 2)
    assert log.apply_retention() == 0
    assert log.append_as_leader(batch(), 0).first_offset == 2


@pytest.mark.spec("BRK-143")
def test_segments_below_the_log_start_go_whatever_the_policy(tmp_path: Path) -> None:
    log = _log(tmp_path, cleanup_policy="compact")
    log.advance_log_start(2)
    assert log.apply_retention() == 2


@pytest.mark.spec("BRK-140", "BRK-139")
def test_flush_moves_the_recovery_point_and_old_snapshots_go(tmp_path: Path) -> None:
    later = Later()
    log = _log(tmp_path, later)
    assert log.state.recovery_point == 0
    later.run()  # the flushes that rolling asked for
    assert log.state.recovery_point == 4
    log.flush()
    assert sorted(int(p.stem) for p in tmp_path.glob("*.snapshot")) == [2, 3]


@pytest.mark.spec("BRK-140")
@pytest.mark.parametrize("follower", [False, True])
def test_flush_messages_flushes_after_so_many_records(tmp_path: Path, follower: bool) -> None:
    log = make_log(tmp_path, flush_messages="3")
    for count, flushed in ((2, 0), (1, 3), (2, 3), (2, 7)):
        if follower:
            log.append_as_follower(memoryview(batch(count, base_offset=log.log_end_offset, epoch=0)))
        else:
            log.append_as_leader(batch(count), 0)
        assert log.state.recovery_point == flushed


@pytest.mark.spec("BRK-143", "TXN-5")
def test_a_log_without_delete_in_its_policy_keeps_what_is_old_and_too_much(tmp_path: Path) -> None:
    log = _log(tmp_path, cleanup_policy="compact", retention_ms="0", retention_bytes="0")
    assert log.apply_retention() == 0


@pytest.mark.spec("BRK-143")
def test_negative_limits_switch_their_rules_off(tmp_path: Path) -> None:
    log = _log(tmp_path, ages_h=(99_999, 9, 0), retention_ms="-1", retention_bytes="-1")
    assert log.apply_retention() == 0


@pytest.mark.spec("BRK-143")
def test_0_is_a_limit_and_a_time_like_others(tmp_path: Path) -> None:
    assert _log(tmp_path / "bytes", retention_bytes="0").apply_retention() == 4
    log = make_log(tmp_path / "time", retention_ms=str(_HOUR))
    log.append_as_leader(batch(timestamp=0), 0)
    log.high_watermark = 1
    assert log.apply_retention() == 1, "of 1970, whenever it was written"


@pytest.mark.spec("BRK-143")
def test_a_segment_goes_once_the_next_begins_at_the_log_start_and_not_before(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=str(len(batch(2))), retention_ms="-1")
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    log.high_watermark = 6
    log.advance_log_start(3)
    assert (log.apply_retention(), _bases(log)) == (1, [2, 4])
    log.advance_log_start(4)
    assert (log.apply_retention(), _bases(log)) == (1, [4])


@pytest.mark.spec("BRK-144")
def test_removed_files_are_renamed_at_once_and_erased_after_the_delay(tmp_path: Path) -> None:
    waits: list[float] = []
    later = Later()

    def defer(job: Callable[[], object], delay_ms: float) -> None:
        waits.append(delay_ms)
        later.jobs.append(job)

    services = replace(later.services(), defer=defer)
    log = open_log(tmp_path, PARTITION, log_config(file_delete_delay_ms="1234"), services)
    log.append_as_leader(batch(), 0)
    log.roll(1)
    later.jobs.clear()
    waits.clear()
    log.high_watermark = 1
    log.advance_log_start(1)
    assert log.apply_retention() == 1
    assert not (tmp_path / f"{0:020d}.log").exists()
    assert (tmp_path / f"{0:020d}.log.deleted").exists()
    assert waits == [1234]
    later.run()
    assert not list(tmp_path.glob("*.deleted"))


@pytest.mark.spec("BRK-139")
def test_snapshots_down_to_the_recovery_point_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log(tmp_path, Later(), ages_h=(9, 8, 7))
    flush = Segment.flush

    def while_it_grows(segment: Segment) -> None:
        monkeypatch.setattr(Segment, "flush", flush)
        for _ in range(4):
            log.append_as_leader(batch(), 0)
        flush(segment)

    monkeypatch.setattr(Segment, "flush", while_it_grows)
    log.flush()
    assert log.state.recovery_point == 3
    assert sorted(int(p.stem) for p in tmp_path.glob("*.snapshot")) == [3, 4, 5, 6]


@pytest.mark.spec("BRK-139")
def test_a_snapshot_is_written_at_each_roll_and_the_close_and_those_of_two_segments_are_kept(tmp_path: Path) -> None:
    log = _log(tmp_path, Later(), ages_h=(9, 8, 7, 6, 5, 0))
    assert sorted(int(p.stem) for p in tmp_path.glob("*.snapshot")) == [1, 2, 3, 4, 5], "one at each roll"
    log.flush()
    assert log.state.recovery_point == 6
    assert sorted(int(p.stem) for p in tmp_path.glob("*.snapshot")) == [4, 5], "the last two segments"
    log.close()
    assert sorted(int(p.stem) for p in tmp_path.glob("*.snapshot")) == [4, 5, 6]
