"""The shuffle between two rounds of tasks: data goes by bucket, through files in the directory that all tasks share.

A task writes one file, and returns where each bucket's batches begin in it; a task of the next round
reads its bucket from all those files. Nothing but these places passes through the driver (SCL-22X).
"""

import marshal
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kafkatool.core.statelog.jobs.carrier import Entry

BATCH = 4096
"""Entries that are written, and later read, at a time."""

_SIZE = struct.Struct("<q")


class ShuffleFile(NamedTuple):
    """The file that one task wrote: bucket and offset of each batch in it. Files of a round differ in their numbers."""

    stem: str
    number: int
    buckets: "array[int]"
    offsets: "array[int]"


@dataclass(slots=True)
class Batches:
    """Where batches of entries begin: file and offset of each. The driver has one for each chunk and bucket.

    All go through the driver to the next round's tasks, and are in its JVM meanwhile: so files are numbers.
    """

    stem: str = ""
    files: "array[int]" = field(default_factory=lambda: array("i"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))


def write_file(
    directory: Path, kind: str, number: int, found: Iterable[tuple[int, Iterable[Entry]]], *, batch: int = BATCH
) -> ShuffleFile:
    """Write buckets' entries, in batches, into the file of that kind and number. OSError."""
    stem, numbers, offsets = f"{directory}/{kind}-", array("i"), array("q")
    with open(_path(stem, number), "wb") as file:  # noqa: PTH123 -- as it is read
        for bucket, entries in found:
            rest = iter(entries)
            while some := list(islice(rest, batch)):
                numbers.append(bucket)
                offsets.append(file.tell())
                data = marshal.dumps(some)
                file.write(_SIZE.pack(len(data)) + data)
    return ShuffleFile(stem, number, numbers, offsets)


def batches_by_bucket(files: Iterable[ShuffleFile]) -> dict[int, Batches]:
    """Return where each bucket's batches are, in the order of the files."""
    found: dict[int, Batches] = {}
    for file in files:
        for bucket, offset in zip(file.buckets, file.offsets, strict=True):
            batches = found.get(bucket) or found.setdefault(bucket, Batches(file.stem))
            batches.files.append(file.number)
            batches.offsets.append(offset)
    return found


def read_batches(batches: Batches) -> Iterator[Entry]:
    """Yield the entries of these batches; one batch at a time is in memory. OSError."""
    for number, offset in zip(batches.files, batches.offsets, strict=True):
        with open(_path(batches.stem, number), "rb") as file:  # noqa: PTH123 -- thousands of times
            file.seek(offset)
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            yield from marshal.loads(file.read(size))  # from the file itself it would take ten times as long


def _path(stem: str, number: int) -> str:
    return f"{stem}{number:06d}"
