"""Entries of formats v0 and v1, from before Kafka 0.11: read, never written (BRK-154).

Source: Kafka 1.1.1 common/record/LegacyRecord.java, AbstractLegacyRecordBatch.java.
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.compression import decompress

_ENTRY = Struct(">qiIbb")
_PREFIX_BYTES = 12  # offset and size
_LONG = Struct(">q")
_LENGTH = Struct(">i")

LOG_APPEND_TIME = 0x08
CODEC_MASK = 0x07
NO_TIMESTAMP = -1


class LegacyEntry(NamedTuple):
    """One entry: a record, or a wrapper with compressed entries as its value."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_entries(data: Buffer) -> Iterator[LegacyEntry]:
    """Yield the records in ``data``, wrappers opened, with their real offsets and times. CorruptRecordsError."""
    for entry in _parse(data):
        if not entry.attributes & CODEC_MASK:
            yield entry
            continue
        if entry.value is None:
            raise CorruptRecordsError(f"compressed entry at offset {entry.offset} is empty")
        inner = list(_parse(decompress(entry.attributes & CODEC_MASK, entry.value, magic=entry.magic)))
        if not inner:
            raise CorruptRecordsError(f"compressed entry at offset {entry.offset} holds no records")
        # v1: offsets inside count from some base, and the wrapper has that of the last; v0: they are absolute
        base = entry.offset - inner[-1].offset if entry.magic == 1 else 0
        for record in inner:
            if record.attributes & CODEC_MASK:
                raise CorruptRecordsError(f"compressed entry at offset {entry.offset} holds a compressed entry")
            timestamp = entry.timestamp if entry.attributes & LOG_APPEND_TIME else record.timestamp
            yield record._replace(offset=base + record.offset, timestamp=timestamp)


def _parse(data: Buffer) -> Iterator[LegacyEntry]:
    position = 0
    while position < len(data):
        try:
            offset, size_bytes, _, magic, attributes = _ENTRY.unpack_from(data, position)
            end = position + _PREFIX_BYTES + size_bytes
            at = position + _ENTRY.size
            if magic not in (0, 1) or size_bytes < 0 or end > len(data):
                raise CorruptRecordsError(f"entry at byte {position}: magic {magic}, {size_bytes} bytes")
            timestamp = NO_TIMESTAMP
            if magic == 1:
                (timestamp,) = _LONG.unpack_from(data, at)
                at += _LONG.size
            key, at = _nullable_bytes(data, at, end)
            value, at = _nullable_bytes(data, at, end)
        except error as short:
            raise CorruptRecordsError(f"entry at byte {position} is cut off") from short
        if at != end:
            raise CorruptRecordsError(f"entry at byte {position} ends at {at} instead of {end}")
        yield LegacyEntry(offset, magic, attributes, timestamp, key, value)
        position = end


def _nullable_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise CorruptRecordsError(f"key or value of {length} bytes at byte {position}")
    return bytes(data[position : position + length]), position + length
