"""Stored batches as entries of an older format, for clients that know no newer one (ADM-93).

Source: Kafka 2.8.2 common/record/RecordsUtil.java, MemoryRecordsBuilder.java.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from struct import Struct

from kafkatool.core.errors import KafkatoolError, RecordsTooLargeError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import BatchHeader, Record, iter_records
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    LegacyEntry,
    encode_entry,
    encode_wrapper,
)

_OFFSET = Struct(">q")  # an entry begins with it; that of a wrapper is the last of what it holds

Paced = Callable[[Iterator[Record]], Iterator[Record]]
"""Given the records of a batch, yields them with pauses, in which other threads come through."""


class NotConvertibleError(KafkatoolError):
    """A batch that no older format can hold."""


def down_converted(batch: Buffer, header: BatchHeader, magic: int, from_offset: int, paced: Paced) -> Iterator[bytes]:
    """Yield entries of format ``magic`` with the records of the one batch, whole and in order.

    A compressed batch becomes one wrapper, unless all that compaction left of it is below ``from_offset``: a client that
    takes nothing of a wrapper asks for the same offset again. Of another batch records below are left out. Markers of
    transactions have no counterpart, nor have headers. A batch that needs no conversion comes as it is.
    Raises NotConvertibleError for zstd and for what decompresses to more than is allowed; CorruptRecordsError.
    """
    if header.magic <= magic:
        yield bytes(batch)
        return
    if header.is_control:
        return
    if header.codec == Codec.ZSTD:
        raise NotConvertibleError("zstd is newer than this format")
    stamp = LOG_APPEND_TIME if magic and header.has_log_append_time else 0
    try:
        entries = (_entry(record, magic, stamp) for record in paced(iter_records(batch)))
        if not header.codec:
            yield from (encode_entry(entry) for entry in entries if entry.offset >= from_offset)
        elif (first := next(entries, None)) is not None:
            wrapper = encode_wrapper(chain([first], entries), header.codec)
            if _OFFSET.unpack_from(wrapper)[0] >= from_offset:
                yield wrapper
    except RecordsTooLargeError as e:
        raise NotConvertibleError(str(e)) from e


def _entry(record: Record, magic: int, attributes: int) -> LegacyEntry:
    return LegacyEntry(
        record.offset, magic, attributes, record.timestamp if magic else NO_TIMESTAMP, record.key, record.value
    )
