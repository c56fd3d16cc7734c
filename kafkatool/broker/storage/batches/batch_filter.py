"""Leaving records out of a stored batch, whatever its format (BRK-167).

A record counts its offset and time from its batch's header, so a kept one goes on as it is; nothing is copied but the
key (BRK-152). Source: Kafka 2.3.1 common/record/MemoryRecords.java (what of a batch must stay as it was).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkatool.broker.storage.batches.batch_rewrite import plain_records, with_records
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import BatchHeader
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME, LegacyEntry, encode_wrapper, read_entries
from kafkatool.core.protocol.records.varints import read_varint

Wanted = Callable[[int, bytes | None, bool], bool]
"""Tells whether to keep a record, by its offset, its key and whether it has a value."""


class _RecordSlice(NamedTuple):
    """One record of a v2 batch, ``start`` to ``end`` in the batch's plain bytes."""

    offset_delta: int
    time_delta: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


def keys_of(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, key) of each record that has a key. Raises CorruptRecordsError."""
    if header.magic < 2:
        yield from ((e.offset, e.key) for e in read_entries(batch) if e.key is not None)
        return
    base = header.base_offset
    with plain_records(batch, header) as records:
        for found in _record_slices(records, header.record_count):
            if found.key is not None:
                yield base + found.offset_delta, found.key


def filter_batch(batch: memoryview, header: BatchHeader, wanted: Wanted) -> Buffer | None:
    """Return the batch with the records that are wanted: itself when all are, None when none is.

    First and last offset, producer and sequence stay those of ``batch``. Raises CorruptRecordsError.
    """
    if header.magic < 2:
        return _filter_legacy(batch, header, wanted)
    base = header.base_offset
    kept = bytearray()
    count = newest_delta = 0
    with plain_records(batch, header) as records:
        for found in _record_slices(records, header.record_count):
            if wanted(base + found.offset_delta, found.key, found.has_value):
                newest_delta = max(newest_delta, found.time_delta) if count else found.time_delta
                count += 1
                kept += records[found.start : found.end]
    if count == header.record_count:
        return batch if count else None
    if not count:
        return None
    newest = header.base_timestamp + newest_delta
    return with_records(
        batch, kept, codec=header.codec, count=count, max_timestamp=None if header.has_log_append_time else newest
    )


def empty_batch(batch: memoryview) -> Buffer:
    """Return the batch without its records: it still tells its producer's last sequence."""
    return with_records(batch, b"", codec=0, count=0)


def _record_slices(records: bytes, count: int) -> Iterator[_RecordSlice]:
    """Yield the ``count`` records in ``records``. Raises CorruptRecordsError when they are not exactly that."""
    position = 0
    try:
        for _ in range(count):
            start = position
            length, at = read_varint(records, position)
            position = at + length
            if length < 0 or position > len(records):
                raise CorruptRecordsError(f"record of {length} bytes at byte {start}")
            time_delta, at = read_varint(records, at + 1)  # one byte of attributes, unused
            offset_delta, at = read_varint(records, at)
            key_length, at = read_varint(records, at)
            key = None
            if key_length >= 0:
                key = records[at : at + key_length]
                at += key_length
            value_length, at = read_varint(records, at)
            if at + max(value_length, 0) > position:
                raise CorruptRecordsError(f"record at byte {start} runs past its end")
            yield _RecordSlice(offset_delta, time_delta, key, value_length >= 0, start, position)
    except IndexError as short:
        raise CorruptRecordsError("records are cut off") from short
    if position != len(records):
        raise CorruptRecordsError(f"{len(records) - position} bytes after the last record")


def _filter_legacy(entry: memoryview, header: BatchHeader, wanted: Wanted) -> Buffer | None:
    """Leave records out of an entry that Kafka wrote before 0.11 (formats v0 and v1; BRK-154).

    One that is not compressed stays or goes. Of a compressed one the records that stay are packed again, in the same
    format: clients of that age read the topic. Source: Kafka 1.1.1 common/record/LegacyRecord.java.
    """
    kept, all_kept = list[LegacyEntry](), True
    for record in read_entries(entry):
        if wanted(record.offset, record.key, record.value is not None):
            kept.append(record)
        else:
            all_kept = False
    if all_kept:
        return entry
    if not kept:
        return None
    stamp = header.attributes & LOG_APPEND_TIME
    return encode_wrapper((record._replace(attributes=stamp) for record in kept), header.codec)
