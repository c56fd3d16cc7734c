"""Chunks of the logs, which begin with a record, and their records with all that is known of them.

The analyses take chunks, not time slices: what they find carries its own sort key (UTC time, log, offset), so the cut
decides nothing but how the work is shared out. Chunks are made on the driver from a few reads of each log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkatool.core.statelog.lines.details import Details
from kafkatool.core.statelog.lines.grammar import TIME_LENGTH
from kafkatool.core.statelog.lines.selection import Counts
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

CHUNK_BYTES = 8 * 1024 * 1024
"""Input of one chunk: a worker holds it as lines, several times that much memory."""


class Chunk(NamedTuple):
    """Bytes ``start`` to ``end`` of source number ``source``."""

    number: int
    source: int
    start: int
    end: int


class Record(NamedTuple):
    """One record. ``time`` is UTC if the log's clock is known, else local; ``tail`` the lines that follow it.

    ``line_number`` counts within the chunk from 0. (time, source, offset) is the total order (SCL-10X).
    """

    time: bytes
    offset: int
    line_number: int
    line: bytes
    details: Details
    tail: tuple[bytes, ...]


@dataclass(slots=True)
class ChunkAccount:
    """The counts of a chunk's lines. ``first`` and ``last`` are its records' times."""

    lines: int = 0
    counts: Counts = field(default_factory=Counts)
    first: bytes | None = None
    last: bytes | None = None


def cut_chunks(sources: Sequence[Source], chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """Cut the logs into chunks of about that size, in order of source and offset. OSError, SourceChangedError."""
    chunks: list[Chunk] = []
    for number, source in enumerate(sources):
        start, size = 0, source.size
        while start < size:
            end = source.next_record(start + chunk_bytes)[0] if start + chunk_bytes < size else size
            chunks.append(Chunk(len(chunks), number, start, end))
            start = end
    return chunks


def read_records(
    source: Source, clock: Clock | None, chunk: Chunk, store: ByShape[Details], account: ChunkAccount
) -> Iterator[Record]:
    """Yield the chunk's records in the order they stand there.

    Every line of the chunk is counted into ``account`` when the iteration is over (SCL-12X).
    """
    lines = source.read(chunk.start, chunk.end).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    account.lines = len(lines)
    counts = account.counts
    offset = chunk.start
    of = store.of
    head: tuple[bytes, int, int, bytes, Details] | None = None
    tail: list[bytes] = []
    for at, line in enumerate(lines):
        details = of(line)
        shape = details.shape
        if shape.time_at is not None:
            if head is not None:
                yield Record(*head, tuple(tail))
                tail = []
            time = line[shape.time_at : shape.time_at + TIME_LENGTH]
            if clock is not None:
                time = clock.utc(time, offset)
            counts.records += 1
            counts.unknown_form += not shape.known
            counts.without_partition += not shape.spans
            if account.last is None:
                account.first = time
            elif time < account.last:
                counts.out_of_order += 1
            account.last = time
            head = (time, offset, at, line, details)
        elif head is None:
            counts.orphan_lines += 1
            counts.unknown_form += not shape.known or shape.contains_time
        else:
            counts.continuation_lines += 1
            counts.unknown_form += not shape.known
            tail.append(line)
        offset += len(line) + 1
    if head is not None:
        yield Record(*head, tuple(tail))


def add_accounts(chunks: Sequence[Chunk], accounts: Sequence[ChunkAccount]) -> Counts:
    """Add up the counts of all chunks, and the disorder at the cuts between them."""
    total = Counts()
    before: tuple[int, bytes | None] = (-1, None)
    for chunk, account in zip(chunks, accounts, strict=True):
        total.add(account.counts)
        if before[0] == chunk.source and before[1] is not None and account.first is not None:
            total.out_of_order += account.first < before[1]
        before = (chunk.source, account.last or (before[1] if before[0] == chunk.source else None))
    return total


def first_lines(sources: Sequence[Source], chunks: Sequence[Chunk], lines: Sequence[int]) -> list[int]:
    """Return the number, in its file and from 1, of each chunk's first line, from how many lines each chunk has."""
    numbers: list[int] = []
    next_line, source = 1, -1
    for chunk, count in zip(chunks, lines, strict=True):
        if chunk.source != source:
            source, next_line = chunk.source, 1 + _lines_before(sources[chunk.source])
        numbers.append(next_line)
        next_line += count
    return numbers


def _lines_before(source: Source) -> int:
    """Count the lines of the file that were given to the older log because they stand before its first record."""
    own = source.extents[0]
    return own.read(0, own.start).count(b"\n") if own.start else 0
