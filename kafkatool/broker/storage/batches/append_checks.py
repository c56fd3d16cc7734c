"""The checks of a produced batch before it is appended (BRK-84, BRK-85, BRK-130), and the fields a leader writes into it.

The cost is per batch, not per record: the header, the checksum and the beginning of the records are always checked, all
records only for a topic that is compacted, limits timestamps or has a codec of its own (BRK-85).
Source: Kafka 1.1.1 log/LogValidator.scala.
"""

from collections.abc import Iterator
from struct import Struct

import crc32c

from kafkatool.broker.storage.batches.append_error import AppendError, RecordError
from kafkatool.broker.storage.batches.batch_rewrite import plain_records, with_records
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    iter_records,
    read_header,
)
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME
from kafkatool.core.protocol.records.varints import read_varint

_MOST_RECORDS = 1_000_000  # in a batch; the most that librdkafka can be told to gather
_SMALLEST_RECORD_BYTES = 7
_PACKED_RECORDS_PER_BYTE = (
    16  # each has an offset of its own: the smallest possible come to 1.3 with zstd, 0.7 with gzip
)
_WALKED_RECORDS = 16  # of each batch: 4 us; a walk through all would double the cost of an append
_CRC_FROM = 21
_MOST_BLAMED = 1000  # records that an answer names; the others were "part of a batch" to clients
_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_AT_CRC, _AT_LOW_ATTRIBUTES, _AT_MAX_TIMESTAMP = 17, 22, 35


def check_batch(batch: memoryview, config: LogConfig, now_ms: int, *, origin_client: bool) -> BatchHeader:
    """Check a batch that is to be appended; return its header. Raises AppendError."""
    size = len(batch)
    try:
        header = read_header(batch)
    except CorruptRecordsError as e:
        raise _corrupt(str(e)) from e
    if header is None or header.magic != 2 or header.size_bytes != size or header.base_offset != 0:
        raise _corrupt("expected exactly one whole batch of format 2 with base offset 0")
    _check_size(size, config)
    if crc32c.crc32c(batch[_CRC_FROM:]) != header.crc:
        raise _corrupt("the checksum is wrong")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _corrupt(f"{header.record_count} records, last offset delta {header.last_offset_delta}")
    if origin_client:
        _check_structure(batch, header)
        if header.attributes & CONTROL:
            raise AppendError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if header.attributes & TRANSACTIONAL:  # nobody could end it (TXN-73)
            raise AppendError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
        if header.attributes & LOG_APPEND_TIME:
            raise AppendError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
    if config.needs_records and not header.attributes & CONTROL:
        _check_records(batch, config, now_ms)
    return header


def recompressed(batch: memoryview, header: BatchHeader, config: LogConfig) -> tuple[memoryview, BatchHeader]:
    """Return the batch in the codec that ``compression.type`` names: a new one, or ``batch`` if it is in that codec already.

    Records are unpacked and packed, not decoded. Raises AppendError.
    """
    codec = config.codec
    if codec is None or codec == header.codec or header.attributes & CONTROL:
        return batch, header
    try:
        records = plain_records(batch, header)
    except CorruptRecordsError as e:
        raise _corrupt(str(e)) from e
    packed = memoryview(with_records(batch, records, codec=codec, count=header.record_count))
    _check_size(len(packed), config)
    changed = read_header(packed)
    assert changed is not None  # it is whole
    return packed, changed


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, max.message.bytes={config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise AppendError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes={config.segment_bytes}"
        )


def stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Write the broker's time into the batch, as the topic keeps that, not the producer's; make a new checksum."""
    batch[_AT_LOW_ATTRIBUTES] |= LOG_APPEND_TIME
    _TIMESTAMP.pack_into(batch, _AT_MAX_TIMESTAMP, now_ms)
    _CRC.pack_into(batch, _AT_CRC, crc32c.crc32c(batch[_CRC_FROM:]))


def _check_structure(batch: memoryview, header: BatchHeader) -> None:
    """Check that the bytes can be as many records as the header says, and walk the first of them."""
    count, size_bytes = header.record_count, len(batch) - HEADER_BYTES
    if header.codec > Codec.ZSTD:
        raise _corrupt(f"there is no compression codec {header.codec}")
    if count > _MOST_RECORDS:
        raise AppendError(ErrorCode.MESSAGE_TOO_LARGE, f"{count} records in a batch, the most are {_MOST_RECORDS}")
    if header.codec:
        if count > size_bytes * _PACKED_RECORDS_PER_BYTE:
            raise _corrupt(f"{size_bytes} compressed bytes cannot be {count} records")
        return
    position, end = HEADER_BYTES, len(batch)
    try:
        for _ in range(min(count, _WALKED_RECORDS)):
            byte, after = batch[position], batch[position + 1]
            if byte < 0x80:  # the usual cases by hand: this is the path of every append
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif after < 0x80:
                length, position = ((byte & 0x7F | after << 7) >> 1) ^ -(byte & 1), position + 2
            else:
                length, position = read_varint(batch, position)
            if length < _SMALLEST_RECORD_BYTES - 1:
                raise _corrupt(f"a record of {length} bytes")
            position += length
    except (IndexError, CorruptRecordsError) as e:
        raise _corrupt("records are cut off") from e
    left_bytes, left = end - position, max(0, count - _WALKED_RECORDS)
    if left_bytes < left * _SMALLEST_RECORD_BYTES or (left_bytes and not left):
        raise _corrupt(f"{size_bytes} bytes cannot be {count} records")


def _check_records(batch: memoryview, config: LogConfig, now_ms: int) -> None:
    try:
        _check_each(iter_records(batch), config, now_ms)
    except CorruptRecordsError as e:
        raise _corrupt(str(e)) from e


def _check_each(records: Iterator[Record], config: LogConfig, now_ms: int) -> None:
    limit = config.message_timestamp_difference_max_ms
    check_time = config.message_timestamp_type == "CreateTime"
    code = ErrorCode.INVALID_RECORD
    to_blame: list[RecordError] = []
    for index, record in enumerate(records):
        if config.compacted and record.key is None:
            to_blame.append(RecordError(index, "a compacted topic takes no record without a key"))
        elif check_time and record.timestamp >= 0 and abs(record.timestamp - now_ms) > limit:
            why = f"timestamp {record.timestamp} is more than message.timestamp.difference.max.ms={limit} from now"
            to_blame.append(RecordError(index, why))
            code = ErrorCode.INVALID_TIMESTAMP
        if len(to_blame) == _MOST_BLAMED:
            break
    if to_blame:
        raise AppendError(code, f"the batch is refused for its records: {to_blame[0].message}", tuple(to_blame))


def _corrupt(why: str) -> AppendError:
    return AppendError(ErrorCode.CORRUPT_MESSAGE, why)
