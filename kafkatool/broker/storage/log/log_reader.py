"""Reading a log: by offset and by time. Needs no lock: works on the end and the segments as they are at the start."""

from collections.abc import Iterator

from kafkatool.broker.storage.batches.batch_scan import scan_headers
from kafkatool.broker.storage.log.log_offset import LogOffset, LogRead, TimestampOffset
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segments import Segments
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction, read_aborted
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import decode_records


def read_log(
    segments: Segments, end: LogOffset, offset: int, max_bytes: int, upper: int, *, min_one_batch: bool
) -> LogRead:
    """Batches from the one that holds ``offset`` to below ``upper``, out of one segment (BRK-94, BRK-96)."""
    if offset >= end.offset:
        return LogRead(end, b"", 0)
    for segment in segments.from_offset(offset):
        found = segment.find(offset)
        if found is None:  # offsets that compaction left out at the end of a segment
            continue
        position, first_end = found
        start = LogOffset(offset, segment.base_offset, position)
        if offset >= upper:
            return LogRead(start, b"", 0)
        first_size = first_end - position
        if first_size > max_bytes and not min_one_batch:
            return LogRead(start, b"", 0, first_batch_incomplete=True)
        available = _readable_end(segment, end, upper) - position
        size = min(available, max(max_bytes, first_size))
        return LogRead(start, segment.region(position, size), size) if size > 0 else LogRead(start, b"", 0)
    return LogRead(end, b"", 0)


def _readable_end(segment: Segment, end: LogOffset, upper: int) -> int:
    """Position where the batch that holds ``upper`` begins, or the data of the segment ends."""
    data_end = end.position if end.segment_base == segment.base_offset else segment.size_bytes
    assert data_end is not None  # the end always has its place
    if upper >= end.offset:
        return data_end
    found = segment.find(upper)
    return data_end if found is None else min(found[0], data_end)


def find_offset(segments: Segments, end: LogOffset, offset: int) -> LogOffset:
    """``offset`` with its place; only the offset when no batch holds it or follows it."""
    if offset == end.offset:
        return end
    for segment in segments.from_offset(offset):
        if found := segment.find(offset):
            return LogOffset(offset, segment.base_offset, found[0])
    return LogOffset(offset)


def find_timestamp(segments: Segments, start_offset: int, timestamp_ms: int, upper: int) -> TimestampOffset | None:
    """The first record at or after ``timestamp_ms`` between ``start_offset`` and ``upper`` (BRK-107)."""
    for segment in segments.from_offset(start_offset):
        if segment.base_offset >= upper:
            return None
        if segment.largest[0] < timestamp_ms:
            continue
        for position, header in segment.headers(segment.position_for_timestamp(timestamp_ms)):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            epoch = header.partition_leader_epoch
            for record in decode_records(segment.region(position, header.size_bytes).read()):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    if record.offset >= upper:
                        return None
                    return TimestampOffset(record.timestamp, record.offset, epoch if epoch >= 0 else None)
    return None


def aborted_transactions(segments: Segments, found: LogRead, upper: int) -> list[AbortedTransaction]:
    """Those with records or their marker in what was read below ``upper`` (BRK-103)."""
    if not found.size_bytes:
        return []
    start = found.start.offset
    overlapping: list[AbortedTransaction] = []
    for aborted in _aborted_from(segments, start):
        if aborted.last_offset >= start and aborted.first_offset < upper:
            overlapping.append(aborted)
        if aborted.last_stable_offset >= upper:
            break
    if overlapping:  # seldom: only now look where the read ends
        end = _end_offset(found)
        return [aborted for aborted in overlapping if aborted.first_offset < end]
    return []


def _aborted_from(segments: Segments, start: int) -> Iterator[AbortedTransaction]:
    """By the offset of the marker, which may lie in a later segment than the records.

    Raises FileNotFoundError for a segment that is replaced meanwhile: a missing index would look like an empty one.
    """
    for segment in segments.from_offset(start):
        yield from read_aborted(segment.transaction_index_path)
        if segment.deleted:
            raise FileNotFoundError(f"{segment.transaction_index_path}: its segment was just replaced")


def _end_offset(found: LogRead) -> int:
    """The offset after the last whole batch of what was read, in the file it was read from.

    That is not always the file in which the offset lies now: compaction leaves gaps, and replaces segments.
    """
    end, region = found.start.offset, found.records
    assert isinstance(region, FileRegion)  # there is something
    for _, header in scan_headers(region.fd_owner, region.position, region.position + region.size_bytes):
        end = header.next_offset
    return end
