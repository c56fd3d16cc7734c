"""The carrier for logs that lie here: files that all tasks can read, and files between the rounds.

Between the rounds nothing passes through the driver but places in files (SCL-22X), and nothing through Spark's JVM: that
is what makes it fast.
"""

import heapq
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Generic

from kafkatool.core.statelog.jobs import shuffle
from kafkatool.core.statelog.jobs.carrier import Entry, Note, Reading, Result, Sorting
from kafkatool.core.statelog.jobs.tasks import Mapper, by_bucket, grouped
from kafkatool.core.statelog.sources.blocks import read_blocks
from kafkatool.core.statelog.sources.chunks import Chunk
from kafkatool.core.statelog.sources.source import Source

COPY_BYTES = 1 << 20

ORDERED_BATCH = 64
"""Entries of a result that are read at a time: of each bucket, by the driver, as many are in memory together."""


class PartFiles(tuple[Path, ...]):
    """Files that are, one after the other, a result."""

    __slots__ = ()

    def write_to(self, output: BinaryIO) -> None:
        """Copy them to ``output``. OSError."""
        for path in self:
            with path.open("rb") as part:
                shutil.copyfileobj(part, output, COPY_BYTES)


@dataclass(frozen=True, slots=True)
class Here:
    """Carries jobs by a mapper whose tasks all see the logs and ``directory``."""

    mapper: Mapper
    directory: Path

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at the same time."""
        return self.mapper.parallelism

    def sample(self, sources: Sequence[Source], places: Sequence[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
        """Read what stands there. SourceChangedError, OSError.

        A stretch without records may be nearly all of a log and hold most of the places: it is searched once.
        """
        found = []
        at, record, time = -1, -1, None  # what was found last; of a log that has no more, its end and no time
        for source, offset in places:
            if source != at or offset > record:
                at = source
                record, time = sources[source].next_record(offset)
            if time is not None:
                found.append((source, record, time))
        return found

    def scatter(
        self,
        sources: Sequence[Source],
        chunks: Sequence[Chunk],
        reading: "Reading[Note]",
        *,
        buckets: int,
        chunk_bytes: int,
    ) -> "_Scattered[Note]":
        """Run a first round. SourceChangedError, SparkError, OSError."""
        directory = Path(tempfile.mkdtemp(prefix="round-", dir=self.directory))
        task = _ReadingTask(tuple(sources), directory, reading)
        found = [done for group in self.mapper.map(task.run, grouped(chunks, chunk_bytes)) for done in group]
        batches = shuffle.batches_by_bucket(file for file, _ in found)
        return _Scattered(self.mapper, directory, batches, [note for _, note in found])


@dataclass(frozen=True, slots=True)
class _ReadingTask(Generic[Note]):
    sources: tuple[Source, ...]
    directory: Path
    reading: "Reading[Note]"

    def run(self, chunks: Sequence[Chunk]) -> list[tuple[shuffle.ShuffleFile, Note]]:
        done = []
        for chunk in chunks:
            notes: list[Note] = []
            found = by_bucket(self.reading(chunk, _blocks(self.sources[chunk.source], chunk)), notes)
            done.append((shuffle.write_file(self.directory, "chunk", chunk.number, found), notes[0]))
        return done


def _blocks(source: Source, chunk: Chunk) -> Iterable[bytes]:
    """Yield the chunk in pieces that stay in the processor's cache, if they can be had one by one."""
    if source.whole:
        return [source.read(chunk.start, chunk.end)]
    return (data for _, data in read_blocks(source, chunk.start, chunk.end))


@dataclass(frozen=True, slots=True)
class _Scattered(Generic[Note]):
    mapper: Mapper
    directory: Path
    batches: dict[int, shuffle.Batches]
    notes: list[Note]

    def each(self, function: Callable[[Iterator[Entry]], Result], buckets: Sequence[int] | None = None) -> list[Result]:
        chosen = sorted(self.batches) if buckets is None else buckets
        return self.mapper.map(
            _EachTask(function).run, [self.batches.get(bucket, shuffle.Batches()) for bucket in chosen]
        )

    def parts(self, function: Callable[[Iterator[Entry]], Iterator[bytes]]) -> PartFiles:
        task = _PartTask(self.directory, function)
        return PartFiles(self.mapper.map(task.run, sorted(self.batches.items())))

    def in_order(self, function: Sorting[Result], most: int) -> tuple[Callable[[], Iterator[Entry]], list[Result]]:
        task = _OrderTask(self.directory, function)
        done = self.mapper.map(task.run, sorted((b, found) for b, found in self.batches.items() if b < most))
        files = [file for file, _ in done]

        def entries() -> Iterator[Entry]:
            streams = [
                shuffle.read_batches(found) for file in files for found in shuffle.batches_by_bucket([file]).values()
            ]
            yield from heapq.merge(*streams, key=itemgetter(0))

        return entries, [result for _, result in done]


@dataclass(frozen=True, slots=True)
class _EachTask(Generic[Result]):
    function: Callable[[Iterator[Entry]], Result]

    def run(self, batches: shuffle.Batches) -> Result:
        return self.function(shuffle.read_batches(batches))


@dataclass(frozen=True, slots=True)
class _PartTask:
    directory: Path
    function: Callable[[Iterator[Entry]], Iterator[bytes]]

    def run(self, bucket: tuple[int, shuffle.Batches]) -> Path:
        path = self.directory / f"part-{bucket[0]:06d}"
        with path.open("wb") as file:
            file.writelines(self.function(shuffle.read_batches(bucket[1])))
        return path


@dataclass(frozen=True, slots=True)
class _OrderTask(Generic[Result]):
    directory: Path
    function: Sorting[Result]

    def run(self, bucket: tuple[int, shuffle.Batches]) -> tuple[shuffle.ShuffleFile, Result]:
        results: list[Result] = []

        def entries() -> Iterator[Entry]:
            results.append((yield from self.function(shuffle.read_batches(bucket[1]))))

        found = [(0, entries())]
        return shuffle.write_file(self.directory, "ordered", bucket[0], found, batch=ORDERED_BATCH), results[0]
