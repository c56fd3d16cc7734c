"""The shuffle between two rounds of tasks: data goes by bucket, through files in the directory that all tasks share.

A task writes one file, its data sorted by bucket, and returns where each bucket's batches begin; a task of the next
round reads its bucket from all those files. Nothing but these places passes through the driver (SCL-22X).
"""

import marshal
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkatool.core.statelog.jobs.carrier import Entry

Batches = list[tuple[str, int]]
"""Where batches of entries begin: path and offset of each."""

BATCH = 4096
"""Entries that are written, and later read, at a time."""

_SIZE = struct.Struct("<q")


class ShuffleFile(NamedTuple):
    """The file that one task wrote: (bucket, offset) of each batch in it."""

    path: str
    batches: tuple[tuple[int, int], ...]


def write_file(path: Path, buckets: Mapping[int, Sequence[Entry]]) -> ShuffleFile:
    """Write the entries of each bucket, in batches. OSError."""
    batches = []
    with path.open("wb") as file:
        for bucket, entries in buckets.items():
            for start in range(0, len(entries), BATCH):
                batches.append((bucket, file.tell()))
                batch = marshal.dumps(list(entries[start : start + BATCH]))
                file.write(_SIZE.pack(len(batch)) + batch)
    return ShuffleFile(str(path), tuple(batches))


def batches_by_bucket(files: Iterable[ShuffleFile]) -> dict[int, Batches]:
    """Return where each bucket's batches are, in the order of the files."""
    found: dict[int, Batches] = {}
    for file in files:
        for bucket, offset in file.batches:
            found.setdefault(bucket, []).append((file.path, offset))
    return found


def read_batches(batches: Batches) -> Iterator[Entry]:
    """Yield the entries of these batches; one batch at a time is in memory. OSError."""
    for path, offset in batches:
        with open(path, "rb") as file:  # noqa: PTH123 -- thousands of times
            file.seek(offset)
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            yield from marshal.loads(file.read(size))  # from the file itself it would take ten times as long
