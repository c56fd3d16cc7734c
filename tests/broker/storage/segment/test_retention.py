import time
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.storage.log.log import Log
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import Later, log_config, make_log

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
def test_flush_messages_flushes_after_so_many_records(tmp_path: Path) -> None:
    log = make_log(tmp_path, flush_messages="3")
    log.append_as_leader(batch(2), 0)
    assert log.state.recovery_point == 0
    log.append_as_leader(batch(2), 0)
    assert log.state.recovery_point == 4
