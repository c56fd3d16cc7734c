"""Record batches built byte by byte, so that storage is tested against the format and not against our own encoder."""

import struct
import zlib
from struct import Struct

import crc32c

_HEADER = Struct(">qiibIhiqqqhii")
_CRC_FROM = 21


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _record(delta: int, time_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + _varint(time_delta) + _varint(delta)
    for field in (key, value):
        body += _varint(-1) if field is None else _varint(len(field)) + field
    body += _varint(0)
    return _varint(len(body)) + body


def batch(
    count: int = 1,
    *,
    base_offset: int = 0,
    epoch: int = -1,
    timestamp: int = 1000,
    step_ms: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytearray:
    """Make ``count`` records, ``step_ms`` apart from ``timestamp`` on; ``producer`` is (id, epoch, sequence)."""
    records = b"".join(_record(i, i * step_ms, key, value) for i in range(count))
    producer_id, producer_epoch, sequence = producer
    newest = timestamp + (count - 1) * step_ms
    size = _HEADER.size - 12 + len(records)
    fields = (attributes, count - 1, timestamp, newest, producer_id, producer_epoch, sequence, count)
    data = bytearray(_HEADER.pack(base_offset, size, epoch, 2, 0, *fields) + records)
    crc = crc32c.crc32c(memoryview(data)[_CRC_FROM:])
    data[: _HEADER.size] = _HEADER.pack(base_offset, size, epoch, 2, crc, *fields)
    return data


def marker(*, commit: bool, producer: tuple[int, int], base_offset: int, timestamp: int = 1000) -> bytearray:
    """Make the control batch that ends a transaction."""
    kind = b"\0\0\0\1" if commit else b"\0\0\0\0"
    return batch(
        base_offset=base_offset,
        timestamp=timestamp,
        key=kind,
        value=b"\0\0\0\0\0\7",
        producer=(*producer, -1),
        attributes=0x30,
    )


def entry(
    offset: int = 0,
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    key: bytes | None = b"k",
    attributes: int = 0,
    timestamp: int = 1000,
) -> bytes:
    """Make one entry of format 0 or 1, of before record batches; a wrapper is one whose value is compressed entries."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body
