"""The reading side of a partition's log: what is known of it, and what is in it (BRK-37, BRK-94, BRK-96, BRK-107).

Reads take no lock: they work on the end and the segment list as they were when they began, and begin again when
retention or compaction took a segment from under them. Source: Kafka 2.3.1 log/Log.scala.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log_offset import LogOffset, LogRead, LogServices, NewestBatch, TimestampOffset
from kafkatool.broker.storage.log.log_reader import aborted_transactions, find_offset, find_timestamp, read_log
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.segments import Segments
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction
from kafkatool.core.errors import OffsetOutOfRangeError, StorageError
from kafkatool.core.model.values import TopicPartition

T = TypeVar("T")


class ReadableLog:
    """What ``Log`` is to those who read.

    Any method raises StorageError when the disk fails, after the log dir was reported as failed.
    """

    def __init__(
        self,
        partition: TopicPartition,
        directory: Path,
        config: LogConfig,
        services: LogServices,
        *,
        lock: threading.RLock,
        segments: Segments,
        end_offset: int,
        log_start_offset: int,
        recovery_point: int,
        leader_epochs: LeaderEpochCache,
        producers: ProducerState,
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        """Everything below it is on the disk for sure."""
        self.high_watermark = 0
        """Set by replication; bounds retention and the last stable offset. Capped here when the log is cut."""
        self.cleaned_to: int | None = None
        """Where the last round of compaction ended; None before the first. Kept in ``cleaner-offset-checkpoint``."""
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.closed = False
        self.last_flush_ms = time.time() * 1000
        self._services = services
        self._lock = lock
        self._segments = segments
        self._cuts = 0  # how often the log was cut, so that a flush or a round of compaction can tell
        self._end = LogOffset(end_offset, segments.active.base_offset, segments.active.size_bytes)
        self._newest: NewestBatch | None = None  # a small one that was appended here as the leader

    # --- what is known -------------------------------------------------------------------------------------------

    @property
    def end(self) -> LogOffset:
        """The log end offset (LEO) with its place."""
        return self._end

    @property
    def log_end_offset(self) -> int:
        """The offset the next record gets."""
        return self._end.offset

    @property
    def size_bytes(self) -> int:
        """Of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> Segments:
        """For retention, flush and tests."""
        return self._segments

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open; at most the high watermark."""
        return self.producers.last_stable_offset(self.high_watermark)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper: int, *, min_one_batch: bool) -> LogRead:
        """Batches from the one that holds ``offset``, ending before ``upper`` and within one segment.

        At most ``max_bytes``, so that the last batch may be cut; a first batch larger than that comes whole with
        ``min_one_batch`` and not at all without. Raises OffsetOutOfRangeError.
        """
        end = self._end
        if not self.log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRangeError(
                f"{self.partition}: offset {offset}, the log holds [{self.log_start_offset}, {end.offset})"
            )
        return self._look(
            offset, lambda: read_log(self._segments, end, offset, max_bytes, upper, min_one_batch=min_one_batch)
        )

    def newest_at(self, offset: int, end: LogOffset) -> NewestBatch | None:
        """The batch that begins at ``offset`` if it is the last one before ``end`` and still in memory.

        It is what those ask for who wait at the end, and spares them two look-ups and a system call each.
        """
        newest = self._newest
        return newest if newest is not None and newest.end is end and newest.start.offset == offset else None

    def offset_metadata(self, offset: int) -> LogOffset:
        """The offset with its segment and position, when it lies in the log (BRK-37)."""
        end = self._end
        if not self.log_start_offset <= offset <= end.offset:
            return LogOffset(offset)
        return self._look(offset, lambda: find_offset(self._segments, end, offset))

    def find_by_timestamp(self, timestamp_ms: int, upper: int) -> TimestampOffset | None:
        """The first record at or after ``timestamp_ms`` with an offset below ``upper`` (BRK-107)."""
        return self._look(None, lambda: find_timestamp(self._segments, self.log_start_offset, timestamp_ms, upper))

    def aborted_transactions(self, found: LogRead, upper: int) -> list[AbortedTransaction]:
        """What of ``found``, read below ``upper``, a read_committed consumer has to skip (BRK-103)."""
        return self._look(found.start.offset, lambda: aborted_transactions(self._segments, found, upper))

    def _look(self, offset: int | None, look: Callable[[], T]) -> T:
        """What ``look`` finds at ``offset``, without the lock; retention or compaction may take its segment meanwhile."""
        while True:
            generation = self._segments.generation
            try:
                return look()
            except OSError as e:
                with self._lock:  # a change under way has come to its end
                    changed = generation is not self._segments.generation
                if offset is not None and offset < self.log_start_offset:
                    raise OffsetOutOfRangeError(f"{self.partition}: offset {offset} was just removed") from e
                if not (changed and isinstance(e, FileNotFoundError)):
                    raise self._failed(e) from e

    def _check_open(self) -> None:
        if self.closed:
            raise StorageError(f"{self.partition}: its log is closed or its log dir is offline")

    def fail(self, error: OSError) -> None:
        """The disk failed for somebody who works on the log's files: its dir goes offline."""
        self._failed(error)

    def _failed(self, error: OSError) -> StorageError:
        if not self.closed:
            self._services.on_io_error(error)
        return StorageError(f"{self.partition} in {self.directory.parent}: {error}")
