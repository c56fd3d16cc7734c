"""The survey of files elsewhere: what tasks tell the driver of each, so that it can plan as if the file lay here."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from kafkatool.core.statelog.sources.spool import BROKEN_GZIP
from kafkatool.core.statelog.there.ranges import FIRST_BYTES, by_header, cut, unpack, unpack_sound

EDGE_BYTES = 72 * 1024
"""Of a file's beginning and end; what the driver looks at is within 64 KB of them."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A file's size, its edges (packed), and whether its gzip data is sound; ``packed``: the file's size, if it is gzip."""

    size: int
    head: bytes
    tail: bytes
    complete: bool = True
    packed: int | None = None

    def read(self, start: int, end: int) -> bytes | None:
        """Return those bytes if an edge has them."""
        edge = min(self.size, EDGE_BYTES)
        if end <= edge:
            return zlib.decompress(self.head)[start:end]
        if start >= (first := self.size - edge):
            return zlib.decompress(self.tail)[start - first : end - first]
        return None


def edges_of(frames: Iterator[bytes]) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Yield for each header the first bytes of its range, and the range packed."""
    for header, pieces in by_header(frames):
        data = b"".join(pieces)
        yield header.decode(), (data[:FIRST_BYTES], zlib.compress(data, 1))


def unpacked(frames: Iterator[bytes]) -> Iterator[tuple[str, Survey]]:
    """Yield for each header the survey of the gzip file under it, but for its packed size."""
    for header, pieces in by_header(frames):
        size, head, tail, complete = 0, b"", b"", True
        try:
            for piece in unpack(pieces):
                size += len(piece)
                if len(head) < EDGE_BYTES:
                    head = (head + piece)[:EDGE_BYTES]
                tail = (tail + piece)[-EDGE_BYTES:]
        except BROKEN_GZIP:
            complete = False
        yield header.decode(), Survey(size, zlib.compress(head, 1), zlib.compress(tail, 1), complete)


@dataclass(frozen=True, slots=True)
class CutTask:
    """Unpacks a gzip file for a range of what it holds."""

    start: int
    end: int

    def cut(self, frames: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the range."""
        for _, pieces in by_header(frames):
            yield b"".join(cut(unpack_sound(pieces), self.start, self.end))
