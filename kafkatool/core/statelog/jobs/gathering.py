"""The first round of the analyses: observations are taken from chunks and brought together by partition.

Every chunk is read once: observations go to the bucket of their partition, lines per minute to a bucket of their own;
what is small (who was controller, how many lines each broker wrote) comes back to the driver. The second round
(``timeline``, ``report``) makes the history of each partition of a bucket. The driver holds sums and the best few,
never lines or facts (SCL-22X); cuts and buckets decide only who does what, so the answer is the same for any (SCL-8).
"""

import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from kafkatool.core.statelog.history.observations import Observation, drop_repeats, tell_unclean_starts
from kafkatool.core.statelog.history.overview import LineKind, Overview, observe_chunk
from kafkatool.core.statelog.jobs.carrier import Buckets, Carrier, Entry, Logs, Scattered
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
from kafkatool.core.statelog.sources.spilling import Many, in_order, most_held

MOST_BUCKETS = 256

_observation: Callable[[Iterable[Any]], Observation] = partial(
    tuple.__new__, Observation
)  # a third of the time of a call of it

_KINDS: Final = ByShape(LineKind)
"""Of the shapes met by this process: the logs of a cluster share them, so the next chunk brings few new ones."""

Note = tuple[ChunkAccount, bytes]
"""Of a chunk; the Overview packed: the driver holds the notes of all chunks, a hundred thousand for as many logs."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The end of round one: what was asked for, the overview, and each bucket's observations.

    Buckets up to ``buckets`` are of partitions; the one of that number has the lines per minute. ``names`` are those of
    the logs.
    """

    names: tuple[str, ...]
    selection: Selection
    overview: Overview
    scattered: Scattered[Note]
    buckets: int
    first_lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _GatherTask:
    clocks: tuple[Clock | None, ...]
    selection: Selection
    buckets: int

    def gather(self, chunk: Chunk, blocks: Iterable[bytes]) -> Generator[Buckets, None, Note]:
        account, overview = ChunkAccount(), Overview()
        minutes: Counter[bytes] = Counter()
        entries: dict[int, list[Entry]] = {}
        held, most = 0, most_held()
        records = read_records(blocks, self.clocks[chunk.source], chunk.start, _KINDS, account)
        observed = observe_chunk(records, chunk, self.selection, overview, minutes)
        bucket_of: dict[tuple[str, int], list[Entry]] = {}
        for heard in drop_repeats(observed):
            named = heard[:2]
            bucket = bucket_of.get(named)
            if bucket is None:
                topic, partition = named
                number = zlib.crc32(f"{topic}-{partition}".encode("utf-8", "surrogateescape")) % self.buckets
                bucket = bucket_of[named] = entries.setdefault(number, [])
            bucket.append(heard)
            held += 1
            if held == most:
                yield entries
                entries, bucket_of, held = {}, {}, 0
        entries[self.buckets] = [(minute.decode("latin-1"), number) for minute, number in minutes.items()]
        yield entries
        return account, zlib.compress(pickle.dumps(overview), 1)


def gather(
    logs: Logs, selection: Selection, carrier: Carrier, files: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Gathered:
    """Run round one. Of the selection, topic and partitions are used; its times bound only the counts in the overview.

    SourceChangedError, SparkError, OSError.
    """
    chunks = cut_chunks(logs.sources, chunk_bytes)
    size = sum(chunk.end - chunk.start for chunk in chunks)
    buckets = min(max(size // chunk_bytes, 1), MOST_BUCKETS)
    task = _GatherTask(logs.clocks, selection, buckets)
    scattered = carrier.scatter(logs.sources, chunks, task.gather, buckets=buckets + 1, chunk_bytes=chunk_bytes)
    accounts = [account for account, _ in scattered.notes]
    overview = Overview(counts=add_accounts(chunks, accounts), files=files)
    for _, part in scattered.notes:
        overview.add(pickle.loads(zlib.decompress(part)))
    numbers = first_lines(logs.sources, chunks, [account.lines for account in accounts])
    unknown = (
        f"{logs.sources[chunk.source].name}:{number + account.first_unknown}"
        for chunk, number, account in zip(chunks, numbers, accounts, strict=True)
        if account.first_unknown is not None
    )
    overview.first_unknown = next(unknown, None)
    names = tuple(source.name for source in logs.sources)
    return Gathered(names, selection, overview, scattered, buckets, tuple(numbers))


def partitions_of(found: Iterable[Entry], first_lines: Sequence[int]) -> Iterator[tuple[str, int, Many[Observation]]]:
    """Yield the partitions of a bucket by name, each with all observations of it, in order of time.

    Lines are numbered in their file. Repeats are dropped again here: where chunks were cut must not show. OSError.
    """
    for (topic, partition), entries in groupby(in_order(found, _place), key=_partition):
        once = (
            _observation((time, source, offset, line + first_lines[chunk], *values))
            for _, _, time, source, offset, chunk, line, (_, _, values) in drop_repeats(entries)
        )
        yield topic, partition, in_order(tell_unclean_starts(once))


_place = itemgetter(0, 1, 3, 4)  # where the line stands, below its partition: its log, and the offset
_partition = itemgetter(0, 1)
