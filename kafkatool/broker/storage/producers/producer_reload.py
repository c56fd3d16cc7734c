"""The recovery of producer state from the newest good snapshot and the headers of the batches after it (BRK-139)."""

from collections.abc import Sequence
from pathlib import Path

from kafkatool.broker.storage.batches.transaction_markers import Marker, read_marker
from kafkatool.broker.storage.producers.producer_snapshot import offset_of, read_snapshot, snapshots
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction
from kafkatool.core.protocol.records.batches import CONTROL, BatchHeader


def reload_producers(directory: Path, segments: Sequence[Segment], end_offset: int) -> ProducerState:
    """Return the producers of the log up to ``end_offset``. A damaged snapshot is removed. Raises OSError."""
    state = newest_snapshot(directory, end_offset)
    for segment in segments:
        following = [s.base_offset for s in segments if s.base_offset > segment.base_offset]
        if segment.base_offset >= end_offset or (following and following[0] <= state.end_offset):
            continue
        replay(state, segment, end_offset)
    state.end_offset = end_offset
    return state


def newest_snapshot(directory: Path, end_offset: int) -> ProducerState:
    """Read the newest good snapshot at or below ``end_offset``; empty without one."""
    for path in reversed(snapshots(directory)):
        if offset_of(path) <= end_offset:
            if (state := read_snapshot(path)) is not None:
                return state
            path.unlink()
    return ProducerState()


def replay(state: ProducerState, segment: Segment, end_offset: int) -> None:
    """Record the segment's batches from the state's end up to ``end_offset``."""
    found = segment.find(max(state.end_offset, segment.base_offset))
    if found is None:
        return
    for position, header in segment.headers(found[0]):
        if header.base_offset >= end_offset:
            return
        replay_batch(state, segment, position, header)


def replay_batch(
    state: ProducerState, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Record one stored batch, unchecked as on followers; return what to note if it aborts a transaction."""
    aborted = None
    if header.producer_id >= 0:
        if header.attributes & CONTROL:
            batch = segment.region(position, header.size_bytes).read()
            if (marker := read_marker(batch)) is not None:
                aborted = apply_marker(state, header, header.base_offset, marker)
        else:
            state.record(header, header.base_offset, header.max_timestamp)
    state.end_offset = header.next_offset
    return aborted


def apply_marker(
    state: ProducerState, header: BatchHeader, base_offset: int, marker: Marker
) -> AbortedTransaction | None:
    """End the transaction that the control batch speaks of; return what to note when it was aborted."""
    start = state.end_transaction(header, base_offset, marker.coordinator_epoch)
    if marker.committed or start is None:
        return None
    return AbortedTransaction(header.producer_id, start, base_offset, state.first_open(base_offset + 1))
