"""Sparse indexes beside a segment: offset -> position and timestamp -> offset (BRK-131 to BRK-135).

An index costs no descriptor and no system call per append: new entries are kept in memory, in the bytes the file will
hold, and go to disk when the segment is flushed, rolled or closed, or when many have gathered. That is enough because
after an unclean stop the indexes of everything not flushed are rebuilt from the log (BRK-137). Older entries are read
when a look-up needs them. Source: Kafka 2.3.1 log/OffsetIndex.scala, log/TimeIndex.scala, log/AbstractIndex.scala.
"""

import contextlib
import os
import threading
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct

OFFSET_ENTRY = Struct(">ii")  # last offset of a batch - base offset, position of the batch
TIME_ENTRY = Struct(">qi")  # timestamp, its offset - base offset

_SPILL_ENTRIES = 4096  # bounds what the index of an active segment holds in memory


class IndexFile:
    """The entries (key, value) of one index, both rising. All but ``floor`` are called under the log's lock."""

    __slots__ = ("_lock", "_memory", "_struct", "_written", "path")

    def __init__(self, path: Path, entry: Struct, lock: threading.RLock) -> None:
        """Look at nothing yet: ``open`` or ``create`` first. ``lock`` is the log's."""
        self.path = path
        self._struct = entry
        self._lock = lock
        self._written = -1  # entries on disk; -1: not looked at
        # (number of the first entry in memory, entries from it on). Replaced, or appended to, never shortened, so that
        # a reader without the lock may go on with the pair it took.
        self._memory = (0, bytearray())

    def create(self) -> None:
        """Start empty, whatever the file holds."""
        self.path.write_bytes(b"")
        self._written = 0
        self._memory = (0, bytearray())

    def open(self) -> bool:
        """Look at the file; False when it is missing, not whole entries or below its base: to be rebuilt (BRK-135)."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False
        if size % self._struct.size:
            return False
        self._written = size // self._struct.size
        self._memory = (self._written, bytearray())
        last = self.last()
        least_key = -1 if self._struct is TIME_ENTRY else 0  # a timestamp may be -1
        return last is None or (last[0] >= least_key and last[1] >= 0)

    @property
    def is_open(self) -> bool:
        """Tell whether ``open`` or ``create`` was called."""
        return self._written >= 0

    @property
    def count(self) -> int:
        """Return the number of entries."""
        first, entries = self._memory
        return first + len(entries) // self._struct.size

    def append(self, key: int, value: int) -> None:
        """Add the next entry."""
        first, entries = self._memory
        entries += self._struct.pack(key, value)
        if first + len(entries) // self._struct.size - self._written >= _SPILL_ENTRIES:
            with contextlib.suppress(OSError):  # the next flush or roll writes them, and tells
                self.release()

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry."""
        if not self._memory[1]:
            self.load()
        entries = self._memory[1]
        return self._entry(entries, len(entries) // self._struct.size - 1) if entries else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """Return the entry with the largest key <= ``key``; takes the lock only when it must read the file."""
        first, entries = self._memory
        if first and (not entries or self._entry(entries, 0)[0] > key):
            with self._lock:
                self.load()
                entries = self._memory[1]
        size, unpack = self._struct.size, self._struct.unpack_from
        found = bisect_right(range(len(entries) // size), key, key=lambda i: unpack(entries, i * size)[0])
        return self._entry(entries, found - 1) if found else None

    def truncate(self, *, key_limit: int, value_limit: int) -> None:
        """Keep the entries with key and value below these: the log is cut there."""
        self.load()
        entries, size, unpack = self._memory[1], self._struct.size, self._struct.unpack_from
        numbers = range(len(entries) // size)
        keep = min(
            bisect_left(numbers, key_limit, key=lambda i: unpack(entries, i * size)[0]),
            bisect_left(numbers, value_limit, key=lambda i: unpack(entries, i * size)[1]),
        )
        self._memory = (0, entries[: keep * size])
        if keep < self._written:
            os.truncate(self.path, keep * size)
            self._written = keep

    def write(self, *, sync: bool = False) -> None:
        """Bring new entries to the file, and with ``sync`` to the disk."""
        first, entries = self._memory
        size = self._struct.size
        count = first + len(entries) // size
        if not self.is_open or (self._written == count and not sync):
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, bytes(entries[(self._written - first) * size :]), self._written * size)
            os.ftruncate(fd, count * size)  # a file that Kafka preallocated is longer
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self._written = count

    def release(self) -> None:
        """Write, then free the memory."""
        if self.is_open:
            self.write()
            self._memory = (self._written, bytearray())

    def load(self) -> None:
        """Bring the entries that are only on disk into memory."""
        first, entries = self._memory
        if not first:
            return
        size = self._struct.size
        on_disk = self.path.read_bytes()[: first * size]
        used = len(on_disk.rstrip(b"\0"))  # a preallocated file ends in zeros, which are not data (BRK-134)
        on_disk = on_disk[: -(-used // size) * size]
        if len(on_disk) < first * size:
            self._written = len(on_disk) // size
        self._memory = (0, bytearray(on_disk) + entries)

    def _entry(self, entries: bytearray, number: int) -> tuple[int, int]:
        key, value = self._struct.unpack_from(entries, number * self._struct.size)
        return key, value
