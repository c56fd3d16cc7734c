"""Rolling: the test whether the active segment is full or old enough (BRK-131)."""

import time

from kafkatool.broker.storage.batches.received_batches import ReceivedBatch
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.segment.segment import MAX_RELATIVE_OFFSET, Segment


def must_roll(segment: Segment, planned_bytes: int, batch: ReceivedBatch, config: LogConfig) -> bool:
    """Tell whether a segment that holds ``planned_bytes`` cannot take the batch too."""
    header = batch.header
    if batch.base_offset + header.last_offset_delta - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if not planned_bytes:
        return False
    if planned_bytes + header.size_bytes > config.segment_bytes or segment.index_is_full(config.segment_index_bytes):
        return True
    first = segment.first_timestamp
    if first is not None and first >= 0 and batch.max_timestamp >= 0:
        age_ms = float(batch.max_timestamp - first)
    else:
        age_ms = time.time() * 1000 - segment.created_ms
    return age_ms > config.segment_ms - segment.roll_jitter_ms
