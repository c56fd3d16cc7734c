"""Reading a partition: fetch, list offsets, epoch ends (BRK-61 to 63, 92 to 99, 107, 108). No lock is taken.

Errors are values here, not exceptions: one bad partition of a thousand must not cost more than a good one.
"""

import logging
from typing import NamedTuple

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.runtime.few_lines import FewLines
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError, StorageError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import AbortedTransaction, EpochEnd, FetchRequestPartition
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequestPartition

log_lines = logging.getLogger(__name__)

_damage_told = FewLines(1, 60)

CONSUMER = -1
DEBUGGER = -2
READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
NEWEST_TIME = -3  # from version 7 on (KIP-734)
_NOT_CHECKED = -1


class Reader:
    """The reader: a follower's broker id, CONSUMER or DEBUGGER; and whether only what is committed.

    ``anywhere``: a consumer that reads from any replica, not from the leader alone (KIP-392).
    """

    __slots__ = ("anywhere", "committed", "is_follower", "missing", "replica_id")

    def __init__(self, replica_id: int, committed: bool = False, *, anywhere: bool = False) -> None:
        self.replica_id = replica_id
        self.committed = committed
        self.anywhere = anywhere
        self.is_follower = replica_id >= 0
        """Followers read to the log's end, all others below the high watermark (BRK-92)."""
        self.missing = ErrorCode.REPLICA_NOT_AVAILABLE if replica_id == DEBUGGER else ErrorCode.NOT_LEADER_FOR_PARTITION
        """The code for a partition that lives elsewhere."""


class PartitionRead(NamedTuple):
    """One partition's part of a fetch. Offsets are -1 on error (BRK-93)."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileRegion | bytes | bytearray = b""
    size_bytes: int = 0
    start: LogOffset | None = None
    leader_end: int = -1
    """The log's end before it was read (BRK-95)."""
    leader_epoch: int = -1
    """The partition's before it was read."""
    aborted: list[AbortedTransaction] | None = None
    """What a read_committed consumer has to skip (BRK-103); None for all others."""
    diverging: EpochEnd | None = None
    """Where the history that the reader has ends in this log, as it goes on differently (ADM-85)."""
    preferred_replica: int = -1
    """The broker that the consumer should read from instead (KIP-392)."""

    def leaves_some(self, reader: Reader) -> bool:
        """Tell whether there was more to read than was given, or trouble that may be over next time."""
        if self.start is None:
            return True
        if reader.is_follower:
            return self.start.offset < self.leader_end
        return self.start.offset < (self.last_stable_offset if reader.committed else self.high_watermark)


class FoundOffset(NamedTuple):
    """Answer to a question for an offset; -1 for what is not known."""

    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


FAILED_READS = {code: PartitionRead(code) for code in ErrorCode}
"""The results for partitions that cannot be read."""


def readable_log(
    partition: Partition, reader_id: int, current_leader_epoch: int, *, anywhere: bool = False
) -> Log | ErrorCode:
    """Return the log to read from, or a code; the epoch is checked before leadership (BRK-63).

    ``anywhere``: a follower's does, while it has somebody to follow, and nothing to copy anew.
    """
    if current_leader_epoch != _NOT_CHECKED:
        if current_leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > partition.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    is_follower_read = anywhere and partition.leader_id is not None and partition.log.gap_at is None
    by_any = reader_id == DEBUGGER or is_follower_read
    log = partition.log if by_any else partition.leader_log
    return ErrorCode.NOT_LEADER_FOR_PARTITION if log is None else log


def read_partition(
    partition: Partition, wanted: FetchRequestPartition, reader: Reader, max_bytes: int, *, min_one_batch: bool
) -> PartitionRead:
    """Read from ``wanted.fetch_offset`` on (BRK-92 to 96)."""
    epoch = partition.leader_epoch
    log = readable_log(partition, reader.replica_id, wanted.current_leader_epoch, anywhere=reader.anywhere)
    if isinstance(log, ErrorCode):
        return FAILED_READS[log]
    high_watermark = partition.high_watermark.offset  # both before the read (BRK-95)
    end = log.end
    stable = min(log.last_stable_offset, high_watermark)
    upper = end.offset if reader.is_follower else stable if reader.committed else high_watermark
    offset = wanted.fetch_offset
    aborted: list[AbortedTransaction] | None = [] if reader.committed else None
    if offset == end.offset:  # the usual case of a waiting fetch: nothing to look up
        return PartitionRead(
            ErrorCode.NONE, high_watermark, stable, log.log_start_offset, b"", 0, end, end.offset, epoch, aborted
        )
    newest = log.newest_at(offset, end)
    if newest is not None and upper == end.offset and len(newest.records) <= max_bytes and not reader.committed:
        size, start = len(newest.records), log.log_start_offset
        return PartitionRead(
            ErrorCode.NONE, high_watermark, stable, start, newest.records, size, newest.start, end.offset, epoch
        )
    try:
        found = log.read(offset, max_bytes, upper, min_one_batch=min_one_batch)
        if reader.committed:
            aborted = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(found, upper)
            ]
    except OffsetOutOfRangeError:
        return FAILED_READS[ErrorCode.OFFSET_OUT_OF_RANGE]
    except StorageError:
        return FAILED_READS[ErrorCode.KAFKA_STORAGE_ERROR]
    except CorruptRecordsError as e:
        if _damage_told.admit(partition.tp) is not None:
            log_lines.error("%s: nothing can be read from offset %d on: %s", partition.tp, offset, e)
        return FAILED_READS[ErrorCode.CORRUPT_MESSAGE]
    return PartitionRead(
        ErrorCode.NONE,
        high_watermark,
        stable,
        log.log_start_offset,
        found.records,
        found.size_bytes,
        found.start,
        end.offset,
        epoch,
        aborted,
    )


