"""The first round of the analyses: observations are taken from chunks and brought together by partition.

Every chunk is read once: observations go to the bucket of their partition, lines per minute to a bucket of their own;
what is small (who was controller, how many lines each broker wrote) comes back to the driver. The second round
(``timeline``, ``report``) makes the history of each partition of a bucket. The driver holds sums and the best few,
never lines or facts (SCL-22X); cuts and buckets decide only who does what, so the answer is the same for any (SCL-8).
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from kafkatool.core.statelog.history.observations import Observation, drop_repeats
from kafkatool.core.statelog.history.overview import Overview, observe_chunk
from kafkatool.core.statelog.jobs.shuffle import (
    Batches,
    Entry,
    ShuffleFile,
    batches_by_bucket,
    read_batches,
    write_shuffle_file,
)
from kafkatool.core.statelog.jobs.tasks import Mapper, map_chunks
from kafkatool.core.statelog.lines.details import find_details
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.sources.chunks import (
    CHUNK_BYTES,
    Chunk,
    ChunkAccount,
    add_accounts,
    cut_chunks,
    first_lines,
    read_records,
)
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

MINUTES = -1
"""The bucket of lines per minute."""

MOST_BUCKETS = 256


@dataclass(frozen=True, slots=True)
class Logs:
    """Opened logs with the clock of each, and the directory for what is found in them."""

    sources: tuple[Source, ...]
    clocks: tuple[Clock | None, ...]
    directory: Path


@dataclass(frozen=True, slots=True)
class Gathered:
    """The end of round one: what was asked for, the overview, and where each bucket's observations are."""

    logs: Logs
    selection: Selection
    overview: Overview
    batches: dict[int, Batches]
    first_lines: tuple[int, ...]

    def buckets(self) -> list[tuple[int, Batches]]:
        """Return the buckets of partitions, in order."""
        return sorted((bucket, batches) for bucket, batches in self.batches.items() if bucket != MINUTES)


@dataclass(frozen=True, slots=True)
class _GatherTask:
    logs: Logs
    selection: Selection
    buckets: int

    def gather(self, chunk: Chunk) -> tuple[ShuffleFile, ChunkAccount, Overview]:
        """Observe one chunk."""
        account, overview = ChunkAccount(), Overview()
        minutes: Counter[bytes] = Counter()
        entries: dict[int, list[Entry]] = {}
        source, clock = self.logs.sources[chunk.source], self.logs.clocks[chunk.source]
        records = read_records(source, clock, chunk, ByShape(find_details), account)
        observed = observe_chunk(records, chunk.source, self.selection, overview, minutes)
        for topic, partition, o in drop_repeats(observed):
            bucket = zlib.crc32(f"{topic}-{partition}".encode("utf-8", "surrogateescape")) % self.buckets
            entries.setdefault(bucket, []).append((topic, partition, chunk.number, tuple(o)))
        entries[MINUTES] = [(minute.decode("latin-1"), number) for minute, number in minutes.items()]
        path = self.logs.directory / f"observations-{chunk.number:06d}"
        return write_shuffle_file(path, entries), account, overview


def gather(logs: Logs, selection: Selection, mapper: Mapper, files: int, *, chunk_bytes: int = CHUNK_BYTES) -> Gathered:
    """Run round one. Of the selection, topic and partitions are used; its times bound only the counts in the overview.

    SourceChangedError, SparkError, OSError.
    """
    chunks = cut_chunks(logs.sources, chunk_bytes)
    size = sum(chunk.end - chunk.start for chunk in chunks)
    task = _GatherTask(logs, selection, min(max(size // chunk_bytes, 1), MOST_BUCKETS))
    found = map_chunks(mapper, task.gather, chunks, chunk_bytes)
    overview = Overview(counts=add_accounts(chunks, [account for _, account, _ in found]), files=files)
    for _, _, part in found:
        overview.add(part)
    numbers = first_lines(logs.sources, chunks, [account.lines for _, account, _ in found])
    return Gathered(logs, selection, overview, batches_by_bucket(file for file, _, _ in found), tuple(numbers))


def partitions_of(batches: Batches, first_lines: Sequence[int]) -> Iterator[tuple[str, int, list[Observation]]]:
    """Yield the partitions of a bucket by name, each with all observations of it; lines are numbered in their file.

    Repeats are dropped again here: where chunks were cut must not show.
    """
    entries = sorted(read_batches(batches), key=lambda entry: (entry[0], entry[1], entry[3][1:3]))
    for (topic, partition), group in groupby(entries, key=itemgetter(0, 1)):
        in_chunks = ((Observation(*values), first_lines[chunk]) for _, _, chunk, values in group)
        observed = ((topic, partition, o._replace(line=o.line + first)) for o, first in in_chunks)
        yield topic, partition, [o for _, _, o in drop_repeats(observed)]
