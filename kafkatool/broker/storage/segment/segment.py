"""One segment: a log file, its two indexes, and what is known about it (BRK-131 to BRK-135).

Changes are made under the log's lock. ``find`` and ``region`` may be called without it. A segment opened from disk
knows only its size; indexes and timestamps are read when first needed.
Source: Kafka 2.3.1 log/LogSegment.scala.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkatool.broker.storage.batches.batch_scan import scan_headers
from kafkatool.broker.storage.batches.received_batches import ReceivedBatch
from kafkatool.broker.storage.log_config import RECORD_BATCHES, LogConfig
from kafkatool.broker.storage.segment.index_file import OFFSET_ENTRY, TIME_ENTRY, IndexFile
from kafkatool.broker.storage.segment.recent_batches import RecentBatches
from kafkatool.broker.storage.segment.segment_file import SegmentFile, write_all
from kafkatool.broker.storage.segment.transaction_index import (
    AbortedTransaction,
    OpenTransactionIndex,
    read_aborted,
    sync_aborted,
)
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import BatchHeader, iter_records

DELETED_SUFFIX = ".deleted"
FRESH_SUFFIX = ".fresh"  # of a segment whose files are made before it is known that they will be needed
LOG_SUFFIX = ".log"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_ALL_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)
MAX_RELATIVE_OFFSET = 2**31 - 1
_NO_KEY_LIMIT = 2**63 - 1


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of such a file: ``00000000000000000042.log``."""
    return f"{base_offset:020d}{suffix}"


class Cut(NamedTuple):
    """The place of a cut: the log ends at ``offset`` then, the file at ``position``. None: there is nothing to cut."""

    offset: int
    position: int | None
    transaction_index: OpenTransactionIndex | None


