"""The blocks of a log: pieces of some 128 KB that begin and end with records, cut into records.

Blocks are this small so that what is made of one (lines, shapes, times) stays in the processor's cache: the same steps
on blocks of 1 MB take twice as long.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from operator import itemgetter
from typing import NamedTuple

from kafkatool.core.statelog.lines.grammar import TIME, TIME_LENGTH
from kafkatool.core.statelog.lines.shapes import ONE_DIGIT, Shape
from kafkatool.core.statelog.sources.source import Source

BLOCK_BYTES = 128 * 1024

_RECORD_START = re.compile(rf"\[?{TIME}".encode(), re.ASCII)


class Block(NamedTuple):
    """Records in the order they stand in a log, by columns: text without its last line end, time, key of its shape.

    There are no keys where nobody will ask for them. ``orphans`` are the keys of lines before the first record.
    """

    orphans: Sequence[bytes]
    records: list[bytes]
    times: list[bytes]
    keys: Sequence[bytes]


def read_blocks(source: Source, start: int, end: int, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each block between two offsets where records begin. OSError, SourceChangedError.

    A record longer than a block makes one of its own. What stands before a log's first record ends with a line.
    """
    wanted = block_bytes
    while start < end:
        data = source.read(start, min(start + wanted, end))
        size = len(data) if start + len(data) == end else _whole_records(data)
        if size == 0:
            wanted *= 2
            continue
        yield start, data[:size]
        start, wanted = start + size, block_bytes


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of data, each without its end; the last one may lack it anyway."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def keys_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the key of each line's shape. Counted one by one they never are in memory all at once, nor out of the cache."""
    return map(bytes.translate, lines, repeat(ONE_DIGIT))


def plain_block(lines: list[bytes], keys: Sequence[bytes]) -> Block:
    """Make a block in which every line is a record that begins with ``[``."""
    return Block((), lines, list(map(itemgetter(slice(1, 1 + TIME_LENGTH)), lines)), keys)


def mixed_block(lines: list[bytes], keys: list[bytes], shapes: Sequence[Shape], *, continuation: bool) -> Block:
    """Make a block of lines of any kind; ``continuation`` keeps the lines that belong to a record with it (SCL-9X)."""
    starts = _starts(shapes)
    bounds = pairwise([*starts, len(lines)])
    records = [b"\n".join(lines[a:b]) for a, b in bounds] if continuation else [lines[a] for a in starts]
    places = [shapes[a].time_at or 0 for a in starts]
    times = [lines[a][at : at + TIME_LENGTH] for a, at in zip(starts, places, strict=True)]
    return Block(keys[: starts[0] if starts else len(keys)], records, times, [keys[a] for a in starts])


def record_offsets(lines: Sequence[bytes], shapes: Sequence[Shape], offset: int) -> list[int]:
    """Return the offset in the log of each record of a block, and the end of the last one, lines taken with their ends."""
    places = list(accumulate((len(line) + 1 for line in lines), initial=offset))
    return [*(places[at] for at in _starts(shapes)), places[-1]]


def _starts(shapes: Sequence[Shape]) -> list[int]:
    return [at for at, shape in enumerate(shapes) if shape.time_at is not None]


def _whole_records(data: bytes) -> int:
    """Return the bytes up to the last record that is known to begin; 0 if more must be read to find one."""
    at = len(data)
    while (at := data.rfind(b"\n", 0, at)) >= 0:
        if _RECORD_START.match(data, at + 1):
            return at + 1
    return 0 if _RECORD_START.match(data) else data.rfind(b"\n") + 1