def readable_end(partition: Partition, log: Log, reader: Reader) -> LogOffset:
    """Return the offset up to which ``reader`` may read, with its place in the log (BRK-99). Raises StorageError."""
    if reader.is_follower:
        return log.end
    end = partition.high_watermark
    if reader.committed and (stable := log.last_stable_offset) < end.offset:
        return log.offset_metadata(stable)
    return end if end.segment_base is not None else log.offset_metadata(end.offset)


def find_offset(partition: Partition, wanted: ListOffsetsRequestPartition, reader: Reader, version: int) -> FoundOffset:
    """Find the offset of a time, or of one end (BRK-107, 108). ``version`` decides the code for "not known yet"."""
    log = readable_log(partition, reader.replica_id, wanted.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return FoundOffset(log)
    epochs = log.leader_epochs
    if wanted.timestamp == EARLIEST:
        start = log.log_start_offset
        return FoundOffset(offset=start, leader_epoch=_or_unknown(epochs.epoch_at(start)))
    high_watermark = partition.high_watermark.offset
    if reader.replica_id != CONSUMER:
        upper = log.log_end_offset
    else:
        upper = min(log.last_stable_offset, high_watermark) if reader.committed else high_watermark
    # Until the high watermark reaches this epoch, it may lie below what an earlier leader told (KAFKA-2334).
    unsettled = reader.replica_id == CONSUMER and high_watermark < partition.epoch_start
    not_yet = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    if wanted.timestamp == LATEST:
        if unsettled:
            return FoundOffset(not_yet)
        return FoundOffset(offset=upper, leader_epoch=partition.leader_epoch)
    if log.config.record_format == 0:
        return FoundOffset(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)  # its entries have no times
    try:
        timestamp = log.newest_time_ms() if wanted.timestamp == NEWEST_TIME and version >= 7 else wanted.timestamp
        found = None if timestamp is None else log.find_by_timestamp(timestamp, upper)
    except StorageError:
        return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
    except CorruptRecordsError:
        return FoundOffset(ErrorCode.CORRUPT_MESSAGE)
    if found is None:
        return FoundOffset(not_yet if unsettled else ErrorCode.NONE)
    return FoundOffset(ErrorCode.NONE, found.offset, found.timestamp_ms, _or_unknown(found.leader_epoch))


def find_segment_offsets(
    partition: Partition, wanted: ListOffsetsRequestPartition, reader: Reader
) -> ErrorCode | list[int]:
    """List where segments begin, and the readable end, the newest first (ADM-96): what version 0 of ListOffsets asks for.

    ``wanted.timestamp`` LATEST: all; EARLIEST: the first alone; a time: the segments not written to after it.
    """
    log = readable_log(partition, reader.replica_id, wanted.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return log
    end = partition.high_watermark.offset if reader.replica_id == CONSUMER else log.log_end_offset
    try:
        bases = [base for base, modified_ms in log.segment_times() if _is_wanted(modified_ms, wanted.timestamp)]
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if wanted.timestamp == EARLIEST:
        found = bases[:1]
    else:
        with_end = [*bases, end] if wanted.timestamp == LATEST else bases
        found = sorted({min(offset, end) for offset in with_end}, reverse=True)
    return found[: max(0, wanted.max_offsets)]


def _is_wanted(modified_ms: float, timestamp: int) -> bool:
    return timestamp in (LATEST, EARLIEST) or modified_ms <= timestamp


def find_epoch_end(partition: Partition, wanted: OffsetForLeaderEpochRequestPartition) -> FoundOffset:
    """Find the end of ``wanted.leader_epoch`` in the leader's log; ``offset`` is that end (BRK-61)."""
    log = readable_log(partition, CONSUMER, wanted.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return FoundOffset(log)
    epoch, end = log.leader_epochs.end_offset_for(wanted.leader_epoch, log.log_end_offset)
    return FoundOffset(offset=end, leader_epoch=epoch)


def find_divergence(partition: Partition, wanted: FetchRequestPartition) -> PartitionRead | None:
    """Compare the last epoch that the reader has with this log's; None: they agree, or reading will tell what is wrong.

    Source: Kafka 2.8.2 cluster/Partition.scala (readRecords).
    """
    log = readable_log(partition, CONSUMER, wanted.current_leader_epoch)
    if isinstance(log, ErrorCode) or wanted.fetch_offset < log.log_start_offset:
        return None
    end = log.end
    epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, end.offset)
    if epoch < 0 or end_offset < 0:
        return FAILED_READS[ErrorCode.OFFSET_OUT_OF_RANGE]
    if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    high_watermark = partition.high_watermark.offset
    return PartitionRead(
        high_watermark=high_watermark,
        last_stable_offset=min(log.last_stable_offset, high_watermark),
        log_start_offset=log.log_start_offset,
        diverging=EpochEnd(epoch=epoch, end_offset=end_offset),
    )


def _or_unknown(epoch: int | None) -> int:
    return -1 if epoch is None else epoch
