"""Message sets as producers from before record batches send them (ADM-90, ADM-91).

One set is all of a request for one partition: entries of one format, or a single compressed one around them. In a log of
record batches it becomes one of them. Source: Kafka 2.8.2 log/LogValidator.scala.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import Record, append_record, read_header, sealed_batch
from kafkatool.core.protocol.records.compression import Codec, unpacked
from kafkatool.core.protocol.records.down_conversion import Paced
from kafkatool.core.protocol.records.legacy import CODEC_MASK, LOG_APPEND_TIME, LegacyEntry, parse_entries

MOST_RECORDS = 1_000_000
"""In one set: a few kilobytes can stand for more."""


class MessageSetHeader(NamedTuple):
    """What the first entry tells of all."""

    magic: int
    codec: int
    log_append_time: bool


def read_set_header(data: Buffer) -> MessageSetHeader:
    """Read what kind of set it is. CorruptRecordsError if it is none."""
    header = read_header(data)
    if header is None or header.magic > 1:
        raise CorruptRecordsError("expected whole entries of format 0 or 1")
    if header.codec > Codec.ZSTD:
        raise CorruptRecordsError(f"there is no compression codec {header.codec}")
    return MessageSetHeader(header.magic, header.codec, header.magic == 1 and header.has_log_append_time)


def set_records(data: Buffer, header: MessageSetHeader, *, most_records: int = MOST_RECORDS) -> Iterator[LegacyEntry]:
    """Yield the records of the set as they came, with their offsets in it; a wrapper is opened, its checksum tested too.

    Raises CorruptRecordsError where something is not as a producer may send it, RecordsTooLargeError for too many.
    """
    with ExitStack() as stack:
        inner: Buffer = data
        if header.codec:
            entries = parse_entries(data, checked=True)
            wrapper = next(entries)
            if next(entries, None) is not None:
                raise CorruptRecordsError("a compressed entry has to be the only one")
            if wrapper.value is None:
                raise CorruptRecordsError("the compressed entry is empty")
            inner = stack.enter_context(unpacked(header.codec, wrapper.value, magic=header.magic))
        count = 0
        for count, record in enumerate(parse_entries(inner, checked=True), 1):
            if record.magic != header.magic or record.attributes & CODEC_MASK:
                raise CorruptRecordsError(f"entry {count - 1}: format or compression differs from that of the set")
            if count > most_records:
                raise RecordsTooLargeError(f"more than {most_records} records in a message set")
            yield record
        if not count:
            raise CorruptRecordsError("the compressed entry holds no records")


def up_converted(
    data: Buffer, header: MessageSetHeader, codec: int, paced: Paced, *, most_records: int = MOST_RECORDS
) -> bytearray:
    """Return one v2 batch with the records of the set, packed with ``codec``; format 0 has no times. Raises as above."""
    body = bytearray()
    first_time = newest = -1
    index = -1
    for index, record in enumerate(paced(produced_records(data, header, most_records))):
        if index == 0:
            first_time = newest = record.timestamp
        newest = max(newest, record.timestamp)
        append_record(body, record._replace(offset=index), 0, first_time)
    return sealed_batch(
        body,
        codec=codec,
        base_timestamp=first_time,
        max_timestamp=newest,
        last_offset_delta=index,
        record_count=index + 1,
    )


def produced_records(data: Buffer, header: MessageSetHeader, most_records: int) -> Iterator[Record]:
    """Do as ``set_records``, where a producer may not have sent the broker's time either."""
    for entry in set_records(data, header, most_records=most_records):
        if entry.magic and entry.attributes & LOG_APPEND_TIME:
            raise CorruptRecordsError("a producer may not send LogAppendTime")
        yield Record(entry.offset, entry.timestamp, entry.key, entry.value)
