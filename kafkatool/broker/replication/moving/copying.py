"""A step with one replica that moves: cut, start over, copy, or put the copy in the place of the log (ADM-69)."""

import logging
from dataclasses import dataclass

from kafkatool.broker.replication.moving.decisions import Extent, Step, next_step
from kafkatool.broker.replication.partition.partition import Partition, empty_if_only_below_start
from kafkatool.broker.replication.partition.replica_copy import ReplicaCopy
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import OffsetOutOfRangeError, StorageError
from kafkatool.core.protocol.codec.file_region import FileRegion

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Move:
    """A replica on its way. Used by the one thread that copies."""

    partition: Partition
    copy: ReplicaCopy
    near_end: bool = False
    delayed_until_ms: float = 0

    @property
    def is_over(self) -> bool:
        """Tell whether it is done, was given up, or its partition is gone from here."""
        return self.partition.copy is not self.copy

    def is_due(self, now_ms: float) -> bool:
        """Tell whether its next step may be done: not while it was put off, nor while records of the log are in doubt."""
        return self.delayed_until_ms <= now_ms and self.partition.log.gap_at is None

    def advance(self, log_manager: LogManager, max_bytes: int) -> int:
        """Do the next step; return how many bytes were copied.

        Raises StorageError, CorruptRecordsError, OffsetOrderError.
        """
        original, copied, cut = self.partition.log, self.copy.log, self.copy.cut
        step = next_step(_extent(original), _extent(copied), cut, near_end=self.near_end)
        if step is Step.CUT:
            self._cut(original, cut)
        elif step is Step.START_OVER:
            copied.truncate_fully_and_start_at(original.log_start_offset)
        elif step is Step.COPY:
            size_bytes = _copy_some(original, copied, max_bytes)
            self.near_end = size_bytes <= max_bytes // 4
            return size_bytes
        else:
            copied.flush()  # while the partition need not wait for it
            return self._replace(log_manager, max_bytes)
        return 0

    def _cut(self, original: Log, cut: int | None) -> None:
        """Cut the copy where the log was cut; what arrived after that from before it goes, too."""
        self.copy.log.truncate_to(original.log_end_offset if cut is None else cut)
        with self.partition.lock:
            if self.copy.cut == cut:  # else it was cut again, further down
                self.copy.cut = None

    def _replace(self, log_manager: LogManager, max_bytes: int) -> int:
        """Copy the rest while nobody appends, and have the copy take the place of the log.

        All of it: what came during the flush may be more than one step takes, and would be again after the next.
        """
        partition = self.partition
        with partition.lock:
            original, copied = partition.log, self.copy.log
            if (
                self.is_over
                or next_step(_extent(original), _extent(copied), self.copy.cut, near_end=True) is not Step.REPLACE
            ):
                return 0
            size_bytes = 0
            while step_bytes := _copy_some(original, copied, max_bytes):
                size_bytes += step_bytes
            self.near_end = copied.log_end_offset == original.log_end_offset
            if not self.near_end and copied.log_end_offset >= original.log_start_offset:
                raise StorageError(f"{partition.tp}: its log has nothing at offset {copied.log_end_offset}")
            if self.near_end:
                partition.go_on_with(log_manager.replace_with_copy(partition.tp))
            return size_bytes


def _extent(one: Log) -> Extent:
    return Extent(one.log_start_offset, one.log_end_offset)


def _copy_some(original: Log, copied: Log, max_bytes: int) -> int:
    """Copy so many bytes, or one batch that is larger; return how many. 0: there is no more, or retention was faster."""
    try:
        read = original.read(copied.log_end_offset, max_bytes, original.log_end_offset, min_one_batch=True)
    except OffsetOutOfRangeError:
        return 0
    if not read.size_bytes:
        return 0
    records = read.records.read() if isinstance(read.records, FileRegion) else read.records
    empty_if_only_below_start(copied, memoryview(records))
    copied.append_as_follower(memoryview(records))
    copied.high_watermark = min(original.high_watermark, copied.log_end_offset)
    copied.advance_log_start(min(original.log_start_offset, copied.log_end_offset))
    return len(records)
