"""The start of a job's tasks: the mapper that the caller brings, small chunks put in one task, and what a reading finds."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol, TypeVar

from kafkatool.core.statelog.jobs.carrier import Buckets, Entry, Note
from kafkatool.core.statelog.sources.chunks import Chunk

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mapper(Protocol):
    """Runs a function on many items: Spark, or in a test the process itself."""

    @property
    def parallelism(self) -> int:
        """Return how many items are worked on at the same time."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return ``function`` of each item, in the items' order."""


def by_bucket(found: Generator[Buckets, None, Note], notes: list[Note]) -> Iterator[tuple[int, Sequence[Entry]]]:
    """Yield bucket and entries as a reading finds them; at the end its note is added to ``notes``."""

    def given() -> Iterator[Buckets]:
        notes.append((yield from found))

    for buckets in given():
        yield from buckets.items()


def grouped(chunks: Sequence[Chunk], chunk_bytes: int) -> list[list[Chunk]]:
    """Return the chunks in groups for one task each; small ones (hourly files of a quiet cluster) go together."""
    groups: list[list[Chunk]] = []
    room = 0
    for chunk in chunks:
        size = chunk.end - chunk.start
        if not groups or room < size:
            groups.append([])
            room = chunk_bytes
        groups[-1].append(chunk)
        room -= size
    return groups
