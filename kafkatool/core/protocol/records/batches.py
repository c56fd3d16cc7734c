"""Record batches (BRK-151 to 154): headers without touching the records, and the records where they are needed.

The data path never decodes records: it patches ``base_offset`` and ``partition_leader_epoch``, which lie outside the
checksum, and passes the rest on as it came.
"""

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct, error
from typing import NamedTuple

import crc32c

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.compression import compress, unpacked
from kafkatool.core.protocol.records.legacy import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP, read_entries
from kafkatool.core.protocol.records.varints import append_varint, read_varint

TRANSACTIONAL = 0x10
CONTROL = 0x20

_HEADER = Struct(">qiibIhiqqqhii")
_LEGACY = Struct(">qiIbb")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET_AND_LENGTH = Struct(">qi")
_CRC = Struct(">I")

HEADER_BYTES = _HEADER.size
PREFIX_BYTES = _OFFSET_AND_LENGTH.size  # of every format; not counted in the length field
_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_COVERS_FROM = 21
_LEGACY_CRC_COVERS_FROM = 16
_LEGACY_MIN_LENGTH = {0: 14, 1: 22}  # after the length field: key and value null


class Record(NamedTuple):
    """One record. ``timestamp`` in ms since 1970, -1 none; headers may repeat a key."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchHeader(NamedTuple):
    """Header of a v2 batch, fields in the order of the bytes. An entry of v0 or v1 is shown in the same shape.

    Such an entry has -1 where the format lacks the field; if it is compressed, its one offset is that of its last
    record, and ``base_offset`` is that too.
    """

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
    def last_offset(self) -> int:
        """Return the offset of the last record, or what it was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset at which the next batch begins at the earliest."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch, its first 12 bytes included."""
        return self.batch_length + PREFIX_BYTES

    @property
    def codec(self) -> int:
        """Return a ``Codec``, or a number that is none."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Tell whether the batch holds a transaction marker instead of data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Tell whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Tell whether ``max_timestamp`` is the time of all its records."""
        return bool(self.attributes & LOG_APPEND_TIME)


def read_header(data: Buffer, position: int = 0) -> BatchHeader | None:
    """Read the header at ``position``; None if the bytes end before it does. CorruptRecordsError if it cannot be one."""
    if position + _MAGIC_AT >= len(data):
        return None
    magic = data[position + _MAGIC_AT]
    try:
        if magic == 2:
            header = BatchHeader._make(_HEADER.unpack_from(data, position))
            shortest = HEADER_BYTES - PREFIX_BYTES
        else:
            header = _read_legacy_header(data, position, magic)
            shortest = _LEGACY_MIN_LENGTH[magic]
    except error:
        return None
    if header.batch_length < shortest:
        raise CorruptRecordsError(f"batch at byte {position} has an impossible length of {header.batch_length}")
    return header


def _read_legacy_header(data: Buffer, position: int, magic: int) -> BatchHeader:
    if magic not in _LEGACY_MIN_LENGTH:
        raise CorruptRecordsError(f"batch at byte {position} has unknown format {magic}")
    offset, length, crc, magic, attributes = _LEGACY.unpack_from(data, position)
    timestamp: int = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _LONG.unpack_from(data, position + _LEGACY.size)
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def iter_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each complete batch; a cut one at the end is left out (BRK-96).

    Raises CorruptRecordsError where the bytes cannot be a header.
    """
    position = 0
    while (header := read_header(data, position)) is not None:
        end = position + header.size_bytes
        if end > len(data):
            return
        yield position, header
        position = end


def check_crc(data: Buffer, position: int = 0) -> bool:
    """Tell whether the checksum of the batch at ``position`` holds; False as well if the batch is cut off.

    Raises CorruptRecordsError if there is no header.
    """
    header = read_header(data, position)
    if header is None or position + header.size_bytes > len(data):
        return False
    with memoryview(data)[position : position + header.size_bytes] as batch:
        if header.magic == 2:
            return bool(crc32c.crc32c(batch[_CRC_COVERS_FROM:]) == header.crc)
        return zlib.crc32(batch[_LEGACY_CRC_COVERS_FROM:]) == header.crc


def set_base_offset_and_epoch(data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Put a v2 batch where the leader appends it. Both fields lie outside the checksum."""
    _LONG.pack_into(data, position, base_offset)
    _INT.pack_into(data, position + _EPOCH_AT, leader_epoch)


