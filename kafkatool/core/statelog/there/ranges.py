"""Ranges of files, read by Spark's JVMs and given to Python tasks as bytes.

The driver plans which ranges make a chunk; a task gets them as frames (see ``RangeReader.java``), one after the other, so
neither side holds more than a frame of a large file at a time.
"""

import io
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple, Self

from kafkatool.core.statelog.sources.spool import BROKEN_GZIP, unpacked_pieces

FRAME_BYTES = 4 * 1024 * 1024
"""Read of a file at a time."""


FIRST_BYTES = 256
"""Of a log's beginning, by which another that was given its name is told from it: a record with its time."""


class Frame(NamedTuple):
    """A header (what is asked for, as the driver wrote it) and bytes."""

    header: bytes
    data: bytes


class Listed(NamedTuple):
    """A file as it was when it was listed; ``first`` is the checksum of its first bytes, once it is known."""

    uri: str
    size: int
    modified: int
    first: int | None = None

    def with_first(self, data: bytes) -> Self:
        """Return it with the checksum, from what its beginning holds."""
        return self._replace(first=zlib.crc32(data[:FIRST_BYTES]))


def request(header: str, file: Listed, start: int, end: int) -> str:
    """Return the request for a range."""
    first = "" if file.first is None else file.first
    return f"{header}\t{start}\t{end - start}\t{file.size}\t{file.modified}\t{first}\t{file.uri}"


def requests(header: str, file: Listed, start: int, end: int) -> Iterator[str]:
    """Yield the requests for a range, each of a frame at most; one also for an empty range."""
    for at in range(start, max(end, start + 1), FRAME_BYTES):
        yield request(header, file, at, min(at + FRAME_BYTES, end))


def frame_of(data: bytes) -> Frame:
    """Take a frame apart."""
    header, _, rest = data.partition(b"\n")
    return Frame(header, rest)


def by_header(frames: Iterable[bytes]) -> Iterator[tuple[bytes, Iterator[bytes]]]:
    """Yield each header with the pieces of its range, which must be used up before the next one is asked for."""
    for header, group in groupby(map(frame_of, frames), key=lambda frame: frame.header):
        yield header, (frame.data for frame in group)


def unpack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what a gzip file holds; of damaged data all that can be unpacked, and then one of BROKEN_GZIP."""
    return unpacked_pieces(io.BufferedReader(_Pieces(pieces)))


def unpack_sound(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what can be unpacked, and end there."""
    try:
        yield from unpack(pieces)
    except BROKEN_GZIP:
        return  # the survey of the file has told the driver


def cut(pieces: Iterable[bytes], start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from ``start`` to ``end`` of what the pieces make together."""
    at = 0
    for piece in pieces:
        if at >= end:
            return
        wanted = piece[max(start - at, 0) : end - at]
        if wanted:
            yield wanted
        at += len(piece)


def whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces that end with a line's end, but for the last."""
    rest: list[bytes] = []
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            rest.append(piece[:end])
            yield b"".join(rest)
            rest = [piece[end:]] if end < len(piece) else []
        else:
            rest.append(piece)
    if rest:
        yield b"".join(rest)


class _Pieces(io.RawIOBase):
    """A stream of pieces, as a file to be read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
