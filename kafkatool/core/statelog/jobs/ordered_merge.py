"""The merge where ``merge`` does not serve: rows instead of text, order by UTC where clocks have zones, logs elsewhere.

Two rounds of tasks. The first sends each chunk's selected records to the range of the total order that they belong to,
the second sorts one range and writes it. Cuts come from samples (``cuts``) and decide only how the work is shared out: the
bytes are the same for any (SCL-8). A cut is a place in the total order, not just a time: a second with a million lines is
shared out like any other stretch. A worker holds a chunk, or as much of a range as fits, the driver neither (SCL-22X).
"""

import os
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from kafkatool.core.statelog.jobs.carrier import Buckets, Carrier, Entry, Logs, Parts
from kafkatool.core.statelog.jobs.cuts import MOST_RANGES, Place, pick_cuts, places_to_sample
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
from kafkatool.core.statelog.sources.spilling import in_order

PIECE_RECORDS = 1000
"""Records that are written at a time."""

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
        entries = iter(in_order(found, _order))
        prefixes = [os.fsencode(f"{label}\t") if self.show_source else b"" for label in self.labels]
        while some := list(islice(entries, PIECE_RECORDS)):
            lines: list[bytes] = []
            for _, source, _, _, _, line, tail in some:
                lines.append(prefixes[source] + line if self.show_source else line)
                lines += tail
            lines.append(b"")
            yield b"\n".join(lines)

    def rows(self, found: Iterator[Entry]) -> Iterator[bytes]:
        store = ByShape(find_details)
        for time, source, offset, chunk, number, line, tail in in_order(found, _order):
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
    cuts = _cuts(logs, carrier, chunk_bytes)
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


def _cuts(logs: Logs, carrier: Carrier, range_bytes: int) -> tuple[Place, ...]:
    """Return places that cut the records into ranges of about that size."""
    sizes = [source.size for source in logs.sources]
    ranges = min(sum(sizes) // range_bytes + 1, MOST_RANGES)
    if ranges == 1:
        return ()
    found = carrier.sample(logs.sources, places_to_sample(sizes, ranges))
    clocks = logs.clocks
    return pick_cuts(
        (
            (clock.utc(time, offset) if (clock := clocks[source]) else time, source, offset)
            for source, offset, time in found
        ),
        ranges,
    )
