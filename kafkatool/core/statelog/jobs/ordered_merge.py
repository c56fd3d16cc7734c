"""The merge where ``merge`` does not serve: rows instead of text, order by UTC where clocks have zones, logs elsewhere.

Two rounds of tasks. The first sends each chunk's selected records to the range of the total order that they belong to,
the second sorts one range and writes it. Cuts come from samples and decide only how the work is shared out: the bytes
are the same for any (SCL-8). A cut is a place in the total order, not just a time: a second with a million lines is
shared out like any other stretch. A worker holds a chunk or a range, the driver neither (SCL-22X).
"""

import os
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from kafkatool.core.statelog.jobs.carrier import Buckets, Carrier, Entry, Logs, Parts
from kafkatool.core.statelog.lines.details import Details, find_details
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.lines.shapes import ByShape, classify_like_kafka
from kafkatool.core.statelog.merging.rows import as_json, rows
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

SAMPLES_PER_CHUNK = 16
"""Places looked up in each chunk to find where to cut: each is a read of 8 KB on the driver."""

MOST_SAMPLES = 1024
"""Places looked up in all; but one in each chunk."""

PIECE_RECORDS = 1000
"""Records that are written at a time."""

Place = tuple[bytes, int, int]
"""A place in the total order: time, source, offset."""

_order = itemgetter(0, 1, 2)


@dataclass(frozen=True, slots=True)
class Ordered:
    """The result: the merged log or the rows, the account of every line, and how many rows there are."""

    parts: Parts
    counts: Counts
    rows: int


@dataclass(frozen=True, slots=True)
class _Collecting:
    """The first round: a chunk's records by range, as (time, source, offset, chunk, line, first line, its tail)."""

    clocks: tuple[Clock | None, ...]
    selection: Selection
    cuts: tuple[Place, ...]

    def collect(self, chunk: Chunk, blocks: Iterable[bytes]) -> Generator[Buckets, None, tuple[ChunkAccount, int]]:
        """Yield the entries; return the account of the chunk, and the number of rows that its records make."""
        account = ChunkAccount()
        counts = account.counts
        verdict = self.selection.filter()
        continuation = self.selection.continuation
        store = ByShape(_like_kafka if self.selection.kafka_compatible else find_details)
        ranges: dict[int, list[Entry]] = {}
        cuts, source, number = self.cuts, chunk.source, chunk.number
        total_rows = 0
        enough = chunk.start + CHUNK_BYTES
        for record in read_records(blocks, self.clocks[source], chunk.start, store, account):
            time, offset, line_number, line, details, tail = record
            if verdict and (reason := verdict(time, line, details.shape)):
                counts.drop(reason)
                continue
            if offset >= enough:
                yield ranges
                ranges, enough = {}, offset + CHUNK_BYTES
            counts.written += 1
            tail = tail if continuation else ()
            counts.lines_written += 1 + len(tail)
            total_rows += len(details.shape.spans) or 1
            entry = (time, source, offset, number, line_number, line, tail)
            ranges.setdefault(bisect_right(cuts, (time, source, offset)), []).append(entry)
        yield ranges
        return account, total_rows


@dataclass(frozen=True, slots=True)
class _Writing:
    """The second round: a range in order, as text or as rows. ``utc``: by source, whether its times are UTC."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    utc: tuple[bool, ...]
    first_lines: tuple[int, ...]
    show_source: bool
    with_places: bool

    def text(self, found: Iterator[Entry]) -> Iterator[bytes]:
        entries = sorted(found, key=_order)
        prefixes = [os.fsencode(f"{label}\t") if self.show_source else b"" for label in self.labels]
        for at in range(0, len(entries), PIECE_RECORDS):
            lines: list[bytes] = []
            for _, source, _, _, _, line, tail in entries[at : at + PIECE_RECORDS]:
                lines.append(prefixes[source] + line if self.show_source else line)
                lines += tail
            lines.append(b"")
            yield b"\n".join(lines)

    def rows(self, found: Iterator[Entry]) -> Iterator[bytes]:
        store = ByShape(find_details)
        for time, source, offset, chunk, number, line, tail in sorted(found, key=_order):
            record = Record(time, offset, number, line, store.of(line), tail)
            for row in rows(record, self.labels[source], self.first_lines[chunk] + number, utc=self.utc[source]):
                if self.with_places:
                    row |= {"file": self.names[source], "file_number": source, "offset": offset}
                yield as_json(row)


def merge_ordered(
    logs: Logs,
    selection: Selection,
    carrier: Carrier,
    *,
    as_rows: bool,
    show_source: bool = False,
    with_places: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> Ordered:
    """Merge the logs into parts, as text or as JSON rows, one on a line; ``with_places`` adds PLACE_COLUMNS.

    SourceChangedError, SparkError, OSError."""
    chunks = cut_chunks(logs.sources, chunk_bytes)
    cuts = tuple(_cuts(logs, chunks, sum(source.size for source in logs.sources) // chunk_bytes))
    collecting = _Collecting(logs.clocks, selection, cuts)
    scattered = carrier.scatter(
        logs.sources, chunks, collecting.collect, buckets=len(cuts) + 1, chunk_bytes=chunk_bytes
    )
    accounts = [account for account, _ in scattered.notes]
    numbers = first_lines(logs.sources, chunks, [account.lines for account in accounts])
    names, labels = zip(*((source.name, source.label) for source in logs.sources), strict=True)
    utc = tuple(clock is not None for clock in logs.clocks)
    writing = _Writing(names, labels, utc, tuple(numbers) if as_rows else (), show_source, with_places)
    parts = scattered.parts(writing.rows if as_rows else writing.text)
    return Ordered(parts, add_accounts(chunks, accounts), sum(number for _, number in scattered.notes))


def _like_kafka(text: str) -> Details:
    return Details(classify_like_kafka(text))


def _cuts(logs: Logs, chunks: Sequence[Chunk], number: int) -> list[Place]:
    """Return places that cut the records into about ``number`` ranges more than one."""
    if number < 1:
        return []
    each = max(min(SAMPLES_PER_CHUNK, MOST_SAMPLES // len(chunks)), 1)
    places = sorted(place for chunk in chunks for place in _samples(logs, chunk, each))
    return sorted({places[len(places) * k // (number + 1)] for k in range(1, number + 1)}) if places else []


def _samples(logs: Logs, chunk: Chunk, number: int) -> Iterator[Place]:
    source, clock = logs.sources[chunk.source], logs.clocks[chunk.source]
    distance = max((chunk.end - chunk.start) // number, 1)
    for start in range(chunk.start, chunk.end, distance):
        offset, time = source.next_record(start)
        if time is not None:
            yield (clock.utc(time, offset) if clock else time), chunk.source, offset
