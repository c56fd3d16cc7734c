"""Leaving records out of the entries that Kafka wrote before 0.11 (formats v0 and v1; BRK-154, BRK-167).

An entry that is not compressed stays or goes. Of a compressed one the records that stay are packed again, in the same
format: clients of that age read the topic. Source: Kafka 1.1.1 common/record/LegacyRecord.java.
"""

import zlib
from collections.abc import Callable, Sequence
from struct import Struct

from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import BatchHeader
from kafkatool.core.protocol.records.compression import compress
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME, LegacyEntry, read_entries

_PREFIX = Struct(">qi")
_CRC = Struct(">I")
_FIXED = Struct(">bb")
_LONG = Struct(">q")
_LENGTH = Struct(">i")


def filter_legacy(
    entry: memoryview, header: BatchHeader, wanted: Callable[[int, bytes | None, bool], bool]
) -> Buffer | None:
    """Do as ``batch_filter.filter_batch``. Raises CorruptRecordsError."""
    records = list(read_entries(entry))
    kept = [r for r in records if wanted(r.offset, r.key, r.value is not None)]
    if len(kept) == len(records):
        return entry
    return _packed(kept, header) if kept else None


def _packed(records: Sequence[LegacyEntry], header: BatchHeader) -> bytes:
    """Make a compressed entry of these records. In v1 offsets inside count from 0, and the entry has the last one."""
    first, last = (0 if header.magic == 0 else records[0].offset), records[-1].offset
    inner = b"".join(
        _entry(r.offset - first, header.magic, header.attributes & LOG_APPEND_TIME, r.timestamp, r.key, r.value)
        for r in records
    )
    fixed_time = header.has_log_append_time
    newest = header.max_timestamp if fixed_time else max(r.timestamp for r in records)
    return _entry(last, header.magic, header.attributes, newest, None, compress(header.codec, inner))


def _entry(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = _FIXED.pack(magic, attributes)
    if magic == 1:
        body += _LONG.pack(timestamp)
    for field in (key, value):
        body += _LENGTH.pack(-1) if field is None else _LENGTH.pack(len(field)) + field
    return _PREFIX.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body
