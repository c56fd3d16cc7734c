"""Giving a stored batch (format v2) other records or another codec, without decoding what stays.

Offsets, leader epoch, producer and sequence stay as they are: followers, consumers and the idempotence check go by
them (BRK-130, BRK-167).
"""

from contextlib import AbstractContextManager
from struct import Struct

import crc32c

from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import HEADER_BYTES, PREFIX_BYTES, BatchHeader
from kafkatool.core.protocol.records.compression import Codec, compress, unpacked
from kafkatool.core.protocol.records.legacy import CODEC_MASK

_INT = Struct(">i")
_LONG = Struct(">q")
_CRC = Struct(">I")
_AT_LENGTH, _AT_CRC, _CRC_FROM, _AT_LOW_ATTRIBUTES, _AT_MAX_TIMESTAMP, _AT_COUNT = 8, 17, 21, 22, 35, 57


def plain_records(batch: memoryview, header: BatchHeader) -> AbstractContextManager[bytes]:
    """Give the records' bytes, decompressed, while the block runs. Raises CorruptRecordsError."""
    return unpacked(header.codec, batch[HEADER_BYTES : header.size_bytes])


def with_records(
    batch: memoryview, records: Buffer, *, codec: int, count: int, max_timestamp: int | None = None
) -> bytearray:
    """Return ``batch`` with these ``count`` plain records in place of its own; an empty one is never compressed."""
    if not count:
        codec = Codec.NONE
    payload = compress(codec, records) if codec else records
    out = bytearray(batch[:HEADER_BYTES])
    out += payload
    _INT.pack_into(out, _AT_LENGTH, len(out) - PREFIX_BYTES)
    out[_AT_LOW_ATTRIBUTES] = out[_AT_LOW_ATTRIBUTES] & ~CODEC_MASK | codec
    _INT.pack_into(out, _AT_COUNT, count)
    if max_timestamp is not None:
        _LONG.pack_into(out, _AT_MAX_TIMESTAMP, max_timestamp)
    with memoryview(out) as view:
        _CRC.pack_into(out, _AT_CRC, crc32c.crc32c(view[_CRC_FROM:]))
    return out
