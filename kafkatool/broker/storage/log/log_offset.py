"""What a log takes and gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.core.protocol.codec.file_region import FileRegion


class LogOffset(NamedTuple):
    """An offset and where it lies; without segment and position when only the offset is known (BRK-37)."""

    offset: int
    segment_base: int | None = None
    position: int | None = None


class AppendInfo(NamedTuple):
    """What became of an append. ``first_offset`` > ``last_offset`` when there was nothing to append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int | None
    """The broker's time when the topic keeps that, else None."""
    log_start_offset: int
    duplicate: bool = False
    """The batch had been appended before; nothing was written, the offsets are those of then (BRK-91)."""
    leader_epoch: int | None = None
    """Of the last batch; None when it has none (v0/v1)."""
    size_bytes: int = 0


class LogRead(NamedTuple):
    """A stretch of the log that begins with the batch of the asked offset."""

    start: LogOffset
    records: FileRegion | bytes
    size_bytes: int
    first_batch_incomplete: bool = False
    """There is data, but the first batch is larger than asked for, so nothing was taken (BRK-96)."""


class NewestBatch(NamedTuple):
    """The last batch of a log, from ``start`` to ``end``."""

    start: LogOffset
    end: LogOffset
    records: bytes


class TimestampOffset(NamedTuple):
    """The first record at or after a time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class LastBatch(NamedTuple):
    """What must stay of an idempotent producer: its epoch and, when it wrote data, the end of its last batch."""

    producer_epoch: int
    last_offset: int | None


class Cleanable(NamedTuple):
    """A log as it was when a round of compaction began."""

    segments: list[Segment]
    """The active one is the last."""
    stable_offset: int
    """Nothing at or above it is touched: no transaction is open and all is replicated below."""
    last_batches: dict[int, LastBatch]
    """By producer id."""
    cuts: int
    """Tells whether anything was cut off since."""


@dataclass(frozen=True, slots=True)
class LogServices:
    """What a log needs from whoever manages it."""

    defer: Callable[[Callable[[], object], float], object]
    """Run a function in the background after so many ms; dropped at shutdown."""
    on_io_error: Callable[[OSError], None]
    """The disk failed: take the log dir offline (BRK-146)."""
    on_recovery_point_lowered: Callable[[], None]
    """Truncated below it: write the checkpoint before this returns (BRK-142)."""
    on_cleaned_to_changed: Callable[[], None]
    """Compaction came to its end, or what it had cleaned was cut off: write the checkpoint."""
