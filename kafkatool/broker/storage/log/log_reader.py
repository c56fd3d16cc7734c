"""Reading a log: by offset and by time (BRK-37, BRK-94, BRK-96, BRK-107).

Reads take no lock: they work on the end and the segments as they were when they began, and begin again when retention
or compaction took a segment from under them. Source: Kafka 2.3.1 log/Log.scala.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kafkatool.broker.storage.batches.batch_scan import scan_headers
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_state import LogState, NewestBatch
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segments import Segments
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction
from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import iter_records

T = TypeVar("T")


class LogRead(NamedTuple):
    """A stretch of the log that begins with the batch of the asked offset."""

    start: LogOffset
    records: FileRegion | bytes
    size_bytes: int


class TimestampOffset(NamedTuple):
    """The first record at or after a time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class LogReader:
    """The reading part of a log. Any thread may call; any method raises StorageError when the disk fails."""

    _state: LogState

    def read(self, offset: int, max_bytes: int, upper: int, *, min_one_batch: bool) -> LogRead:
        """Return batches from the one that holds ``offset``, ending before ``upper`` and within one segment.

        At most ``max_bytes``, so that the last batch may be cut; a first batch larger than that comes whole with
        ``min_one_batch`` and not at all without. Raises OffsetOutOfRangeError.
        """
        state = self._state
        end = state.end
        if not state.log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRangeError(
                f"{state.partition}: offset {offset}, the log holds [{state.log_start_offset}, {end.offset})"
            )
        return self._retrying(
            offset, lambda: _read(state.segments, end, offset, max_bytes, upper, min_one_batch=min_one_batch)
        )

    def newest_at(self, offset: int, end: LogOffset) -> NewestBatch | None:
        """Return the batch that begins at ``offset`` if it is the last one before ``end`` and still in memory.

        It is what those ask for who wait at the end, and spares them two look-ups and a system call each.
        """
        state = self._state
        newest = state.newest
        if newest is None or newest.end is not end or newest.start.offset != offset:
            return None
        return newest if offset >= state.log_start_offset else None  # else it was deleted

    def offset_metadata(self, offset: int) -> LogOffset:
        """Return the offset with its segment and position, when it lies in the log (BRK-37)."""
        state = self._state
        end = state.end
        if not state.log_start_offset <= offset <= end.offset:
            return LogOffset(offset)
        return self._retrying(offset, lambda: _find_offset(state.segments, end, offset))

    def find_by_timestamp(self, timestamp_ms: int, upper: int) -> TimestampOffset | None:
        """Return the first record at or after ``timestamp_ms`` with an offset below ``upper`` (BRK-107).

        Raises CorruptRecordsError for a batch that cannot be unpacked.
        """
        state = self._state
        return self._retrying(
            None, lambda: _find_timestamp(state.segments, state.log_start_offset, timestamp_ms, upper)
        )

    def newest_time_ms(self) -> int | None:
        """Return the largest timestamp in the log; None when no record has one. Raises StorageError."""
        segments = self._state.segments
        newest = self._retrying(None, lambda: max((segment.largest[0] for segment in segments), default=-1))
        return newest if newest >= 0 else None

    def segment_times(self) -> list[tuple[int, float]]:
        """Return where each segment begins, the log start at least, and when it was last written to, in ms."""
        state = self._state
        return self._retrying(
            None, lambda: [(max(s.base_offset, state.log_start_offset), s.modified_ms) for s in state.segments]
        )

    def aborted_transactions(self, found: LogRead, upper: int) -> list[AbortedTransaction]:
        """Return what of ``found``, read below ``upper``, a read_committed consumer has to skip (BRK-103)."""
        segments = self._state.segments
        return self._retrying(found.start.offset, lambda: _aborted_transactions(segments, found, upper))

    def _retrying(self, offset: int | None, look: Callable[[], T]) -> T:
        """Return what ``look`` finds; look again if retention or compaction took the segment of ``offset`` meanwhile."""
        state = self._state
        while True:
            generation = state.segments.generation
            try:
                return look()
            except OSError as e:
                with state.lock:  # a change under way has come to its end
                    changed = generation is not state.segments.generation
                if offset is not None and offset < state.log_start_offset:
                    raise OffsetOutOfRangeError(f"{state.partition}: offset {offset} was just removed") from e
                if not (changed and isinstance(e, FileNotFoundError)):
                    raise state.disk_failed(e) from e


