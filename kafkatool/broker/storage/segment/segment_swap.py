"""The segment that a round of compaction makes, and how it takes the place of others: a crash loses nothing (BRK-136, 167).

It is written with the suffix ``.cleaned``: found at a start, it is thrown away. Renamed to ``.swap`` it is whole and
on the disk: from then on a start finishes the replacement. Only then the old files become ``.deleted``, and at last
the suffix goes. The first of the old log files is not renamed but replaced in one step, so that its name is never
missing: Kafka 1.x, starting on such a directory, would take the segment before it for the replaced one and delete it.
Source: Kafka 2.3.1 and 1.1.1 log/Log.scala (replaceSegments, completeSwapOperations).
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from kafkatool.broker.storage.checkpoint import opened_directory
from kafkatool.broker.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, file_name
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import read_header

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_WRITE_BYTES = 1024 * 1024


class SegmentCopy:
    """A segment in the making: begun empty, one thread's own until ``finish``."""

    def __init__(self, directory: Path, base_offset: int, lock: threading.RLock, index_interval_bytes: int) -> None:
        """Make the files, ``N.log.cleaned`` and beside it. ``lock`` is that of the log. Raises OSError."""
        self._segment = Segment(directory, base_offset, lock, suffix=CLEANED_SUFFIX)
        self._segment.transaction_index_path.unlink(missing_ok=True)
        self._segment.create()
        self._directory = directory
        self._interval = index_interval_bytes
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self.size_bytes = 0
        self.is_changed = False
        """True once anything was left out."""
        self.aborted: list[AbortedTransaction] = []
        """Aborted transactions whose markers are in the copy."""

    def add(self, batch: Buffer) -> None:
        """Add the next batch. Raises OSError."""
        self._pending.append(bytes(batch))
        self._pending_bytes += len(batch)
        self.size_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._segment.write(b"".join(self._pending), self._segment.size_bytes)
        for batch in self._pending:
            header = read_header(batch)
            assert header is not None  # it was read before
            self._segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp, self._interval)
        self._pending, self._pending_bytes = [], 0

    def finish(self, modified_ms: float) -> Segment:
        """Bring everything to the disk; the file says it was written at ``modified_ms``. Raises OSError."""
        self._write()
        for one in self.aborted:
            self._segment.note_aborted(one)
        os.utime(self._segment.file.fileno(), ns=(int(modified_ms * 1e6),) * 2)
        self._segment.seal()
        self._segment.flush()
        return self._segment

    def discard(self) -> None:
        """Remove the files by the names they were made with: those that are in place already are not touched."""
        for kind in (LOG_SUFFIX, *INDEX_SUFFIXES):
            with contextlib.suppress(OSError):  # found at the next start, they are removed then
                (self._directory / file_name(self._segment.base_offset, kind + CLEANED_SUFFIX)).unlink(missing_ok=True)


def swap_in(directory: Path, cleaned: Segment, old: Sequence[Segment]) -> None:
    """Rename the files of all of them; under the log's lock. ``cleaned`` is flushed. Raises OSError."""
    for segment in old:
        _ = segment.file  # kept open: who reads it now must not meet the next generation under its name
    with opened_directory(directory) as names:
        cleaned.rename(SWAP_SUFFIX)
        os.fsync(names)  # else a power cut could take this name and spare the ones below
    first, *others = old
    for segment in others:
        segment.mark_deleted()
    first.mark_deleted(replaced=True)
    cleaned.rename("")
