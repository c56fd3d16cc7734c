"""The start offset of each leader epoch in a log, which followers ask for before they truncate (BRK-59 to BRK-61, BRK-161).

A change is in the file at once, but reaches the disk with the next flush of the log: an fsync for each partition would
make a failover of thousands take seconds, and what a power cut takes is learnt again from the batches that are scanned
then. The epoch in which a broker begins to lead is not even in the file before its first record is to be appended:
when a log is loaded, an epoch that begins where the log ends is forgotten anyway, here and by Kafka, so nothing could
be told apart, and taking over thousands of partitions writes no thousands of files.
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

    Any thread may call. Raises OSError from changes.
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
        self.unwritten = False
        """True while the file lacks the newest epoch: ``write`` before a record is appended. Read without a lock, too."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return all (epoch, start offset) pairs, oldest first."""
        with self._lock:
            return list(zip(self._epochs, self._starts, strict=True))

    def begin(self, epoch: int, end: int) -> None:
        """Begin ``epoch`` at the log's end: known at once, in the file with ``write`` or any later change."""
        with self._lock:
            if (changed := self._with(epoch, end)) is not None:
                self._keep(*changed)
                self.unwritten = True

    def write(self) -> None:
        """Bring into the file what ``begin`` has left out."""
        with self._lock:
            if self.unwritten:
                self._write(self._epochs, self._starts, sync=False)

    def assign(self, epoch: int, start: int) -> None:
        """Note that ``epoch`` begins at offset ``start``; entries that this contradicts go (BRK-60)."""
        with self._lock:
            if (changed := self._with(epoch, start)) is not None:
                self._store(*changed)

    def _with(self, epoch: int, start: int) -> tuple[list[int], list[int]] | None:
        """Return epochs and starts once that is known; None: it is."""
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return None
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start))
        return [*self._epochs[:keep], epoch], [*self._starts[:keep], start]

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
                self._store(self._epochs[:keep], self._starts[:keep])

    def truncate_from_start(self, start: int) -> None:
        """Forget the epochs before ``start``, the log's start now; the one valid there begins there."""
        with self._lock:
            valid_there = bisect_right(self._starts, start) - 1
            if valid_there >= 0 and self._starts[0] < start:
                self._store(self._epochs[valid_there:], [start, *self._starts[valid_there + 1 :]])

    def clear(self) -> None:
        """Forget all: the log holds batches without an epoch, or is emptied."""
        with self._lock:
            if self._epochs:
                self._store([], [])

    def sync(self) -> None:
        """Bring the file to the disk."""
        with self._lock:
            if self._unsynced or self.unwritten:
                self._write(self._epochs, self._starts, sync=True)

    def _write(self, epochs: list[int], starts: list[int], *, sync: bool) -> None:
        write_entries(self._path, (f"{e} {s}" for e, s in zip(epochs, starts, strict=True)), sync=sync)
        self._unsynced = not sync
        self.unwritten = False

    def _store(self, epochs: list[int], starts: list[int]) -> None:
        self._write(epochs, starts, sync=False)
        self._keep(epochs, starts)

    def _keep(self, epochs: list[int], starts: list[int]) -> None:
        self._epochs, self._starts = epochs, starts
        self.latest = epochs[-1] if epochs else None
