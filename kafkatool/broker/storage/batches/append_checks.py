"""The checks of a produced batch before it is appended (BRK-84, BRK-85, BRK-130), and the fields a leader writes into it.

Header, checksum and that the bytes are as many records as the header says are always checked; what is in the records only
for a topic that is compacted, or limits timestamps (BRK-85). Source: Kafka 1.1.1 log/LogValidator.scala, which reads all.
"""

from collections.abc import Iterator
from struct import Struct

import crc32c

from kafkatool.broker.storage.batches.append_error import AppendError, RecordError, TooMuchInsideError
from kafkatool.broker.storage.batches.batch_rewrite import plain_records, with_records
from kafkatool.broker.storage.batches.record_walk import check_walk
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    iter_records,
    read_header,
)
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME

_PACKED_RECORDS_PER_BYTE = (
    16  # each has an offset of its own: the smallest possible come to 1.3 with zstd, 0.7 with gzip
)
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
    check_size(size, config)
    if crc32c.crc32c(batch[_CRC_FROM:]) != header.crc:
        raise _corrupt("the checksum is wrong")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _corrupt(f"{header.record_count} records, last offset delta {header.last_offset_delta}")
    if origin_client:
        if header.record_count > config.max_records_per_batch:
            raise TooMuchInsideError(
                f"{header.record_count} records in a batch, the most are {config.max_records_per_batch}"
            )
        if header.codec and header.record_count > size * _PACKED_RECORDS_PER_BYTE:
            raise _corrupt(f"{size} bytes, compressed, cannot be {header.record_count} records")
        if header.attributes & CONTROL:
            raise AppendError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if header.attributes & TRANSACTIONAL and header.producer_id < 0:
            raise AppendError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
        if header.attributes & LOG_APPEND_TIME:
            raise AppendError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
    if header.attributes & CONTROL:
        return header
    try:
        if config.needs_records:
            check_records(iter_records(batch), config, now_ms)
        elif origin_client:
            with plain_records(batch, header) as records:
                check_walk(records, header.record_count)
    except CorruptRecordsError as e:
        raise _unreadable(e) from e
    return header


def recompressed(batch: memoryview, header: BatchHeader, config: LogConfig) -> tuple[memoryview, BatchHeader]:
    """Return the batch in the codec that ``compression.type`` names: a new one, or ``batch`` if it is in that codec already.

    Records are unpacked and packed, not decoded. Raises AppendError.
    """
    codec = config.codec
    if codec is None or codec == header.codec or header.attributes & CONTROL:
        return batch, header
    try:
        with plain_records(batch, header) as records:
            packed = memoryview(with_records(batch, records, codec=codec, count=header.record_count))
    except CorruptRecordsError as e:
        raise _unreadable(e) from e
    check_size(len(packed), config)
    changed = read_header(packed)
    assert changed is not None  # it is whole
    return packed, changed


def check_size(size: int, config: LogConfig) -> None:
    """Check that a batch, or an entry, of so many bytes may be stored. Raises AppendError."""
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
    _write_largest_time(batch, now_ms)


def _write_largest_time(batch: memoryview, time_ms: int) -> int:
    """Write it into the batch, and the checksum, of all that is in it by now; return that."""
    _TIMESTAMP.pack_into(batch, _AT_MAX_TIMESTAMP, time_ms)
    crc: int = crc32c.crc32c(batch[_CRC_FROM:])
    _CRC.pack_into(batch, _AT_CRC, crc)
    return crc


def with_true_time(batch: memoryview, header: BatchHeader, config: LogConfig) -> BatchHeader:
    """Return the header with the largest time of its records, written into the batch if the client told less.

    Retention, the look-up by time and the memory of producers go by it. Sarama before 1.45.1 leaves it at -1. A batch has
    the time of its first record, so what is below that cannot be true. Kafka always reckons it anew. A topic that keeps the
    broker's time writes that instead. Raises AppendError.
    """
    if header.max_timestamp >= header.base_timestamp or config.message_timestamp_type == "LogAppendTime":
        return header
    try:
        largest = max(record.timestamp for record in iter_records(batch))
    except CorruptRecordsError as e:
        raise _unreadable(e) from e
    if not -(1 << 63) <= largest < 1 << 63:
        raise AppendError(ErrorCode.INVALID_TIMESTAMP, f"a record's time, {largest}, is beyond what there is")
    return header._replace(max_timestamp=largest, crc=_write_largest_time(batch, largest))


def check_records(records: Iterator[Record], config: LogConfig, now_ms: int) -> None:
    """Check keys and times as the topic wants them (BRK-85). Raises AppendError with the records to blame."""
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


def _unreadable(error: CorruptRecordsError) -> AppendError:
    """Return the refusal; of what is too large a client makes smaller batches, what is corrupt it sends again."""
    if isinstance(error, RecordsTooLargeError):
        return TooMuchInsideError(str(error))
    return _corrupt(str(error))


def _corrupt(why: str) -> AppendError:
    return AppendError(ErrorCode.CORRUPT_MESSAGE, why)
