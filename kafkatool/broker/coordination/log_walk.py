"""Reading all of a coordinator's partition, batch by batch, when it comes (GRP-9, 14; TXN-9, 11)."""

from collections.abc import Callable, Iterable

from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import CorruptRecordsError, KafkatoolError, StorageError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import BatchHeader, Record, check_crc, iter_batches, iter_records


def walk(
    source: Log, buffer_size: int, wanted: Callable[[], bool], apply: Callable[[BatchHeader, Iterable[Record]], None]
) -> int | None:
    """Apply each batch from log start to log end, read in pieces. Return the end; None: no longer ``wanted``.

    The log end, not the high watermark: the elected leader's log is the truth. It also ends when a read brings
    nothing, since compaction can leave a gap at the end. Raises StorageError, CorruptRecordsError for a batch that is
    not as it was written: another replica may have it whole, so that what is there must not be served (GRP-14).
    """
    offset = source.log_start_offset
    while offset < (end := source.log_end_offset):
        if not wanted():  # leadership went
            return None
        try:
            read = source.read(offset, buffer_size, end, min_one_batch=True)
            records = read.records.read() if isinstance(read.records, FileRegion) else read.records
        except (KafkatoolError, OSError) as e:
            raise StorageError(f"what follows offset {offset} cannot be read: {e}") from e
        view = memoryview(records)
        after = offset
        for position, header in iter_batches(view):
            if position + header.size_bytes > len(view):
                break  # cut by the piece's end: comes whole with the next
            batch = view[position : position + header.size_bytes]
            if not check_crc(batch):
                raise CorruptRecordsError(f"the checksum of the batch at offset {header.base_offset} does not hold")
            try:
                apply(header, iter_records(batch))
            except CorruptRecordsError as e:
                raise CorruptRecordsError(f"the batch at offset {header.base_offset} cannot be read: {e}") from e
            after = header.next_offset
        if after == offset:
            break
        offset = after
    return offset
