"""The start of a job's tasks: the mapper that the caller brings, and small chunks put in one task."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

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
