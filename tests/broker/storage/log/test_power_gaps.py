"""A power cut that takes the end of a segment and leaves the next one: the hole is noted until a leader fills it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.log.log import Log
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import broker_config, everything, make_log

_OPTIONS: dict[str, Any] = {"segment_bytes": "400"}
_BATCHES = 24
_LOST: dict[str, Any] = {**_OPTIONS, "may_lack_data": True}


def written(directory: Path) -> dict[int, list[int]]:
    """Write batches of a record each, and leave the log as a crash does; return the offsets in each segment."""
    log = make_log(directory, **_OPTIONS)
    for _ in range(_BATCHES):
        log.append_as_leader(batch(), 0)
    log.abandon()
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    return {base: list(range(base, end)) for base, end in pairwise([*bases, _BATCHES])}


def keep(directory: Path, base: int, batches: int) -> None:
    """Leave so many batches of a segment."""
    with (directory / f"{base:020d}.log").open("r+b") as file:
        file.truncate(len(batch()) * batches)


def reopened(log: Log, **options: Any) -> Log:
    """Crash and start again, the power being there all the time."""
    log.abandon()
    return make_log(log.directory, **_LOST, recovery_point=log.state.recovery_point, **options)


@pytest.mark.spec("BRK-137")
@settings(deadline=None)
@given(st.data())
def test_the_first_offset_that_lacks_above_the_recovery_point_is_noted(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    segments = written(directory)
    recovery_point = data.draw(st.integers(0, _BATCHES))
    left: set[int] = set()
    for base, offsets in segments.items():  # what is below the recovery point is on the disk
        count = data.draw(st.integers(sum(offset < recovery_point for offset in offsets), len(offsets)))
        keep(directory, base, count)
        left.update(offsets[:count])
    behind = [offset for offset in range(_BATCHES) if offset not in left and any(other > offset for other in left)]
    log = make_log(directory, **_LOST, recovery_point=recovery_point)
    if behind:
        assert log.gap_at == behind[0]
    else:  # a segment of which the name alone is left may stay
        assert log.gap_at in (None, max(left, default=-1) + 1)
    assert make_log(directory, **_OPTIONS, recovery_point=recovery_point).gap_at is None


@pytest.mark.spec("BRK-137", "BRK-140")
def test_a_gap_is_held_over_flushes_and_starts_until_the_log_is_cut_there(tmp_path: Path) -> None:
    second, third = list(written(tmp_path).items())[1:3]
    keep(tmp_path, second[0], 1)
    log = make_log(tmp_path, **_LOST)
    gap = second[1][1]
    assert (log.gap_at, log.log_end_offset) == (gap, _BATCHES)
    log.flush()
    assert log.state.recovery_point == gap
    log = reopened(log)
    assert log.gap_at == gap
    log.close()
    log = make_log(tmp_path, **_LOST, clean=True, recovery_point=log.state.recovery_point)
    assert log.gap_at == gap
    log.truncate_to(third[0])
    assert (log.gap_at, log.log_end_offset) == (gap, third[0]), "what comes next would be behind it"
    log.truncate_to(gap)
    assert log.gap_at is None
    log.flush()
    assert log.state.recovery_point == log.log_end_offset == gap


@pytest.mark.spec("BRK-137")
def test_a_cut_behind_the_gap_leaves_it_and_one_at_it_takes_it(tmp_path: Path) -> None:
    (base, offsets), *_, (last, _) = list(written(tmp_path).items())[1:]
    keep(tmp_path, base, 1)
    log = make_log(tmp_path, **_LOST)
    log.truncate_to(last)
    assert log.gap_at == offsets[1]
    log.truncate_to(offsets[1])
    assert (log.gap_at, log.log_end_offset) == (None, offsets[1])
    log.append_as_follower(memoryview(batch(base_offset=offsets[1])))
    log.flush()
    assert reopened(log).gap_at is None
    log = make_log(tmp_path, **_LOST)
    log.state.gap_at = offsets[1]
    log.truncate_fully_and_start_at(100)
    assert log.gap_at is None


@pytest.mark.spec("BRK-137")
def test_who_leads_goes_on_with_it_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base, offsets = list(written(tmp_path).items())[1]
    keep(tmp_path, base, 1)
    log = make_log(tmp_path, **_LOST)
    before = everything(log)
    log.keep_gap()
    assert log.gap_at is None and f"offsets missing from {offsets[1]} on" in caplog.text
    log.flush()
    assert log.state.recovery_point == _BATCHES and everything(log) == before
    assert reopened(log).gap_at is None


@pytest.mark.spec("BRK-137")
@pytest.mark.parametrize(("recovery_point", "gap"), [(0, 4), (4, 4), (7, 7), (10, None), (20, None)])
def test_what_is_below_the_recovery_point_is_on_the_disk(tmp_path: Path, recovery_point: int, gap: int | None) -> None:
    log = make_log(tmp_path, **_OPTIONS)
    for base, following in ((0, 10), (10, 14)):
        log.append_as_follower(memoryview(batch(4, base_offset=base, epoch=0)))
        log.roll(following)
    log.abandon()
    assert [segment.base_offset for segment in log.segments] == [0, 10, 14]
    for policy in ("delete", "compact"):
        found = make_log(tmp_path, **_LOST, recovery_point=recovery_point, cleanup_policy=policy)
        assert (found.gap_at, found.log_end_offset) == (gap, 14)
        found.abandon()


@pytest.mark.spec("BRK-137", "BRK-143", "BRK-167")
def test_neither_retention_nor_compaction_touches_a_log_with_a_gap(tmp_path: Path) -> None:
    """The first would take what a follower is to keep, the other would hide the gap inside a segment."""
    base, _ = list(written(tmp_path).items())[1]
    keep(tmp_path, base, 1)
    log = make_log(
        tmp_path, **_LOST, retention_bytes="0", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0"
    )
    log.high_watermark = _BATCHES
    before = everything(log)
    cleaner = LogCleaner(broker_config(), lambda: [log])
    assert log.apply_retention() == 0 and not cleaner.clean_dirtiest()
    assert everything(log) == before
    log.keep_gap()
    assert cleaner.clean_dirtiest() and log.apply_retention() > 0


@pytest.mark.spec("BRK-137")
def test_what_lies_below_the_logs_start_lacks_to_nobody(tmp_path: Path) -> None:
    base, offsets = list(written(tmp_path).items())[1]
    keep(tmp_path, base, 1)
    assert make_log(tmp_path, **_LOST, log_start_offset=offsets[-1] + 1).gap_at is None
    assert make_log(tmp_path, **_LOST, log_start_offset=offsets[-1]).gap_at == offsets[1], "a batch begins there"
