"""The carrier for logs elsewhere: Spark's shuffle brings together what tasks find.

Notes to the driver go the same way, as one bucket more: asking for that bucket runs the first round, whose results the
shuffle keeps for the second; a worker that is lost is made up for by Spark, and nothing is counted twice. Data is sent
as ``marshal`` in large pieces, so Spark's cost is by piece and not by record.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, BinaryIO, Generic, NamedTuple, Self

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.jobs.carrier import Entry, Note, Reading, Result, Sorting
from kafkatool.core.statelog.jobs.tasks import grouped
from kafkatool.core.statelog.sources.chunks import CHUNK_BYTES, Chunk
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.spark.pyspark_private import by_number, disk_only
from kafkatool.core.statelog.there.files import RemoteExtent
from kafkatool.core.statelog.there.tasks import (
    EachTask,
    OrderTask,
    PartTask,
    ReadingTask,
    SamplingTask,
    is_entry,
    is_result,
    notes_of,
)
from kafkatool.core.statelog.there.workers import Workers

LOOK_BYTES = 64 * 1024
"""Looked through for a record at first, where there should be one: they are 200 bytes long, a response may be a megabyte."""


@dataclass(frozen=True, slots=True)
class There:
    """Carries jobs by Spark alone."""

    workers: Workers

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at the same time. Waits for Spark's start."""
        return self.workers.spark.parallelism

    def sample(self, sources: Sequence[Source], places: Sequence[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
        """Look there by jobs: by one, but where a record is longer than what is looked at. SparkError.

        What is packed is unpacked once, for all places in it. Looks that meet as they reach farther go on as one: a
        stretch without records may be nearly all of a log and hold most of the places.
        """
        packed: dict[int, list[int]] = {}
        looks = []
        for source, offset in places:
            if sources[source].whole:
                packed.setdefault(source, []).append(offset)
            else:
                looks.append(_Look(source, max(offset - 1, 0), offset + LOOK_BYTES, (offset,)))
        looks += (_Look(source, 0, sources[source].size, tuple(offsets)) for source, offsets in packed.items())
        found = []
        while looks:
            seen = self._look(sources, looks)
            found += [(looks[number].source, offset, time) for number, offset, time in seen]
            last = {number: offset for number, offset, _ in seen}  # of each look the farthest: they come in order
            vain = [look.behind(last.get(number, -1)) for number, look in enumerate(looks)]
            looks = _farther(look for look in vain if look.offsets and look.end < sources[look.source].size)
        return found

    def _look(self, sources: Sequence[Source], looks: Sequence["_Look"]) -> list[tuple[int, int, bytes]]:
        """Return number of the look, offset and time of what is found."""
        chunks = [
            Chunk(number, look.source, look.start, min(look.end, sources[look.source].size))
            for number, look in enumerate(looks)
        ]
        task = SamplingTask([look.offsets for look in looks])
        return self.workers.run(task.run, _groups(sources, chunks, CHUNK_BYTES))

    def scatter(
        self,
        sources: Sequence[Source],
        chunks: Sequence[Chunk],
        reading: "Reading[Note]",
        *,
        buckets: int,
        chunk_bytes: int,
    ) -> "_Scattered[Note]":
        """Run a first round. SparkError, and any KafkatoolError of a task."""
        groups = _groups(sources, chunks, chunk_bytes)
        task = ReadingTask(reading, buckets)

        def first_round(context: Any) -> tuple[Any, list[Any]]:
            found = self.workers.frames(context, groups).mapPartitions(task.run)
            shuffled = by_number(context, found, buckets + 1)
            return shuffled, context.runJob(shuffled, notes_of, [buckets])

        shuffled, notes = self.workers.spark.with_context(first_round, tasks=len(groups) + 1)
        for _, note, _ in notes:
            if isinstance(note, KafkatoolError):
                raise note
        filled = frozenset(bucket for *_, own in notes for bucket in own)
        told = [note for _, note, _ in sorted(notes, key=itemgetter(0))]
        return _Scattered(self.workers, shuffled, buckets, told, filled)


class _Look(NamedTuple):
    """Bytes of a source to be looked through for the first records at or after offsets."""

    source: int
    start: int
    end: int
    offsets: tuple[int, ...]

    def behind(self, record: int) -> Self:
        """Return what is left of it when that is the last record found: the offsets behind it."""
        offsets = self.offsets[bisect_right(self.offsets, record) :]
        return self._replace(start=max(offsets[0] - 1, 0) if offsets else self.end, offsets=offsets)

    def farther(self) -> Self:
        """Return a longer one, for a record that begins beyond its end."""
        return self._replace(end=self.start + (self.end - self.start) * 16)


def _farther(looks: Iterable[_Look]) -> list[_Look]:
    """Return longer ones; those that meet are one, so that no byte is looked through twice."""
    longer: list[_Look] = []
    for look in sorted(look.farther() for look in looks):
        before = longer[-1] if longer else None
        if before is not None and before.source == look.source and look.start < before.end:
            offsets = before.offsets + look.offsets
            longer[-1] = before._replace(end=max(before.end, look.end), offsets=offsets)
        else:
            longer.append(look)
    return longer


def _groups(sources: Sequence[Source], chunks: Sequence[Chunk], chunk_bytes: int) -> list[list[str]]:
    """Return the requests for the chunks, in groups for a task each."""
    return [
        [request for chunk in group for request in _requests(sources[chunk.source], chunk)]
        for group in grouped(chunks, chunk_bytes)
    ]


def _requests(source: Source, chunk: Chunk) -> Iterator[str]:
    """Yield the requests for a chunk: of each extent that it reaches into."""
    before = 0
    for number, extent in enumerate(source.extents):
        length = extent.end - extent.start
        start, end = max(chunk.start - before, 0), min(chunk.end - before, length)
        if start < end:
            assert isinstance(extent, RemoteExtent), "opened by the other carrier"
            yield from extent.requests(chunk, number, extent.start + start, extent.start + end)
        before += length


@dataclass(frozen=True, slots=True)
class RemoteParts:
    """A result as an RDD of pieces of text, in order. ``filled`` are the partitions that hold any."""

    workers: Workers
    pieces: Any
    filled: frozenset[int]

    def write_to(self, output: BinaryIO) -> None:
        """Write all of it through the driver, which holds a part at a time. SparkError, OSError."""
        iterator = self.workers.spark.with_context(lambda _: self.pieces.toLocalIterator(prefetchPartitions=True))
        while (piece := self.workers.spark.with_context(lambda _: next(iterator, None))) is not None:
            output.write(piece)


@dataclass(frozen=True, slots=True)
class _Scattered(Generic[Note]):
    workers: Workers
    shuffled: Any
    buckets: int
    notes: list[Note]
    filled: frozenset[int]

    def each(self, function: Callable[[Iterator[Entry]], Result], buckets: Sequence[int] | None = None) -> list[Result]:
        chosen = list(range(self.buckets) if buckets is None else buckets)
        return self.workers.spark.with_context(
            lambda context: context.runJob(self.shuffled, EachTask(function).run, chosen), tasks=len(chosen)
        )

    def parts(self, function: Callable[[Iterator[Entry]], Iterator[bytes]]) -> RemoteParts:
        task = PartTask(self.buckets, function)
        pieces = self.workers.spark.with_context(lambda _: self.shuffled.mapPartitionsWithIndex(task.run))
        return RemoteParts(self.workers, pieces, self.filled)

    def in_order(self, function: Sorting[Result], most: int) -> tuple[Callable[[], Iterator[Entry]], list[Result]]:
        task = OrderTask(most, function)

        def second_round(context: Any) -> tuple[Any, list[Result]]:
            made = self.shuffled.mapPartitionsWithIndex(task.run).persist(disk_only())
            results = made.filter(is_result).values().collect()
            return made.filter(is_entry).sortByKey(numPartitions=most), results

        ordered, results = self.workers.spark.with_context(second_round, tasks=most)

        def entries() -> Iterator[Entry]:
            spark = self.workers.spark
            iterator = spark.with_context(lambda _: ordered.toLocalIterator(prefetchPartitions=True))
            while (entry := spark.with_context(lambda _: next(iterator, None))) is not None:
                yield entry

        return entries, results
