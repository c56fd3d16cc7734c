"""Records on their way into a log of format 0 or 1, laid out as its entries whatever they came as (ADM-89, 91, 92).

All of a request for one partition become one wrapper where there is a codec, else an entry each. What needs the records
is done before the log's lock is taken; under it only the offsets are written, which lie outside the checksums. Of
format 0 alone a wrapper is packed there, as the offsets inside it are absolute. Source: Kafka 2.8.2 log/LogValidator.scala.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.batches.append_checks import check_batch, check_records, check_size
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.received_batches import ReceivedBatch
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    iter_batches,
    iter_records,
    read_header,
)
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    LegacyEntry,
    encode_entry,
    encode_wrapper,
    parse_entries,
)
from kafkatool.core.protocol.records.message_sets import MessageSetHeader, produced_records

_AT_ONCE: Final = 4096  # entries appended in one go: the header of each takes some hundred bytes while it is
_OFFSET: Final = Struct(">q")


@dataclass(frozen=True, slots=True)
class OlderEntries:
    """Entries that lack their offsets. Made by ``from_set`` and ``from_batch``, placed once."""

    _data: bytearray | memoryview
    _config: LogConfig
    count: int
    """The number of records."""
    append_time_ms: int | None
    """The broker's time when the topic keeps that, else None."""
    _is_wrapper: bool
    _codec_to_come: int = Codec.NONE

    def placed(self, base_offset: int) -> Iterator[tuple[memoryview, list[ReceivedBatch]]]:
        """Give the records offsets from there on; yield the entries, so many at a time. Raises AppendError before that."""
        data, first, is_wrapper = self._data, base_offset, self._is_wrapper
        if self._codec_to_come:
            entries = (e._replace(offset=base_offset + i) for i, e in enumerate(parse_entries(data)))
            data, is_wrapper = bytearray(encode_wrapper(entries, self._codec_to_come)), True
            check_size(len(data), self._config)
        if is_wrapper:
            first += self.count - 1
        start = position = 0
        batches: list[ReceivedBatch] = []
        view = memoryview(data)
        for offset in range(first, base_offset + self.count):
            _OFFSET.pack_into(data, position, offset)
            header = read_header(data, position)
            assert header is not None  # they are whole
            batches.append(ReceivedBatch(position - start, header, offset, header.max_timestamp))
            position += header.size_bytes
            if len(batches) == _AT_ONCE or position == len(data):
                yield view[start:position], batches
                start, batches = position, []


def from_set(records: bytearray | memoryview, header: MessageSetHeader, config: LogConfig, now_ms: int) -> OlderEntries:
    """Lay a produced message set out. Raises AppendError, CorruptRecordsError, RecordsTooLargeError.

    One that is in the log's format and codec already, and tells the producer's time, stays as it is but for its offsets;
    in a wrapper they have to count from 0, and its time to be that of the newest record, else it is made anew.
    """
    if config.needs_records:
        check_records(produced_records(records, header, config.max_records_per_batch), config, now_ms)
    codec = header.codec if config.codec is None else config.codec
    if header.magic == config.record_format and header.codec == codec and _append_time(config, now_ms) is None:
        as_it_is = _plain_as_it_is(records, header, config) if not codec else _wrapper_as_it_is(records, header, config)
        if as_it_is is not None:
            return as_it_is
    return _laid_out(produced_records(records, header, config.max_records_per_batch), codec, config, now_ms)


def from_batch(records: bytearray | memoryview, config: LogConfig, now_ms: int, *, origin_client: bool) -> OlderEntries:
    """Lay a record batch out; its headers are lost. Raises AppendError, CorruptRecordsError.

    UNSUPPORTED_FOR_MESSAGE_FORMAT for one of an idempotent or transactional producer: nothing would know it again.
    """
    header = check_batch(memoryview(records), config, now_ms, origin_client=origin_client)
    if header.producer_id >= 0 or header.attributes & (TRANSACTIONAL | CONTROL):
        why = f"a log of format {config.record_format} cannot hold records of idempotent or transactional producers"
        raise AppendError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)
    return _laid_out(iter_records(records), header.codec if config.codec is None else config.codec, config, now_ms)


def _plain_as_it_is(records: bytearray | memoryview, header: MessageSetHeader, config: LogConfig) -> OlderEntries:
    count = sum(1 for _ in yielding_gil(produced_records(records, header, config.max_records_per_batch)))
    if len(records) > min(config.max_message_bytes, config.segment_bytes):
        for _, entry in iter_batches(records):
            check_size(entry.size_bytes, config)
    return OlderEntries(records, config, count, None, False)


def _wrapper_as_it_is(
    records: bytearray | memoryview, header: MessageSetHeader, config: LogConfig
) -> OlderEntries | None:
    """None: it has to be made anew; of format 0 always, as the offsets inside are the log's."""
    wrapper = read_header(records)
    if header.magic == 0 or wrapper is None:
        return None
    count, newest = 0, NO_TIMESTAMP
    for count, record in enumerate(yielding_gil(produced_records(records, header, config.max_records_per_batch)), 1):
        if record.offset != count - 1:
            return None
        newest = max(newest, record.timestamp)
    if newest != wrapper.max_timestamp:
        return None
    check_size(len(records), config)
    return OlderEntries(records, config, count, None, True)


def _laid_out(records: Iterable[Record], codec: int, config: LogConfig, now_ms: int) -> OlderEntries:
    if codec == Codec.ZSTD:
        raise AppendError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd is newer than format {config.record_format}")
    magic, append_time_ms = config.record_format, _append_time(config, now_ms)
    stamp = LOG_APPEND_TIME if magic and append_time_ms is not None else 0
    count = 0

    def entries() -> Iterator[LegacyEntry]:
        nonlocal count
        for record in yielding_gil(records):
            time_ms = record.timestamp if append_time_ms is None else append_time_ms
            yield LegacyEntry(count, magic, stamp, time_ms if magic else NO_TIMESTAMP, record.key, record.value)
            count += 1

    if codec and magic:
        data = bytearray(encode_wrapper(entries(), codec))
        check_size(len(data), config)
        return OlderEntries(data, config, count, append_time_ms, True)
    data = bytearray()
    for entry in entries():
        encoded = encode_entry(entry)
        if not codec:
            check_size(len(encoded), config)
        data += encoded
    return OlderEntries(data, config, count, append_time_ms, False, codec)


def _append_time(config: LogConfig, now_ms: int) -> int | None:
    return now_ms if config.message_timestamp_type == "LogAppendTime" else None
