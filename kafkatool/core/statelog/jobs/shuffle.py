"""The shuffle between two rounds of tasks: data goes by bucket, through files in the directory that all tasks share.

A task writes one file, its data sorted by bucket, and returns where each bucket's batches begin; a task of the next
round reads its bucket from all those files. Nothing but these places passes through the driver (SCL-22X).
"""

import marshal
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kafkatool.core.statelog.jobs.carrier import Entry

BATCH = 4096
"""Entries that are written, and later read, at a time."""

_SIZE = struct.Struct("<q")


class ShuffleFile(NamedTuple):
    """The file that one task wrote: bucket and offset of each batch in it."""

    path: str
    buckets: "array[int]"
    offsets: "array[int]"


@dataclass(frozen=True, slots=True)
class Batches:
    """Where batches of entries begin: path and offset of each. The driver has one for each chunk and bucket."""

    paths: list[str] = field(default_factory=list)
    offsets: "array[int]" = field(default_factory=lambda: array("q"))


def write_file(path: Path, buckets: Mapping[int, Iterable[Entry]], *, batch: int = BATCH) -> ShuffleFile:
    """Write the entries of each bucket, in batches. OSError."""
    numbers, offsets = array("i"), array("q")
    with path.open("wb") as file:
        for bucket, entries in buckets.items():
            rest = iter(entries)
            while some := list(islice(rest, batch)):
                numbers.append(bucket)
                offsets.append(file.tell())
                data = marshal.dumps(some)
                file.write(_SIZE.pack(len(data)) + data)
    return ShuffleFile(str(path), numbers, offsets)


def batches_by_bucket(files: Iterable[ShuffleFile]) -> dict[int, Batches]:
    """Return where each bucket's batches are, in the order of the files."""
    found: dict[int, Batches] = {}
    for file in files:
        for bucket, offset in zip(file.buckets, file.offsets, strict=True):
            batches = found.get(bucket) or found.setdefault(bucket, Batches())
            batches.paths.append(file.path)
            batches.offsets.append(offset)
    return found


def read_batches(batches: Batches) -> Iterator[Entry]:
    """Yield the entries of these batches; one batch at a time is in memory. OSError."""
    for path, offset in zip(batches.paths, batches.offsets, strict=True):
        with open(path, "rb") as file:  # noqa: PTH123 -- thousands of times
            file.seek(offset)
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            yield from marshal.loads(file.read(size))  # from the file itself it would take ten times as long
