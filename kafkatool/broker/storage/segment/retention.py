"""Retention: the choice of segments a log no longer has to keep (BRK-143)."""

import time
from collections.abc import Sequence

from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.segment.segment import Segment


def removable_segments(
    segments: Sequence[Segment], config: LogConfig, end_offset: int, log_start_offset: int, high_watermark: int
) -> list[Segment]:
    """Return the oldest segments that may go, oldest first; all of them when even the last is not needed.

    A segment goes when it is too old, when the rest still fills ``retention.bytes``, or when the next one begins at or
    below the log start; never one that reaches beyond the high watermark, and never an empty last one. Without
    ``delete`` in the policy only the log start counts. Raises OSError.
    """
    deletes = "delete" in config.cleanup_policy
    now_ms = time.time() * 1000
    excess_bytes = sum(s.size_bytes for s in segments) - config.retention_bytes
    gone: list[Segment] = []
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        segment_end = end_offset if is_last else segments[number + 1].base_offset
        if segment_end > high_watermark or (is_last and not segment.size_bytes):
            break
        below_start = not is_last and segment_end <= log_start_offset
        too_old = deletes and config.retention_ms >= 0 and now_ms - newest_ms(segment) > config.retention_ms
        too_much = deletes and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (below_start or too_old or too_much):
            break
        gone.append(segment)
        excess_bytes -= segment.size_bytes
    return gone


def newest_ms(segment: Segment) -> float:
    """Return its largest timestamp; without any, when the file was last written."""
    timestamp = segment.largest[0]
    return timestamp if timestamp >= 0 else segment.modified_ms
