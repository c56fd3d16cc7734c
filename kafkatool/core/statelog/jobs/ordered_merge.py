"""The merge where ``merge`` does not serve: rows instead of text, and order by UTC where clocks have zones.

Two rounds of tasks. The first writes each chunk's selected records to the bucket of the time range they belong to, with
their place in the total order; the second sorts one range and writes one part of the result. Cut times come from
samples and decide only how the work is shared out: the bytes are the same for any (SCL-8). A worker holds a chunk or a
range, the driver neither (SCL-22X).
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import orjson

from kafkatool.core.statelog.jobs.merge import Merged
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
from kafkatool.core.statelog.merging.rows import rows
from kafkatool.core.statelog.sources.chunks import (
    CHUNK_BYTES,
    Chunk,
    ChunkAccount,
    Record,
    add_accounts,
    cut_chunks,
    first_lines,
    read_records,
)
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

SAMPLES_PER_CHUNK = 16
"""Times looked up in each chunk to find where to cut: each is a read of 8 KB on the driver."""

_order = itemgetter(0, 1, 2)
_written = itemgetter(3)
"""Of an entry (time, source, offset, what is written): its place in the total order, and the bytes."""


@dataclass(frozen=True, slots=True)
class _MergeTask:
    """All that a task of any round needs; small."""

    sources: tuple[Source, ...]
    clocks: tuple[Clock | None, ...]
    selection: Selection
    directory: Path
    as_rows: bool
    show_source: bool
    cuts: tuple[bytes, ...] = ()
    first_lines: tuple[int, ...] = ()

    def count_lines(self, chunk: Chunk) -> int:
        """Return the number of lines of a chunk."""
        data = self.sources[chunk.source].read(chunk.start, chunk.end)
        return data.count(b"\n") + (not data.endswith(b"\n"))

    def collect(self, chunk: Chunk) -> tuple[ShuffleFile, ChunkAccount, int]:
        """Write a chunk's records by time range; the last value returned is the number of rows."""
        account = ChunkAccount()
        counts = account.counts
        verdict = self.selection.filter()
        source = self.sources[chunk.source]
        ranges: dict[int, list[Entry]] = {}
        total_rows = 0
        for record in read_records(source, self.clocks[chunk.source], chunk, ByShape(find_details), account):
            if verdict and (reason := verdict(record.time, record.line, record.details.shape)):
                counts.drop(reason)
                continue
            counts.written += 1
            counts.lines_written += 1 + (len(record.tail) if self.selection.continuation else 0)
            text, number = self._render(record, chunk, source.label)
            total_rows += number
            ranges.setdefault(bisect_right(self.cuts, record.time), []).append(
                (record.time, chunk.source, record.offset, text)
            )
        file = write_shuffle_file(self.directory / f"records-{chunk.number:06d}", ranges)
        return file, account, total_rows

    def write(self, part: tuple[int, Batches]) -> Path:
        """Sort a range and write it."""
        number, batches = part
        path = self.directory / f"part-{number:06d}"
        entries = sorted(read_batches(batches), key=_order)
        with path.open("wb") as file:
            file.writelines(map(_written, entries))
        return path

    def _render(self, record: Record, chunk: Chunk, label: str) -> tuple[bytes, int]:
        if self.as_rows:
            line = self.first_lines[chunk.number] + record.line_number
            utc = self.clocks[chunk.source] is not None
            continuation = self.selection.continuation
            found = [
                orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
                for row in rows(record, label, line, utc=utc, continuation=continuation)
            ]
            return b"".join(found), len(found)
        tail = record.tail if self.selection.continuation else ()
        prefix = os.fsencode(f"{label}\t") if self.show_source else b""
        return prefix + b"\n".join((record.line, *tail)) + b"\n", 0


def merge_ordered(
    sources: Sequence[Source],
    clocks: Sequence[Clock | None],
    selection: Selection,
    mapper: Mapper,
    directory: Path,
    *,
    as_rows: bool,
    show_source: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> tuple[Merged, int]:
    """Merge the sources into parts in ``directory``, as text or as JSON rows; also return the number of rows.

    SourceChangedError, SparkError, OSError.
    """
    chunks = cut_chunks(sources, chunk_bytes)
    cuts = tuple(_cuts(sources, clocks, chunks, sum(source.size for source in sources) // chunk_bytes))
    task = _MergeTask(tuple(sources), tuple(clocks), selection, directory, as_rows, show_source, cuts)
    if as_rows:
        lines = map_chunks(mapper, task.count_lines, chunks, chunk_bytes)
        task = replace(task, first_lines=tuple(first_lines(sources, chunks, lines)))
    collected = map_chunks(mapper, task.collect, chunks, chunk_bytes)
    ranges = sorted(batches_by_bucket(file for file, _, _ in collected).items())
    parts = mapper.map(task.write, ranges)
    counts = add_accounts(chunks, [account for _, account, _ in collected])
    return Merged(tuple(parts), counts), sum(number for _, _, number in collected)


def _cuts(
    sources: Sequence[Source], clocks: Sequence[Clock | None], chunks: Sequence[Chunk], number: int
) -> list[bytes]:
    """Return times that cut the records into about ``number`` ranges more than one."""
    if number < 1:
        return []
    times = sorted(time for chunk in chunks for time in _samples(sources[chunk.source], clocks[chunk.source], chunk))
    return sorted({times[len(times) * k // (number + 1)] for k in range(1, number + 1)}) if times else []


def _samples(source: Source, clock: Clock | None, chunk: Chunk) -> Iterator[bytes]:
    distance = max((chunk.end - chunk.start) // SAMPLES_PER_CHUNK, 1)
    for offset in range(chunk.start, chunk.end, distance):
        place, time = source.next_record(offset)
        if time is not None:
            yield clock.utc(time, place) if clock else time
