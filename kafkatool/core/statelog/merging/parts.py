"""The parts that slices write: files of their own, or places in the result itself, known before anything is read.

Where nothing is filtered a slice is as long as its parts of the logs, so it can be written where it belongs at once; a
second copy of the whole result would cost a quarter of the merge. A slice that turns out longer (lines of its
neighbour's time) or shorter is noticed by its size, and the places are put right at the end.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

MOVE_BYTES = 1 << 20


class Part(NamedTuple):
    """One slice's text: ``size`` bytes at ``offset`` of a file."""

    path: Path
    offset: int
    size: int


class SlotTooSmallError(Exception):
    """A slice is longer than its place in the result; it must be written to a file of its own."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Places in the file ``path``: slice k is expected to fill ``offsets[k]`` to ``offsets[k + 1]``."""

    path: Path
    offsets: tuple[int, ...]

    def fits(self, index: int, part: Part) -> bool:
        """Tell if the part is where it must be if all others are too."""
        offset, end = self.offsets[index : index + 2]
        return part == Part(self.path, offset, end - offset)


class PartWriter:
    """Writes one part, as a context manager. A file of its own is made anew, a slot stays within its bounds."""

    def __init__(self, path: Path, slots: Slots | None, index: int) -> None:
        self._path = slots.path if slots else path
        self._fd = os.open(self._path, os.O_WRONLY | (0 if slots else os.O_CREAT | os.O_TRUNC), 0o600)
        self._offset = slots.offsets[index] if slots else 0
        self._limit = slots.offsets[index + 1] if slots else None
        self._at = self._offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def write(self, text: bytes) -> None:
        """Append text. OSError that names the file, SlotTooSmallError."""
        if self._limit is not None and self._at + len(text) > self._limit:
            raise SlotTooSmallError
        try:
            self._at += write_at(self._fd, text, self._at)
        except OSError as e:
            raise OSError(e.errno, e.strerror, str(self._path)) from e

    @property
    def part(self) -> Part:
        """Return what was written so far."""
        return Part(self._path, self._offset, self._at - self._offset)


def write_at(fd: int, text: bytes, offset: int) -> int:
    """Write all of text at an offset (a single call of the system may write less); return its length."""
    written = os.pwrite(fd, text, offset)
    while written < len(text):
        written += os.pwrite(fd, memoryview(text)[written:], offset + written)
    return written


def put_right(target: Path, parts: Sequence[Part]) -> None:
    """Make ``target`` the parts one after the other, some of which stand in it already, in this order. OSError.

    Parts that move towards the beginning go first, from the first to the last, then those that move towards the end,
    from the last to the first: so none is written over before it has moved.
    """
    fd = os.open(target, os.O_RDWR)
    try:
        moves: list[tuple[Part, int]] = []
        offset = 0
        for part in parts:
            moves.append((part, offset))
            offset += part.size
        inside = [(part, to) for part, to in moves if part.path == target]
        for part, to in inside:
            if to < part.offset:
                _move(fd, part, to)
        for part, to in reversed(inside):
            if to > part.offset:
                _move(fd, part, to)
        for part, to in moves:
            if part.path != target:
                _copy(part, fd, to)
        os.ftruncate(fd, offset)
    finally:
        os.close(fd)


def _move(fd: int, part: Part, to: int) -> None:
    steps = range(0, part.size, MOVE_BYTES)
    for step in steps if to < part.offset else reversed(steps):
        write_at(fd, os.pread(fd, min(MOVE_BYTES, part.size - step), part.offset + step), to + step)


def _copy(part: Part, fd: int, to: int) -> None:
    with part.path.open("rb") as file:
        file.seek(part.offset)
        left = part.size
        while left and (piece := file.read(min(MOVE_BYTES, left))):
            to += write_at(fd, piece, to)
            left -= len(piece)
