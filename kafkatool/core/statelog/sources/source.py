"""A log as the merge reads it: bytes by offset, and where records begin.

A source is what stood in the file when the merge began: growth is not seen (SCL-7), a roll (the file renamed, a new
one in its place) is noticed by the inode and the file found again under its new name.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.lines.grammar import TIME, TIME_LENGTH

_FIRST_LOOK_BYTES = 4096  # from elsewhere: what makes more than one segment on the socket of the JVM takes 40 ms
_RECORD_START = re.compile(rf"\n\[?({TIME})".encode(), re.ASCII)
_LINE_WITH_TIME = re.compile(rf"^\[?({TIME})".encode(), re.ASCII | re.MULTILINE)


class SourceChangedError(KafkatoolError):
    """A file was truncated or removed while it was read."""


class Extent(Protocol):
    """Bytes ``start`` to ``end`` of one file, wherever it lies.

    ``whole``: the file can only be read from its beginning, as gzip that is unpacked on the way.
    """

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def whole(self) -> bool: ...

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of the file from ``start`` to ``end``. SourceChangedError if they are gone; OSError."""

    def between(self, start: int, end: int) -> "Extent":
        """Return another part of the same file."""


@dataclass(frozen=True, slots=True)
class FileExtent:
    """Bytes ``start`` to ``end`` of one file. ``inode`` tells the file from a later one of the same name."""

    path: Path
    inode: int
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Tell that it can be read at any offset."""
        return False

    def between(self, start: int, end: int) -> "FileExtent":
        """Return another part of the same file."""
        return replace(self, start=start, end=end)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of the file from ``start`` to ``end``. SourceChangedError if they are gone; OSError."""
        with _open_inode(self.path, self.inode) as fd:
            pieces = []
            while start < end and (piece := os.pread(fd, end - start, start)):
                pieces.append(piece)
                start += len(piece)
        if start < end:
            raise SourceChangedError(f"{self.path} became shorter while it was read; merge a copy of it")
        return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class Source:
    """One log. Usually one extent; lines at the start of a rolled file may belong to the end of the one before it.

    Offsets count from the first extent's start, across extents. ``name`` is the path as the user knows it.
    """

    name: str
    label: str
    extents: tuple[Extent, ...]

    @property
    def size(self) -> int:
        """Return the bytes in all extents."""
        return sum(extent.end - extent.start for extent in self.extents)

    @property
    def whole(self) -> bool:
        """Tell if any part of it can only be read as a whole."""
        return any(extent.whole for extent in self.extents)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``."""
        pieces = []
        for extent in self.extents:
            length = extent.end - extent.start
            if start < length and end > 0:
                pieces.append(extent.read(extent.start + max(start, 0), extent.start + min(end, length)))
            start, end = start - length, end - length
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def next_record(self, offset: int) -> tuple[int, bytes | None]:
        """Return offset and time of the first record that begins at or after ``offset``; (size, None) if there is none."""
        size = self.size
        look = _FIRST_LOOK_BYTES
        begin = offset - 1  # a record begins after a line's end; the byte before tells if offset itself is a beginning
        while offset < size:
            data = self.read(begin, min(offset + look, size)) if begin >= 0 else b"\n" + self.read(0, min(look, size))
            if found := _RECORD_START.search(data):
                return begin + found.start() + 1, found[1]
            if offset + look >= size:
                break
            look *= 4
        return size, None

    def records(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and time of every record that begins from ``start`` to before ``end``."""
        begin = max(start - 1, 0)
        data = (b"" if start else b"\n") + self.read(begin, min(end + TIME_LENGTH + 1, self.size))
        first = begin if start else -1  # offset of the data's first byte
        for found in _RECORD_START.finditer(data):
            if (offset := first + found.start() + 1) < end:
                yield offset, found[1]


def first_records(pieces: Iterable[bytes], start: int, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield offset and time of the first record at or after each of the offsets, which rise; each record once.

    ``pieces`` are whole lines and begin at ``start``; that is the beginning of a line, or before the first of the offsets.
    """
    wanted = iter(offsets)
    offset = next(wanted, None)
    at = start
    for piece in pieces:
        while offset is not None and offset < at + len(piece):
            found = _LINE_WITH_TIME.search(piece, max(offset - at, 0))
            if found is None:
                break
            place = at + found.start()
            yield place, found[1]
            offset = next((later for later in wanted if later > place), None)
        if offset is None:
            return
        at += len(piece)


@contextmanager
def _open_inode(path: Path, inode: int) -> Iterator[int]:
    """Open the file that had this path when the merge began, even if it was rolled since."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        fd = -1
    if fd == -1 or os.fstat(fd).st_ino != inode:
        if fd != -1:
            os.close(fd)
        moved = next((p for p in path.parent.iterdir() if p.is_file() and p.stat().st_ino == inode), None)
        if moved is None:
            raise SourceChangedError(f"{path} was replaced while it was read; merge a copy of it")
        fd = os.open(moved, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
