"""The batches a follower got from its leader, taken apart and checked before any of it is written."""

from typing import NamedTuple

from kafkatool.core.errors import CorruptRecordsError, OffsetOrderError
from kafkatool.core.protocol.records.batches import BatchHeader, check_crc, read_header


class ReceivedBatch(NamedTuple):
    """One batch about to be appended."""

    position: int
    """Its first byte in the buffer."""
    header: BatchHeader
    base_offset: int
    """That it has in this log; the header of a produced batch still says 0."""
    max_timestamp: int


def received_batches(
    records: memoryview, expected_offset: int, *, accept_overlap: bool
) -> tuple[list[ReceivedBatch], CorruptRecordsError | OffsetOrderError | None]:
    """Return the good batches from the front of ``records``, and what was wrong with the next one, if anything.

    Offsets must begin at ``expected_offset`` or above and rise; with ``accept_overlap`` the first batch may begin
    below it. An incomplete batch at the end is no error: the leader cuts there (BRK-96).
    """
    batches: list[ReceivedBatch] = []
    position, size = 0, len(records)
    while position < size:
        try:
            header = read_header(records, position)
        except CorruptRecordsError as e:
            return batches, e
        if header is None or (end := position + header.size_bytes) > size:
            break
        if not check_crc(records, position):
            why = f"byte {position}: the checksum of the batch at offset {header.base_offset} is wrong"
            return batches, CorruptRecordsError(f"fetched records, {why}")
        overlaps = accept_overlap and not batches and header.last_offset >= expected_offset
        if header.base_offset < expected_offset and not overlaps:
            why = f"byte {position}: offset {header.base_offset} follows {expected_offset - 1}"
            return batches, OffsetOrderError(f"fetched records, {why}")
        batches.append(ReceivedBatch(position, header, header.base_offset, header.max_timestamp))
        expected_offset = header.next_offset
        position = end
    return batches, None