class Segment:
    """A segment, with the batches from ``base_offset`` on."""

    def __init__(
        self, directory: Path, base_offset: int, lock: threading.RLock, *, size_bytes: int = 0, suffix: str = ""
    ) -> None:
        """Take a file that is there with ``size_bytes``, or is about to be created (``create``)."""
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.deleted = False
        self.created_ms = time.time() * 1000
        self.roll_jitter_ms = 0
        self._lock = lock
        self._directory = directory
        self._suffix = suffix
        self._file: SegmentFile | None = None
        self.offset_index = IndexFile(self._path_of(".index"), OFFSET_ENTRY, lock)
        self.time_index = IndexFile(self._path_of(".timeindex"), TIME_ENTRY, lock)
        self._recent: RecentBatches | None = None  # None: not active, all look-ups go through the index
        self._largest: tuple[int, int] | None = None  # (timestamp, its offset); None: not read yet
        self._first_timestamp: int | None = None
        self._since_entry_bytes = 0
        self._index_entries = 0
        self._has_aborted: bool | None = None  # None: not looked for yet

    def create(self, *, preallocate_bytes: int = 0) -> None:
        """Make the files, empty whatever was there, as the active segment. Raises OSError, and leaves none then."""
        try:
            file = self._file = SegmentFile(self._path_of(LOG_SUFFIX), create=True)
            if preallocate_bytes:
                os.posix_fallocate(file.fileno(), 0, preallocate_bytes)
            self.offset_index.create()
            self.time_index.create()
        except OSError:
            self.erase()
            raise
        self._recent = RecentBatches(self.base_offset, 0)
        self._largest = (-1, self.base_offset)

    @property
    def transaction_index_path(self) -> Path:
        """Return the path of the index of aborted transactions; most segments have no such file."""
        return self._path_of(".txnindex")

    def _path_of(self, kind: str) -> Path:
        return self._directory / file_name(self.base_offset, kind + self._suffix)

    @property
    def file(self) -> SegmentFile:
        """Return the open file, opened now if need be. Raises OSError."""
        file = self._file
        if file is None:
            path = self._path_of(LOG_SUFFIX)
            file = SegmentFile(path)
            if path != self._path_of(LOG_SUFFIX):  # it may be the file of the segment that replaces this one
                raise FileNotFoundError(f"{path} was renamed while it was opened")
            self._file = file
        return file

    # --- appending, under the lock --------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Put whole batches at ``position``, the end; ``note_batch`` for each of them makes them visible."""
        write_all(self.file.fileno(), data, position)

    def note_batch(self, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Count in the next batch of the file; an index entry is due every ``index_interval_bytes`` (BRK-132)."""
        position = self.size_bytes
        self._largest = self._index(
            *(position, size_bytes, last_offset, max_timestamp, index_interval_bytes),
            self._largest or self._read_largest(),
        )
        if self._recent is not None:
            self._recent = self._recent.add(last_offset, position + size_bytes)
        self.size_bytes = position + size_bytes

    def _index(
        self,
        position: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
        largest: tuple[int, int],
    ) -> tuple[int, int]:
        """Add a batch to the indexes; ``largest`` is that of those before it. Return that with it."""
        if max_timestamp > largest[0]:
            largest = (max_timestamp, last_offset)
        if self._since_entry_bytes > index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self._index_entries += 1
            self._add_time_entry(largest)
            self._since_entry_bytes = 0
        self._since_entry_bytes += size_bytes
        if not position:
            self._first_timestamp = max_timestamp
        return largest

    def activate(self, next_offset: int) -> None:
        """Make it the segment that is appended to; ``next_offset`` is the log's end."""
        self._recent = RecentBatches(next_offset, self.size_bytes)
        self._open_indexes()
        self._since_entry_bytes = self.size_bytes - (self.offset_index.last() or (0, 0))[1]
        self._index_entries = self.offset_index.count
        self.offset_index.release()
        self.time_index.release()

    def seal(self) -> None:
        """End the appends: write the largest timestamp, give spare space back (BRK-132)."""
        if self._recent is not None and self.offset_index.is_open:
            self._add_time_entry(self.largest)
            if os.fstat(self.file.fileno()).st_size != self.size_bytes:
                os.ftruncate(self.file.fileno(), self.size_bytes)
        self.release()
        self._recent = None  # last: where something is lacking it stays the active one

    def _add_time_entry(self, largest: tuple[int, int]) -> None:
        last = self.time_index.last()
        relative = largest[1] - self.base_offset
        if largest[0] > (last[0] if last else -1) and relative >= (last[1] if last else 0):
            self.time_index.append(largest[0], relative)

    # --- looking up -----------------------------------------------------------------------------------------------

    def index_is_full(self, limit_bytes: int) -> bool:
        """Tell whether an index has no room; the time index has the larger entries, and at most as many (BRK-131)."""
        return self._index_entries >= max(1, limit_bytes // TIME_ENTRY.size - 1)

    def find(self, offset: int) -> tuple[int, int] | None:
        """Return (position, end) of the first batch whose last offset is ``offset`` or more; None: not in this segment.

        Raises CorruptRecordsError where a batch before it cannot be told from the next: what follows is not to be taken for
        it, as where compaction has left offsets out.
        """
        recent = self._recent
        if recent is not None:
            if offset >= recent.floor:
                return recent.find(offset)
            end = recent.start
        else:
            end = self.size_bytes
        at = self._position_before(offset)
        for position, header in self.headers(at, end):
            at = position + header.size_bytes
            if header.last_offset >= offset:
                return position, at
        if at < min(end, self.size_bytes):  # it may have been cut meanwhile
            raise CorruptRecordsError(f"{self._path_of(LOG_SUFFIX)}: the batch at position {at} has no readable header")
        return recent.find(offset) if recent is not None else None

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches from position ``start`` on."""
        return scan_headers(self.file, start, self.size_bytes if end is None else end)

    def aborted_transactions(self, start: int = 0) -> Iterator[AbortedTransaction]:
        """Yield those whose markers lie here, at ``start`` or after it, by the markers. Raises OSError.

        Most segments have none: only the first look is one at the disk, though a reader far behind asks all that follow.
        """
        if self._has_aborted is None:
            with self._lock:  # none is being noted
                self._has_aborted = self.transaction_index_path.exists()
        return read_aborted(self.transaction_index_path, start) if self._has_aborted else iter(())

    def open_transaction_index(self) -> OpenTransactionIndex:
        """Open it to note one more, or to cut it. Under the lock, or before others know of the segment. Raises OSError."""
        self._has_aborted = True
        return OpenTransactionIndex(self.transaction_index_path)

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Note one whose marker lies here; the index is made with the first. Raises OSError."""
        index = self.open_transaction_index()
        index.append(aborted)
        index.close()

    def region(self, position: int, size_bytes: int) -> FileRegion:
        """Return a stretch of the file, to be sent."""
        return FileRegion(self.file, position, size_bytes)

    def position_for_timestamp(self, timestamp_ms: int) -> int:
        """Return a position at or before the first batch that may hold a record of that time or later."""
        with self._lock:
            self._open_indexes()
            entry = self.time_index.floor(timestamp_ms - 1)
        return self._position_before(self.base_offset + entry[1]) if entry else 0

    def find_end(self) -> tuple[int, int]:
        """Return the offset after the last batch that can be told, and where in the file that ends (BRK-138)."""
        offset, position = self.base_offset, self._position_before(self.base_offset + MAX_RELATIVE_OFFSET)
        for at, header in self.headers(position):
            offset, position = header.next_offset, at + header.size_bytes
        return offset, position

    def _position_before(self, offset: int) -> int:
        if not self.offset_index.is_open:
            with self._lock:
                self._open_indexes()
        entry = self.offset_index.floor(offset - self.base_offset)
        return entry[1] if entry else 0

    # --- time -----------------------------------------------------------------------------------------------------

    @property
    def largest(self) -> tuple[int, int]:
        """Return (largest timestamp, offset of its batch); -1 when no batch has one. Raises OSError."""
        if self._largest is None:
            with self._lock:
                return self._read_largest()
        return self._largest

    @property
    def first_timestamp(self) -> int | None:
        """Return that of the first batch; None when empty. Decides with ``segment.ms`` when to roll (BRK-131)."""
        if self._first_timestamp is None and self.size_bytes:
            self._first_timestamp = next((h.max_timestamp for _, h in self.headers()), None)
        return self._first_timestamp

    @property
    def modified_ms(self) -> float:
        """Return the time the file was last written. Raises OSError."""
        return self._path_of(LOG_SUFFIX).stat().st_mtime * 1000

    def _read_largest(self) -> tuple[int, int]:
        self._open_indexes()
        largest = self.time_index.last()
        timestamp, offset = (largest[0], self.base_offset + largest[1]) if largest else (-1, self.base_offset)
        for _, header in self.headers(self._position_before(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._largest = (timestamp, offset)
        return self._largest

    # --- indexes and files ----------------------------------------------------------------------------------------

    def _open_indexes(self) -> None:
        if not self.offset_index.is_open and not (self.offset_index.open() and self.time_index.open()):
            self._index_anew(self.headers(), 4096)

    def recover(self, batches: Iterable[tuple[int, BatchHeader]], index_interval_bytes: int) -> None:
        """Make the indexes anew from all good batches; a torn batch and what follows it are cut off the file."""
        good_bytes = self._index_anew(batches, index_interval_bytes)
        if good_bytes < self.size_bytes:
            self.size_bytes = good_bytes
            os.ftruncate(self.file.fileno(), good_bytes)

    def _index_anew(self, batches: Iterable[tuple[int, BatchHeader]], index_interval_bytes: int) -> int:
        """Return up to where the batches lie. Readers may look on meanwhile: by few entries they are slow, and right.

        Who asks for the largest time waits: by one that is still too small segments are passed over.
        """
        self.offset_index.create()
        self.time_index.create()
        self._largest = self._first_timestamp = None
        largest = (-1, self.base_offset)
        self._since_entry_bytes = self._index_entries = 0
        end = 0
        for _, header in batches:
            largest = self._index(
                *(end, header.size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes), largest
            )
            end += header.size_bytes
        self._add_time_entry(largest)
        self._largest = largest
        return end

    def prepare_truncation(self, offset: int) -> Cut:
        """Find where to cut before the batch that holds ``offset`` or follows it, and open all that a cut needs.

        So no descriptor is missing then. Raises OSError.
        """
        _ = self.file
        self._open_indexes()
        self.offset_index.load()
        self.time_index.load()
        found = self.find(offset)
        if found is None:
            return Cut(offset, None, None)
        for position, header in self.headers(found[0]):
            offset = min(offset, self._first_offset(position, header))
            break
        index = self.open_transaction_index() if self.transaction_index_path.exists() else None
        if index is not None:
            index.load()
        return Cut(offset, found[0], index)

    def _first_offset(self, position: int, header: BatchHeader) -> int:
        """Return the offset of the batch's first record, which a wrapper of format 0 or 1 tells inside alone.

        Of a wrapper in which the log starts, and the segment with it, that is the segment's base.
        """
        if header.magic == RECORD_BATCHES or not header.codec:
            return header.base_offset
        with contextlib.suppress(CorruptRecordsError):  # then what it holds is lost anyway
            first = next(iter_records(self.region(position, header.size_bytes).read())).offset
            return max(first, self.base_offset)
        return header.base_offset

    def truncate(self, cut: Cut) -> None:
        """Cut as it was prepared. Raises OSError."""
        if cut.position is None:
            return
        offset, position = cut.offset, cut.position
        os.ftruncate(self.file.fileno(), position)
        self.size_bytes = position
        relative = offset - self.base_offset
        self.offset_index.truncate(key_limit=relative, value_limit=position)
        self.time_index.truncate(key_limit=_NO_KEY_LIMIT, value_limit=relative)
        self._largest = None
        if self._recent is not None:
            self._recent = RecentBatches(offset, position)
            self._index_entries = self.offset_index.count
            self._since_entry_bytes = position - (self.offset_index.last() or (0, 0))[1]
        if not position:
            self._first_timestamp = None
            self.created_ms = time.time() * 1000
        if cut.transaction_index is not None:
            cut.transaction_index.truncate(offset)
            cut.transaction_index.close()

    def flush(self) -> bool:
        """Bring log and indexes to the disk; return whether one is there that may be new by its name. Raises OSError."""
        file = self.file
        os.fsync(file.fileno())
        has_aborted = sync_aborted(self.transaction_index_path)
        with self._lock:
            self.offset_index.write(sync=True)
            self.time_index.write(sync=True)
            if self._recent is None:
                self._file = None
        return has_aborted

    def mark_deleted(self, *, replaced: bool = False) -> None:
        """Rename the files so that they are gone for every later start; ``erase`` comes when readers are done.

        With ``replaced`` another file is about to be renamed over the log file: it keeps its name, and must be open.
        """
        self.deleted = True
        self.rename(DELETED_SUFFIX, INDEX_SUFFIXES if replaced else _ALL_SUFFIXES)

    def rename(self, suffix: str, kinds: Iterable[str] = _ALL_SUFFIXES) -> None:
        """Put another suffix behind the names of its files of these kinds, the log file first. Raises OSError."""
        old = {kind: self._path_of(kind) for kind in kinds}
        self._suffix = suffix
        for kind, path in old.items():
            with contextlib.suppress(FileNotFoundError):  # an index may not have been written
                path.rename(self._path_of(kind))
        self.offset_index.path = self._path_of(".index")
        self.time_index.path = self._path_of(".timeindex")

    def follow_to(self, directory: Path) -> None:
        """Go on in the directory of the log, which was renamed. Under the lock."""
        self._directory = directory
        self.offset_index.path = self._path_of(".index")
        self.time_index.path = self._path_of(".timeindex")

    def erase(self) -> None:
        """Remove the files, by the names they have now."""
        for kind in _ALL_SUFFIXES:
            self._path_of(kind).unlink(missing_ok=True)

    def release(self) -> None:
        """Write what is not written; give descriptor and memory back."""
        self.offset_index.release()
        self.time_index.release()
        self._file = None


def must_roll(segment: Segment, planned_bytes: int, batch: ReceivedBatch, config: LogConfig) -> bool:
    """Tell whether a segment that holds ``planned_bytes`` is too full or too old to take the batch too (BRK-131)."""
    header = batch.header
    if batch.base_offset + header.last_offset_delta - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if not planned_bytes:
        return False
    if planned_bytes + header.size_bytes > config.segment_bytes or segment.index_is_full(config.segment_index_bytes):
        return True
    first = segment.first_timestamp
    if first is not None and first >= 0 and batch.max_timestamp >= 0:
        age_ms = float(batch.max_timestamp - first)
    else:
        age_ms = time.time() * 1000 - segment.created_ms
    return age_ms > config.longest_segment_ms - segment.roll_jitter_ms
