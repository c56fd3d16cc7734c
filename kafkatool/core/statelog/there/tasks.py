"""What workers run for the carrier of jobs elsewhere; nothing here is for the driver, nor knows Spark."""

import gc
import marshal
import pickle
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.jobs.carrier import Entry, Note, Reading, Result, Sorting
from kafkatool.core.statelog.jobs.tasks import by_bucket
from kafkatool.core.statelog.sources.chunks import Chunk
from kafkatool.core.statelog.sources.source import first_records
from kafkatool.core.statelog.there.ranges import by_header, cut, unpack_sound, whole_lines

BATCH = 4096
"""Entries sent at a time."""

_BUCKET = struct.Struct("!q")
"""A bucket's number, as Spark's JVM reads it."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Have nobody look for cycles meanwhile: there are none in findings, of which there are millions."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class ReadingTask(Generic[Note]):
    reading: "Reading[Note]"
    buckets: int

    def run(self, frames: Iterator[bytes]) -> Iterator[bytes]:
        """Yield in turn a bucket's number and entries for it; in the last bucket the note of each chunk."""
        with undisturbed():
            for bucket, data in self._read(frames):
                yield _BUCKET.pack(bucket)
                yield data

    def _read(self, frames: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        for chunk, pieces in _chunks(frames):
            notes: list[Note] = []
            filled = set()
            try:
                for bucket, entries in by_bucket(self.reading(chunk, pieces), notes):
                    for start in range(0, len(entries), BATCH):
                        yield bucket, marshal.dumps(list(entries[start : start + BATCH]))
                        filled.add(bucket)
            except KafkatoolError as e:
                yield self.buckets, pickle.dumps((chunk.number, e, ()))
                return
            yield self.buckets, pickle.dumps((chunk.number, notes[0], array("i", filled)))


@dataclass(frozen=True, slots=True)
class SamplingTask:
    """Looks for the first records at or after the offsets given for each chunk, by its number."""

    offsets: Sequence[Sequence[int]]

    def run(self, frames: Iterator[bytes]) -> Iterator[tuple[int, int, bytes]]:
        """Yield chunk, offset and time of each."""
        for chunk, pieces in _chunks(frames):
            for offset, time in first_records(pieces, chunk.start, self.offsets[chunk.number]):
                yield chunk.number, offset, time


@dataclass(frozen=True, slots=True)
class EachTask(Generic[Result]):
    function: Callable[[Iterator[Entry]], Result]

    def run(self, found: Iterator[bytes]) -> list[Result]:
        with undisturbed():
            return [self.function(_entries(found))]


@dataclass(frozen=True, slots=True)
class PartTask:
    buckets: int
    function: Callable[[Iterator[Entry]], Iterator[bytes]]

    def run(self, bucket: int, found: Iterator[bytes]) -> Iterator[bytes]:
        with undisturbed():
            yield from self.function(_entries(found)) if bucket < self.buckets else ()


@dataclass(frozen=True, slots=True)
class OrderTask(Generic[Result]):
    most: int
    function: Sorting[Result]

    def run(self, bucket: int, found: Iterator[bytes]) -> Iterator[tuple[Any, Any]]:
        """Yield the entries, and the result under no key."""
        if bucket < self.most:
            with undisturbed():
                result = yield from self.function(_entries(found))
            yield None, result


def is_result(keyed: tuple[Any, Any]) -> bool:
    return keyed[0] is None


def is_entry(keyed: tuple[Any, Any]) -> bool:
    return keyed[0] is not None


def _chunks(frames: Iterator[bytes]) -> Iterator[tuple[Chunk, Iterator[bytes]]]:
    """Yield the chunks asked for, each in pieces of whole lines."""
    for numbers, parts in groupby(by_header(frames), key=lambda part: part[0].split(b",")[:4]):
        yield Chunk(*map(int, numbers)), whole_lines(_pieces(parts))


def _pieces(parts: Iterable[tuple[bytes, Iterator[bytes]]]) -> Iterator[bytes]:
    for header, pieces in parts:
        place = header.split(b",")[5]
        if place == b"-":
            yield from pieces
        else:
            start, end = map(int, place.split(b"-"))
            yield from cut(unpack_sound(pieces), start, end)


def notes_of(found: Iterator[bytes]) -> list[tuple[int, Any, "array[int]"]]:
    """Return chunk, note (or error), and the buckets that something of the chunk went to."""
    return [pickle.loads(note) for note in found]


def _entries(found: Iterator[bytes]) -> Iterator[Entry]:
    for batch in found:
        yield from marshal.loads(batch)


def without_end(piece: bytes) -> bytes:
    """Return lines without the last one's end, which Spark's writer adds."""
    return piece[:-1]
