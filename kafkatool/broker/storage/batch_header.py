"""The header of a stored batch, read without touching its records (broker.md section 16; v0/v1: BRK-154)."""

import zlib
from struct import Struct
from typing import NamedTuple

import crc32c

_V2 = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qi")  # base offset, length of what follows
_LEGACY = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")

V2_HEADER_BYTES = _V2.size  # 61
PREFIX_BYTES = _PREFIX.size  # 12, not counted in the length field
_CRC_FROM = 21
_LEGACY_CRC_FROM = 16


class BatchHeader(NamedTuple):
    """Field order and names of the format; v0/v1 entries are shown in the same shape."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """Of its last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where the next batch may begin."""
        return self.base_offset + self.last_offset_delta + 1


def parse_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader | None:
    """The header at ``position``; None where the bytes cannot be one, or end before it does.

    The offset of a compressed v0/v1 entry is that of its last record, so its base is not known: it is shown as one.
    """
    if position + V2_HEADER_BYTES <= len(buffer) and buffer[position + 16] == 2:
        header = BatchHeader._make(_V2.unpack_from(buffer, position))
        return header if header.batch_length >= V2_HEADER_BYTES - PREFIX_BYTES else None
    if position + _LEGACY.size > len(buffer):
        return None
    offset, size, crc, magic, attributes = _LEGACY.unpack_from(buffer, position)
    if magic not in (0, 1) or size < 14 + 8 * magic:
        return None
    timestamp = -1
    if magic == 1:
        if position + _LEGACY.size + 8 > len(buffer):
            return None
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, position + _LEGACY.size)
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def checksum_holds(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the stored checksum is that of ``batch``, all of it."""
    if header.magic == 2:
        return bool(crc32c.crc32c(batch[_CRC_FROM:]) == header.crc)
    return zlib.crc32(batch[_LEGACY_CRC_FROM:]) == header.crc