def decode_records(batch: Buffer) -> list[Record]:
    """Return the records of the one batch ``batch`` begins with, decompressed; of any format.

    Raises CorruptRecordsError. The checksum is not looked at: ``check_crc``.
    """
    return list(iter_records(batch))


def iter_records(batch: Buffer) -> Iterator[Record]:
    """Do as ``decode_records``, one by one: a small batch may hold so many that their list takes hundreds of megabytes."""
    header = read_header(batch)
    if header is None or header.size_bytes > len(batch):
        raise CorruptRecordsError(f"batch of {len(batch)} bytes is cut off")
    if header.magic < 2:
        entries = read_entries(memoryview(batch)[: header.size_bytes])
        yield from (Record(e.offset, e.timestamp, e.key, e.value) for e in entries)
        return
    with unpacked(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes]) as records:
        try:
            yield from _records(header, records)
        except IndexError as short:
            raise CorruptRecordsError(f"records of the batch at offset {header.base_offset} are cut off") from short


def _records(header: BatchHeader, data: bytes) -> Iterator[Record]:
    position = 0
    fixed_time = header.max_timestamp if header.has_log_append_time else None
    for _ in range(header.record_count):
        length, start = read_varint(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise CorruptRecordsError(f"record of {length} bytes in the batch at offset {header.base_offset}")
        time_delta, at = read_varint(data, start + 1)  # one byte of attributes, unused
        offset_delta, at = read_varint(data, at)
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
        header_count, at = read_varint(data, at)
        headers: list[tuple[str, bytes | None]] = []
        if not 0 <= header_count <= length:
            raise CorruptRecordsError(f"{header_count} headers in a record of {length} bytes")
        for _ in range(header_count):
            name, at = _read_bytes(data, at)
            if name is None:
                raise CorruptRecordsError("a record header without a key")
            header_value, at = _read_bytes(data, at)
            headers.append((name.decode("utf-8", "replace"), header_value))
        if at != position:
            raise CorruptRecordsError(f"record of {length} bytes ends after {at - start}")
        timestamp = header.base_timestamp + time_delta if fixed_time is None else fixed_time
        yield Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))
    if position != len(data):
        raise CorruptRecordsError(f"{len(data) - position} bytes after the last record")


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise CorruptRecordsError(f"key, value or header of {length} bytes runs past the end")
    return data[position:end], end


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Build a v2 batch, checksum included.

    ``base_offset``, ``last_offset`` and the two times are those of the records unless given: compaction keeps the
    offsets, and sometimes no record is left. ``attributes``: LOG_APPEND_TIME, TRANSACTIONAL, CONTROL; the codec is
    added. ValueError without records and without ``base_offset`` and ``last_offset``.
    """
    if not records and (base_offset is None or last_offset is None):
        raise ValueError("an empty batch needs its first and last offset")
    first = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    times = [r.timestamp for r in records] or [NO_TIMESTAMP]
    first_time = times[0] if base_timestamp is None else base_timestamp
    body = bytearray()
    for record in records:
        append_record(body, record, first, first_time)
    return sealed_batch(
        body,
        codec=codec,
        base_offset=first,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last - first,
        base_timestamp=first_time,
        max_timestamp=max(times) if max_timestamp is None else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def sealed_batch(
    body: Buffer,
    *,
    codec: int,
    base_timestamp: int,
    max_timestamp: int,
    last_offset_delta: int,
    record_count: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return a v2 batch of the encoded records in ``body``, packed with that codec."""
    payload: Buffer = compress(codec, body) if codec else body
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - PREFIX_BYTES + len(payload),
        partition_leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    batch = bytearray(_HEADER.pack(*header))
    batch += payload
    with memoryview(batch) as view:
        _CRC.pack_into(view, _CRC_AT, crc32c.crc32c(view[_CRC_COVERS_FROM:]))
    return batch


def append_record(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    """Append the record as a v2 batch with that base holds it."""
    body = bytearray(1)  # attributes
    append_varint(body, record.timestamp - base_timestamp)
    append_varint(body, record.offset - base_offset)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode())
        _append_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    append_varint(out, -1 if data is None else len(data))
    if data is not None:
        out += data
