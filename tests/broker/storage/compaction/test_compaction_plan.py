"""What of a log a round of compaction takes: limits to the byte, the offset and the millisecond."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.storage.compaction.compaction_plan import CleanPlan, plan_cleaning
from tests.broker.storage.logs import log_config

NOW_MS = 1_000_000.0


def segments(*sizes: int) -> list[Any]:
    """Make segments of ten offsets each, the active one last."""
    return [
        SimpleNamespace(base_offset=10 * n, size_bytes=size, first_timestamp=500_000) for n, size in enumerate(sizes)
    ]


def plan(sizes: tuple[int, ...], *, stable: int, cleaned_to: int | None = None, **configs: str) -> CleanPlan | None:
    given = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"} | configs
    return plan_cleaning(
        segments(*sizes),
        log_config(**given),
        cleaned_to=cleaned_to,
        log_start=0,
        stable_offset=stable,
        log_end=10 * len(sizes),
        now_ms=NOW_MS,
        newest_ms=lambda segment: 600_000 + segment.base_offset,
    )


@pytest.mark.spec("BRK-167")
@pytest.mark.parametrize(("dirty_bytes", "enough"), [(50, False), (51, True)])
def test_a_log_is_cleaned_when_its_dirty_bytes_exceed_the_ratio(dirty_bytes: int, enough: bool) -> None:
    found = plan((50, dirty_bytes, 999), stable=30, cleaned_to=10, min_cleanable_dirty_ratio="0.5")
    assert (found is not None) is enough, "the active segment counts for neither"


@pytest.mark.spec("BRK-167")
@pytest.mark.parametrize(("stable", "ends"), [(9, None), (10, 10), (19, 10), (20, 20), (30, 20)])
def test_only_closed_segments_that_end_at_or_below_the_last_stable_offset_are_taken(
    stable: int, ends: int | None
) -> None:
    found = plan((50, 50, 50), stable=stable)
    assert (None if found is None else found.end) == ends
    if found is not None and ends is not None:
        assert [s.base_offset for s in found.segments] == list(range(0, ends, 10))


@pytest.mark.spec("BRK-167")
@pytest.mark.parametrize(("lag_ms", "ends"), [(0, 20), (399_990, 20), (399_991, 10), (400_000, 10), (400_001, None)])
def test_what_is_younger_than_the_lag_and_all_behind_it_is_left(lag_ms: int, ends: int | None) -> None:
    found = plan((50, 50, 50), stable=30, min_compaction_lag_ms=str(lag_ms))
    assert (None if found is None else found.end) == ends
