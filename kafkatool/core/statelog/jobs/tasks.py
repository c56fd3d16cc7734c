"""The start of a job's tasks: the mapper that the caller brings, and small chunks put together in one task."""

from collections.abc import Callable, Sequence
from functools import partial
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


def map_chunks(
    mapper: Mapper, function: Callable[[Chunk], Result], chunks: Sequence[Chunk], chunk_bytes: int
) -> list[Result]:
    """Return ``function`` of each chunk; small ones (hourly files of a quiet cluster) go many to a task."""
    groups: list[list[Chunk]] = []
    room = 0
    for chunk in chunks:
        size = chunk.end - chunk.start
        if not groups or room < size:
            groups.append([])
            room = chunk_bytes
        groups[-1].append(chunk)
        room -= size
    return [result for results in mapper.map(partial(_apply, function), groups) for result in results]


def _apply(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [function(item) for item in items]