def _read(
    segments: Segments, end: LogOffset, offset: int, max_bytes: int, upper: int, *, min_one_batch: bool
) -> LogRead:
    """Return batches from the one that holds ``offset`` to below ``upper``, out of one segment (BRK-94, BRK-96)."""
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
        if first_size > max_bytes and not min_one_batch:  # there is data, but nothing is taken (BRK-96)
            return LogRead(start, b"", 0)
        try:
            available = _readable_end(segment, end, upper) - position
        except CorruptRecordsError:  # behind what is asked for
            available = first_size
        size = min(available, max(max_bytes, first_size))
        return LogRead(start, segment.region(position, size), size) if size > 0 else LogRead(start, b"", 0)
    return LogRead(end, b"", 0)


def _readable_end(segment: Segment, end: LogOffset, upper: int) -> int:
    """Return the position where the batch that holds ``upper`` begins, or the data of the segment ends."""
    data_end = end.position if end.segment_base == segment.base_offset else segment.size_bytes
    assert data_end is not None  # the end always has its place
    if upper >= end.offset:
        return data_end
    found = segment.find(upper)
    return data_end if found is None else min(found[0], data_end)


def _find_offset(segments: Segments, end: LogOffset, offset: int) -> LogOffset:
    """Return ``offset`` with its place; only the offset when no batch holds it or follows it, or it cannot be found."""
    if offset == end.offset:
        return end
    with contextlib.suppress(CorruptRecordsError):
        for segment in segments.from_offset(offset):
            if found := segment.find(offset):
                return LogOffset(offset, segment.base_offset, found[0])
    return LogOffset(offset)


def _find_timestamp(segments: Segments, start_offset: int, timestamp_ms: int, upper: int) -> TimestampOffset | None:
    """Return the first record at or after ``timestamp_ms`` between ``start_offset`` and ``upper`` (BRK-107)."""
    for segment in segments.from_offset(start_offset):
        if segment.base_offset >= upper:
            return None
        if segment.largest[0] < timestamp_ms:
            continue
        for position, header in segment.headers(segment.position_for_timestamp(timestamp_ms)):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            epoch = header.partition_leader_epoch
            for record in iter_records(segment.region(position, header.size_bytes).read()):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    if record.offset >= upper:
                        return None
                    return TimestampOffset(record.timestamp, record.offset, epoch if epoch >= 0 else None)
    return None


def _aborted_transactions(segments: Segments, found: LogRead, upper: int) -> list[AbortedTransaction]:
    """Return those with records or their marker in what was read below ``upper``, by first offset (BRK-103, TXN-65)."""
    if not found.size_bytes:
        return []
    end: int | None = None
    overlapping: list[AbortedTransaction] = []
    for aborted in _aborted_from(segments, found.start.offset):
        if end is None:  # seldom: only now look where the read ends
            end = min(upper, _end_offset(found))
        if aborted.first_offset < end:
            overlapping.append(aborted)
        if aborted.last_stable_offset >= end:  # all that began before it had ended by then
            break
    return sorted(overlapping, key=lambda one: one.first_offset)


def _aborted_from(segments: Segments, start: int) -> Iterator[AbortedTransaction]:
    """Yield them by the offset of the marker, which may lie in a later segment than the records.

    Raises FileNotFoundError for a segment that is replaced meanwhile: a missing index would look like an empty one.
    """
    for segment in segments.from_offset(start):
        yield from segment.aborted_transactions(start)
        if segment.deleted:
            raise FileNotFoundError(f"{segment.transaction_index_path}: its segment was just replaced")


def _end_offset(found: LogRead) -> int:
    """Return the offset after the last whole batch of what was read, in the file it was read from.

    That is not always the file in which the offset lies now: compaction leaves gaps, and replaces segments.
    """
    end, region = found.start.offset, found.records
    assert isinstance(region, FileRegion)  # there is something
    for _, header in scan_headers(region.fd_owner, region.position, region.position + region.size_bytes):
        end = header.next_offset
    return end
