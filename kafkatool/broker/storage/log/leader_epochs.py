"""The start offset of each leader epoch in a log, which followers ask for before they truncate (BRK-59 to BRK-61, BRK-161).

A change is kept in memory and reaches the file, written beside and synced, with the next flush of the log: before the
recovery point passes the records of a new epoch. So the file is never one that a power cut leaves empty, and taking over
thousands of partitions writes and syncs no thousands of files. What a crash takes is learnt again: from the recovery
point on every batch is scanned and tells its epoch (``learn``), and what a log lost at its end or its start is cut off
when it is opened.
Source: Kafka 2.3.1 server/epoch/LeaderEpochFileCache.scala, KIP-101, KIP-279; late fsync: Kafka 3.8, KAFKA-15046.
"""

import itertools
import threading
from bisect import bisect_left, bisect_right
from pathlib import Path

from kafkatool.broker.storage.checkpoint import CheckpointDamagedError, read_entries, write_entries

UNDEFINED = (-1, -1)
"""The answer of ``end_offset_for`` when nothing is known, as it goes over the wire."""


class LeaderEpochCache:
    """The (epoch, start offset) pairs of a log, both strictly rising, kept in ``leader-epoch-checkpoint``.

    Any thread may call.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises CheckpointDamagedError, OSError."""
        self._path = path
        self._lock = threading.Lock()
        self._unsynced = False
        entries = read_entries(path, 2)
        try:
            self._epochs = [int(epoch) for epoch, _ in entries]
            self._starts = [int(start) for _, start in entries]
        except ValueError as e:
            raise CheckpointDamagedError(f"{path}: {e}") from e
        rising = itertools.pairwise(entries)
        if any(int(a[0]) >= int(b[0]) or int(a[1]) >= int(b[1]) for a, b in rising):
            raise CheckpointDamagedError(f"{path}: epochs and start offsets must rise")
        self.latest: int | None = self._epochs[-1] if self._epochs else None
        """The newest epoch, None when no epoch is known. Read without a lock on every append."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return all (epoch, start offset) pairs, oldest first."""
        with self._lock:
            return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """Note that ``epoch`` begins at offset ``start``; entries that this contradicts go (BRK-60)."""
        with self._lock:
            if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
                return
            keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start))
            self._keep([*self._epochs[:keep], epoch], [*self._starts[:keep], start])

    def learn(self, epoch: int, offset: int) -> None:
        """Note that a stored batch of ``epoch`` begins at ``offset``; what the file tells otherwise is outdated."""
        with self._lock:
            keep = bisect_right(self._starts, offset)
            if keep and self._epochs[keep - 1] == epoch:
                return
            keep = min(bisect_right(self._epochs, epoch), keep)
            epochs, starts = self._epochs[:keep], self._starts[:keep]
            if starts and starts[-1] == offset:  # of an older epoch, which has no record then
                epochs.pop()
                starts.pop()
            if not epochs or epochs[-1] != epoch:
                epochs.append(epoch)
                starts.append(offset)
            self._keep(epochs, starts)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch <= ``epoch``, its end offset), or UNDEFINED (BRK-61).

        An epoch below the oldest known gives (``epoch``, start of the oldest).
        """
        with self._lock:
            if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
                return UNDEFINED
            if epoch == self._epochs[-1]:
                return epoch, log_end_offset
            following = bisect_right(self._epochs, epoch)
            return (self._epochs[following - 1] if following else epoch), self._starts[following]

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch valid at ``offset``; None when older than all known."""
        with self._lock:
            found = bisect_right(self._starts, offset)
            return self._epochs[found - 1] if found else None

    def truncate_from_end(self, end: int) -> None:
        """Forget the epochs that begin at ``end``, the log's end now, or later."""
        with self._lock:
            keep = bisect_left(self._starts, end)
            if keep < len(self._starts):
                self._keep(self._epochs[:keep], self._starts[:keep])

    def truncate_from_start(self, start: int) -> None:
        """Forget the epochs before ``start``, the log's start now; the one valid there begins there."""
        with self._lock:
            valid_there = bisect_right(self._starts, start) - 1
            if valid_there >= 0 and self._starts[0] < start:
                self._keep(self._epochs[valid_there:], [start, *self._starts[valid_there + 1 :]])

    def clear(self) -> None:
        """Forget all: the log holds batches without an epoch, or is emptied."""
        with self._lock:
            if self._epochs:
                self._keep([], [])

    def adopt(self, other: "LeaderEpochCache") -> None:
        """Take over what is known of a log with the same records; also of epochs in which none was written."""
        entries = other.entries
        with self._lock:
            self._keep([epoch for epoch, _ in entries], [start for _, start in entries])

    def follow_to(self, directory: Path) -> None:
        """Go on in the directory of the log, which was renamed."""
        with self._lock:
            self._path = directory / self._path.name

    def sync(self) -> bool:
        """Bring changes to the disk, and with them the names in the directory; return whether there were any. OSError."""
        with self._lock:
            if not self._unsynced:
                return False
            pairs = zip(self._epochs, self._starts, strict=True)
            write_entries(self._path, (f"{epoch} {start}" for epoch, start in pairs))
            self._unsynced = False
            return True

    def _keep(self, epochs: list[int], starts: list[int]) -> None:
        self._epochs, self._starts = epochs, starts
        self.latest = epochs[-1] if epochs else None
        self._unsynced = True
