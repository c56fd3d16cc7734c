"""What is decided about moves between log dirs, from values alone (ADM-68, ADM-69).

Source: Kafka 2.8.2 server/ReplicaManager.scala (alterReplicaLogDirs), server/ReplicaAlterLogDirsThread.scala.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkatool.core.protocol.messages.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Asked:
    """A replica that is to lie in ``path``, and what there is of it. Paths are of log dirs."""

    path: Path
    is_log_dir: bool
    """Whether it is one of the broker's, working or not."""
    fits_name: bool
    live_dirs: Sequence[Path]
    some_offline: bool
    found: ErrorCode
    """What stands for the partition where it has no replica that works; NONE: it has."""
    now_in: Path | None
    moves_to: Path | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, in this order, and the code to answer."""

    code: ErrorCode
    give_up: bool = False
    """End the move under way, and drop what was copied."""
    remember: bool = False
    """Have the log made there, when it is made."""
    begin: bool = False


def judge(asked: Asked) -> Verdict:
    """Decide about one partition of AlterReplicaLogDirs, in the order of Kafka's checks."""
    if not asked.fits_name:
        return Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not asked.is_log_dir:
        return Verdict(ErrorCode.LOG_DIR_NOT_FOUND)
    if asked.path not in asked.live_dirs or asked.found is ErrorCode.KAFKA_STORAGE_ERROR:
        return Verdict(ErrorCode.KAFKA_STORAGE_ERROR)
    if asked.found is not ErrorCode.NONE:
        return Verdict(asked.found, remember=True)
    if asked.moves_to == asked.path:
        return Verdict(ErrorCode.NONE)
    give_up = asked.moves_to is not None
    if asked.now_in == asked.path:
        return Verdict(ErrorCode.NONE, give_up=give_up)
    if asked.some_offline:  # a second copy could come up with that dir
        return Verdict(ErrorCode.KAFKA_STORAGE_ERROR, give_up=give_up)
    return Verdict(ErrorCode.NONE, give_up=give_up, begin=True)


def shared_end(
    epochs: Sequence[tuple[int, int]], end: int, copied_epochs: Sequence[tuple[int, int]], copied_end: int
) -> int:
    """Return the offset below which a copy found at the start holds what the log holds.

    Both are known by their leader epochs, as (epoch, start offset), and their ends. 0: nothing tells; logs of message
    formats without epochs are copied anew.
    """
    ends = dict(_ends(epochs, end))
    shared = (min(ends[epoch], its_end) for epoch, its_end in _ends(copied_epochs, copied_end) if epoch in ends)
    return max(shared, default=0)


def _ends(epochs: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    starts = [start for _, start in epochs[1:]]
    return [(epoch, until) for (epoch, _), until in zip(epochs, [*starts, end], strict=False)]


class Step(enum.Enum):
    """The next step with a copy."""

    CUT = enum.auto()
    START_OVER = enum.auto()
    COPY = enum.auto()
    REPLACE = enum.auto()


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a log: the first that is served, and the next to be given."""

    start: int
    end: int


def next_step(log: Extent, copy: Extent, cut: int | None, *, near_end: bool) -> Step:
    """Decide the next step; ``near_end``: what is missing is so little that the partition may wait for it."""
    if cut is not None or copy.end > log.end:
        return Step.CUT
    if copy.end < log.start:
        return Step.START_OVER
    return Step.REPLACE if near_end or copy.end == log.end else Step.COPY
