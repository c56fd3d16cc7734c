"""Moves what the workers found to where it is needed: by bucket, through files in the directory that all share.

A task writes one file, its findings sorted by bucket, and tells where each bucket begins; a task of the next round
reads its bucket from all those files. Nothing but these places passes through the driver (SCL-22X).
"""

import marshal
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Finding = tuple[Any, ...]
"""What ``marshal`` takes: tuples, lists, bytes, texts, numbers, None."""

BATCH = 4096
"""Findings that are written, and later read, at a time."""


_SIZE = struct.Struct("<q")


class Shelf(NamedTuple):
    """The file of one task: where each bucket stands in it, as (bucket, offset) pairs of ``BATCH`` findings each."""

    path: str
    places: tuple[tuple[int, int], ...]


def shelve(path: Path, buckets: Mapping[int, Sequence[Finding]]) -> Shelf:
    """Writes the findings. OSError."""
    places = []
    with path.open("wb") as file:
        for bucket, findings in buckets.items():
            for start in range(0, len(findings), BATCH):
                places.append((bucket, file.tell()))
                batch = marshal.dumps(list(findings[start : start + BATCH]))
                file.write(_SIZE.pack(len(batch)) + batch)
    return Shelf(str(path), tuple(places))


def places_by_bucket(shelves: Iterable[Shelf]) -> dict[int, list[tuple[str, int]]]:
    """Where each bucket's findings are, in the order of the shelves."""
    found: dict[int, list[tuple[str, int]]] = {}
    for shelf in shelves:
        for bucket, offset in shelf.places:
            found.setdefault(bucket, []).append((shelf.path, offset))
    return found


def take(places: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """The findings at these places. OSError."""
    for path, offset in places:
        with open(path, "rb") as file:  # noqa: PTH123 -- thousands of times
            file.seek(offset)
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            yield from marshal.loads(file.read(size))  # from the file itself it would take ten times as long
