"""The plan of a round: the dirty part of a log, whether it is worth cleaning, what goes into one file (BRK-167). No I/O.

Source: Kafka 2.3.1 log/LogCleanerManager.scala, log/LogCleaner.scala.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.segment.segment import MAX_RELATIVE_OFFSET, Segment


class CleanPlan(NamedTuple):
    """The plan for a log that could be cleaned."""

    segments: Sequence[Segment]
    """From the log's first up to the last that may be cleaned."""
    first_dirty: int
    """The offset at which the last round ended."""
    end: int
    """The offset at which this round ends: where the first segment begins that may not be cleaned."""
    dirty_bytes: int
    clean_bytes: int

    @property
    def ratio(self) -> float:
        """Return the dirty part of what would be read."""
        return self.dirty_bytes / max(1, self.dirty_bytes + self.clean_bytes)


def plan_cleaning(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    cleaned_to: int | None,
    log_start: int,
    stable_offset: int,
    log_end: int,
    now_ms: float,
    newest_ms: Callable[[Segment], float],
) -> CleanPlan | None:
    """Plan for all segments of a log, the active one last; None when nothing is dirty, or old, enough.

    Cleaned are closed segments that end at or below ``stable_offset``, up to the first dirty one with a record younger
    than ``min.compaction.lag.ms``. Something dirty from before ``max.compaction.lag.ms`` is enough (KIP-354).
    ``cleaned_to`` is the checkpointed end of the last round: one that does not fit the
    log (any more) counts for nothing.
    """
    first_dirty = max(log_start, segments[0].base_offset)
    if cleaned_to is not None and first_dirty < cleaned_to <= log_end:
        first_dirty = cleaned_to
    limit = 0
    clean_bytes = dirty_bytes = 0
    overdue = False
    for number, segment in enumerate(segments[:-1]):
        following = segments[number + 1].base_offset
        if following > stable_offset:
            break
        is_dirty = following > first_dirty
        lag = config.min_compaction_lag_ms
        if is_dirty and lag > 0 and newest_ms(segment) > now_ms - lag:
            break
        if is_dirty:
            dirty_bytes += segment.size_bytes
            overdue = overdue or _begins_before(segment, now_ms - config.max_compaction_lag_ms)
        else:
            clean_bytes += segment.size_bytes
        limit = number + 1
    plan = CleanPlan(segments[:limit], first_dirty, segments[limit].base_offset, dirty_bytes, clean_bytes)
    return plan if dirty_bytes and (overdue or plan.ratio > config.min_cleanable_dirty_ratio) else None


def _begins_before(segment: Segment, time_ms: float) -> bool:
    """Tell whether its first batch is older; a limit before all time asks for no look into the file."""
    first = segment.first_timestamp if time_ms > 0 else None
    return first is not None and 0 <= first < time_ms


def group_segments(segments: Sequence[Segment], max_bytes: int, end: int) -> list[list[Segment]]:
    """Group neighbours that fit together into one segment, so that segments do not shrink to nothing.

    A group's bytes stay within ``max_bytes``, its offsets within what an index can hold. ``end`` is the offset after
    the last segment.
    """
    groups: list[list[Segment]] = []
    size = 0
    for number, segment in enumerate(segments):
        last_offset = (segments[number + 1].base_offset if number + 1 < len(segments) else end) - 1
        if (
            groups
            and size + segment.size_bytes <= max_bytes
            and last_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            size += segment.size_bytes
        else:
            groups.append([segment])
            size = segment.size_bytes
    return groups
