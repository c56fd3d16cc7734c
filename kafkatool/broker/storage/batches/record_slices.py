"""The records of a batch as stretches of its bytes, for compaction: nothing is copied but the key.

A record counts its offset and time from its batch's header, so a kept one goes on as it is (BRK-152, BRK-167).
"""

from collections.abc import Iterator
from typing import NamedTuple

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.records.varints import read_varint


class RecordSlice(NamedTuple):
    """One record of a v2 batch, ``start`` to ``end`` in the batch's plain bytes."""

    offset_delta: int
    time_delta: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


def record_slices(records: bytes, count: int) -> Iterator[RecordSlice]:
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
            yield RecordSlice(offset_delta, time_delta, key, value_length >= 0, start, position)
    except IndexError as short:
        raise CorruptRecordsError("records are cut off") from short
    if position != len(records):
        raise CorruptRecordsError(f"{len(records) - position} bytes after the last record")
