"""Chunks of the logs, which begin with a record, and their records with all that is known of them.

The analyses take chunks, not time slices: what they find carries its own sort key (UTC time, log, offset), so the cut
decides nothing but how the work is shared out. Chunks are made on the driver from a few reads of each log.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafkatool.core.statelog.lines.grammar import TIME_LENGTH
from kafkatool.core.statelog.lines.selection import Counts
from kafkatool.core.statelog.lines.shapes import ONE_DIGIT, ByShape, Shape
from kafkatool.core.statelog.sources.blocks import lines_of
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

_record = tuple.__new__  # a tenth of a microsecond instead of a third

CHUNK_BYTES = 8 * 1024 * 1024
"""Input of one chunk: a worker holds it as lines, several times that much memory."""


class Chunk(NamedTuple):
    """Bytes ``start`` to ``end`` of source number ``source``."""

    number: int
    source: int
    start: int
    end: int


class HasShape(Protocol):
    """What is known of all lines of a shape."""

    @property
    def shape(self) -> Shape: ...


Known = TypeVar("Known", bound=HasShape)


class Record(NamedTuple, Generic[Known]):
    """One record, and what is known of lines of its shape.

    ``time`` is UTC if the log's clock is known, else local; ``tail`` the lines that follow it. ``line_number`` counts
    within the chunk from 0. (time, source, offset) is the total order (SCL-10X).
    """

    time: bytes
    offset: int
    line_number: int
    line: bytes
    details: Known
    tail: tuple[bytes, ...]


@dataclass(slots=True)
class ChunkAccount:
    """The counts of a chunk's lines. ``first`` and ``last`` are its records' times.

    ``first_unknown`` is the number, from 0, of its first dated line of unknown form.
    """

    lines: int = 0
    counts: Counts = field(default_factory=Counts)
    first: bytes | None = None
    last: bytes | None = None
    first_unknown: int | None = None

    def note_unread(self, line: int, shape: Shape) -> None:
        """Count a record of no known form."""
        if shape.foreign:
            self.counts.other_loggers += 1
        else:
            self.note_unknown(line)

    def note_unknown(self, line: int) -> None:
        """Count a dated line of unknown form."""
        self.counts.unknown_form += 1
        if self.first_unknown is None:
            self.first_unknown = line


def cut_chunks(sources: Sequence[Source], chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """Cut the logs into chunks of about that size, in order of source and offset. OSError, SourceChangedError.

    A log that can only be read as a whole is one chunk.
    """
    chunks: list[Chunk] = []
    for number, source in enumerate(sources):
        start, size = 0, source.size
        if size and source.whole:
            chunks.append(Chunk(len(chunks), number, 0, size))
            continue
        while start < size:
            end = source.next_record(start + chunk_bytes)[0] if start + chunk_bytes < size else size
            chunks.append(Chunk(len(chunks), number, start, end))
            start = end
    return chunks


def read_records(
    blocks: Iterable[bytes], clock: Clock | None, start: int, store: ByShape[Known], account: ChunkAccount
) -> Iterator[Record[Known]]:
    """Yield the records of a chunk that starts at that offset of its log, in the order they stand there.

    ``blocks`` are its bytes, in pieces of whole lines. Every line is counted into ``account`` when the iteration is over
    (SCL-12X).
    """
    counts = account.counts
    offset = start
    known, learn = store.known.get, store.learn
    head: Record[Known] | None = None
    tail: list[bytes] = []
    at = -1
    records = without_partition = 0
    last = b""
    for line in chain.from_iterable(map(lines_of, blocks)):
        at += 1
        key = line.translate(ONE_DIGIT)
        details = known(key) or learn(key)
        shape = details.shape
        time_at = shape.time_at
        if time_at is not None:
            if head is not None:
                if tail:
                    head = head._replace(tail=tuple(tail))
                    tail = []
                yield head
            time = line[time_at : time_at + TIME_LENGTH]
            if clock is not None:
                time = clock.utc(time, offset)
            if not records:
                account.first = time
            records += 1
            if not shape.known:
                account.note_unread(at, shape)
            without_partition += not shape.spans
            if time < last:
                counts.out_of_order += 1
            last = time
            head = _record(Record, (time, offset, at, line, details, ()))
        elif head is None:
            counts.orphan_lines += 1
            if not shape.known or shape.contains_time:
                account.note_unknown(at)
        else:
            counts.continuation_lines += 1
            if not shape.known:
                account.note_unknown(at)
            tail.append(line)
        offset += len(line) + 1
    account.lines = at + 1
    account.last = last or None
    counts.records += records
    counts.without_partition += without_partition
    if head is not None:
        yield head._replace(tail=tuple(tail))


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
