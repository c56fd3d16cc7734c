"""The state of one partition's log, which the parts that write, truncate and read it share."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kafkatool.broker.storage.checkpoint import is_passing
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segments import Segments
from kafkatool.core.errors import OutOfResourcesError, StorageError
from kafkatool.core.model.values import TopicPartition


class NewestBatch(NamedTuple):
    """The last batch of a log, from ``start`` to ``end``."""

    start: LogOffset
    end: LogOffset
    records: bytes


@dataclass(frozen=True, slots=True)
class LogServices:
    """The services a log needs from its manager."""

    defer: Callable[[Callable[[], object], float], object]
    """Run a function in the background after so many ms; dropped at shutdown."""
    on_io_error: Callable[[OSError], None]
    """The disk failed: take the log dir offline (BRK-146)."""
    on_recovery_point_lowered: Callable[[], None]
    """Truncated below it: write the checkpoint before this returns (BRK-142)."""
    on_start_lowered: Callable[[], None]
    """Truncated below the log start: write the checkpoint before this returns, or what is appended then is cut off at the
    next start (BRK-141)."""
    on_cleaned_to_changed: Callable[[], None]
    """Compaction came to its end, or what it had cleaned was cut off: write the checkpoint."""


@dataclass(slots=True, eq=False, kw_only=True)
class LogState:
    """All that is known of a log. Changed under ``lock``; a single attribute is read without it.

    No part refers back to the log: a deleted one must go without the cycle collector (``runtime/gc_pause.py``).
    """

    partition: TopicPartition
    directory: Path
    config: LogConfig
    services: LogServices
    lock: threading.RLock
    """Guards append, roll, truncation, retention and the end of a compaction."""
    segments: Segments
    end: LogOffset
    """The log end offset (LEO) with its place."""
    log_start_offset: int
    recovery_point: int
    """Everything below it is on the disk for sure."""
    leader_epochs: LeaderEpochCache
    producers: ProducerState
    high_watermark: int = 0
    """Set by replication; bounds retention and the last stable offset. Capped when the log is truncated."""
    cleaned_to: int | None = None
    """The end of the last round of compaction; None before the first. Kept in ``cleaner-offset-checkpoint``."""
    newest: NewestBatch | None = None
    """The last batch, if it is a small one that was appended here as the leader."""
    truncations: int = 0
    """The number of truncations so far, so that a flush or a round of compaction can tell."""
    disk_lags: bool = False
    """True while a cut, or what a scan made anew, may not be on the disk: a start after a clean stop would trust it."""
    midway: bool = False
    """True while a change is half done: an error in it leaves a log that nobody may go on with. Looked at by the changer."""
    gap_at: int | None = None
    """The first offset that is missing between two segments above the recovery point, after a start of the system: a power
    cut may have taken it, unless compaction left it out. Until it is known who leads, the recovery point stays below."""
    closed: bool = False
    last_flush_ms: float = field(default_factory=lambda: time.time() * 1000)

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no transaction is open; at most the high watermark."""
        # Retention and DeleteRecords may go beyond where an open transaction began (TXN-63).
        return max(
            self.producers.last_stable_offset(self.high_watermark), min(self.log_start_offset, self.high_watermark)
        )

    def check_open(self) -> None:
        """Raise StorageError if the log is closed or its log dir is offline."""
        if self.closed:
            raise StorageError(f"{self.partition}: its log is closed or its log dir is offline")

    def erase(self, segments: Iterable[Segment]) -> None:
        """Remove the files of segments that were marked deleted, where the log is by now. Raises OSError."""
        for segment in segments:
            with self.lock:
                segment.follow_to(self.directory)
            segment.erase()

    def disk_failed(self, error: OSError, *, midway: bool = False) -> StorageError:
        """Report that the disk failed, which takes the log dir offline; return the error to raise.

        Lacking descriptors or memory is no failure of the disk, unless it leaves a change half done.
        """
        if is_passing(error) and not midway:
            return OutOfResourcesError(f"{self.partition} in {self.directory.parent}: {error}")
        if not self.closed:
            self.services.on_io_error(error)
        return StorageError(f"{self.partition} in {self.directory.parent}: {error}")
