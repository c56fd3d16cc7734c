"""Leaving records out of a stored batch, whatever its format (BRK-167).

Source: Kafka 2.3.1 common/record/MemoryRecords.java (what of a batch must stay as it was).
"""

from collections.abc import Callable, Iterator

from kafkatool.broker.storage.batches.batch_rewrite import plain_records, with_records
from kafkatool.broker.storage.batches.legacy_filter import filter_legacy
from kafkatool.broker.storage.batches.record_slices import record_slices
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import BatchHeader
from kafkatool.core.protocol.records.legacy import read_entries

Wanted = Callable[[int, bytes | None, bool], bool]
"""Tells whether to keep a record, by its offset, its key and whether it has a value."""


def keys_of(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, key) of each record that has a key. Raises CorruptRecordsError."""
    if header.magic < 2:
        yield from ((e.offset, e.key) for e in read_entries(batch) if e.key is not None)
        return
    base = header.base_offset
    for found in record_slices(plain_records(batch, header), header.record_count):
        if found.key is not None:
            yield base + found.offset_delta, found.key


def filter_batch(batch: memoryview, header: BatchHeader, wanted: Wanted) -> Buffer | None:
    """Return the batch with the records that are wanted: itself when all are, None when none is.

    First and last offset, producer and sequence stay those of ``batch``. Raises CorruptRecordsError.
    """
    if header.magic < 2:
        return filter_legacy(batch, header, wanted)
    records = plain_records(batch, header)
    base = header.base_offset
    kept = bytearray()
    count = newest_delta = 0
    for found in record_slices(records, header.record_count):
        if wanted(base + found.offset_delta, found.key, found.has_value):
            newest_delta = max(newest_delta, found.time_delta) if count else found.time_delta
            count += 1
            kept += records[found.start : found.end]
    if count == header.record_count:
        return batch if count else None
    if not count:
        return None
    newest = header.base_timestamp + newest_delta
    return with_records(
        batch, kept, codec=header.codec, count=count, max_timestamp=None if header.has_log_append_time else newest
    )


def empty_batch(batch: memoryview) -> Buffer:
    """Return the batch without its records: it still tells its producer's last sequence."""
    return with_records(batch, b"", codec=0, count=0)
