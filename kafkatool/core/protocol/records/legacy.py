"""Entries of formats v0 and v1, from before Kafka 0.11, in bytes and out of them (BRK-154, ADM-93).

Source: Kafka 1.1.1 common/record/LegacyRecord.java, AbstractLegacyRecordBatch.java.
"""

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct, error
from typing import NamedTuple

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.compression import compress, unpacked

_ENTRY = Struct(">qiIbb")
_PREFIX_BYTES = 12  # offset and size
_CRC_FROM = 16
_LONG = Struct(">q")
_LENGTH = Struct(">i")
_PREFIX = Struct(">qi")
_CRC = Struct(">I")
_FIXED = Struct(">bb")
_FIXED_AND_TIME = Struct(">bbq")
_ABSENT = _LENGTH.pack(-1)

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
    for entry in parse_entries(data):
        if not entry.attributes & CODEC_MASK:
            yield entry
            continue
        if entry.value is None:
            raise CorruptRecordsError(f"compressed entry at offset {entry.offset} is empty")
        with unpacked(entry.attributes & CODEC_MASK, entry.value, magic=entry.magic) as inner:
            yield from _opened(entry, inner)


def encode_entry(entry: LegacyEntry) -> bytes:
    """Return the entry's bytes, checksum included."""
    _, magic, attributes, timestamp, key, value = entry
    body = _FIXED_AND_TIME.pack(magic, attributes, timestamp) if magic else _FIXED.pack(magic, attributes)
    body += _ABSENT if key is None else _LENGTH.pack(len(key)) + key
    body += _ABSENT if value is None else _LENGTH.pack(len(value)) + value
    return _PREFIX.pack(entry.offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def encode_wrapper(records: Iterable[LegacyEntry], codec: int) -> bytes:
    """Return one compressed entry with these records, of one format; there must be one at least.

    It has the offset of the last and the time of the newest. In format 1 offsets inside count from the first record's.
    """
    inner = bytearray()
    first = newest = None
    last = None
    for last in records:
        if first is None or newest is None:
            first, newest = (last.offset if last.magic else 0), last.timestamp
        newest = max(newest, last.timestamp)
        inner += encode_entry(last._replace(offset=last.offset - first))
    assert last is not None and newest is not None
    value = compress(codec, inner, magic=last.magic)
    return encode_entry(last._replace(attributes=last.attributes | codec, timestamp=newest, key=None, value=value))


def _opened(wrapper: LegacyEntry, inner: bytes) -> Iterator[LegacyEntry]:
    last = None
    for last in parse_entries(inner):  # twice through, and no list: a small wrapper may hold millions
        if last.attributes & CODEC_MASK:
            raise CorruptRecordsError(f"compressed entry at offset {wrapper.offset} holds a compressed entry")
    if last is None:
        raise CorruptRecordsError(f"compressed entry at offset {wrapper.offset} holds no records")
    # v1: offsets inside count from some base, and the wrapper has that of the last; v0: they are absolute
    base = wrapper.offset - last.offset if wrapper.magic == 1 else 0
    for record in parse_entries(inner):
        timestamp = wrapper.timestamp if wrapper.attributes & LOG_APPEND_TIME else record.timestamp
        yield record._replace(offset=base + record.offset, timestamp=timestamp)


def parse_entries(data: Buffer, *, checked: bool = False) -> Iterator[LegacyEntry]:
    """Yield the entries in ``data``, wrappers as they are. CorruptRecordsError; ``checked``: for a wrong checksum too."""
    position = 0
    while position < len(data):
        try:
            offset, size_bytes, crc, magic, attributes = _ENTRY.unpack_from(data, position)
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
        if checked and zlib.crc32(memoryview(data)[position + _CRC_FROM : end]) != crc:
            raise CorruptRecordsError(f"entry at byte {position}: the checksum is wrong")
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
