"""One log's records of one time slice, in order of time, read block by block.

A log is nearly in order: what stands in a block may be earlier than what stands in the block before it, but hardly
earlier than the earliest of that block (its *frontier*). If it is after all, OutOfOrderError says that something later
was already given away.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress, islice, pairwise
from operator import and_, gt, not_
from typing import NamedTuple

from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.lines.shapes import Shape
from kafkatool.core.statelog.lines.tally import ASK, Tally
from kafkatool.core.statelog.sources.blocks import (
    Block,
    keys_of,
    lines_of,
    mixed_block,
    plain_block,
    read_blocks,
    record_offsets,
)
from kafkatool.core.statelog.sources.slices import Plan, Range, Stray


class OutOfOrderError(Exception):
    """A record is earlier than others of its slice that were already written."""


class _Kept(NamedTuple):
    """The records kept of one block, the earliest time of the slice in it, and whether it is in order of time."""

    records: list[bytes]
    times: list[bytes]
    earliest: bytes
    in_order: bool


class Stream:
    """Records of one source in one slice. Counts what stands in the slice's own part of the log.

    ``frontier`` is the earliest time the next block is expected to hold; None: the end is reached. ``edge`` are the
    times of the first and last record of the own part, ``descents`` how many there are earlier than the one before.
    """

    def __init__(
        self, plan: Plan, index: int, number: int, selection: Selection, tally: Tally, block_bytes: int
    ) -> None:
        self.number = number
        self.frontier: bytes | None = b""
        self.edge: tuple[bytes, bytes] | None = None
        self.strays: list[Stray] = []
        self.descents = 0
        self.orphans = 0
        self._plan = plan
        self._low, self._high = plan.span(index)
        self._source = plan.sources[number]
        self._selection, self._tally = selection, tally
        self._start_time, self._end_time = selection.start_time.encode(), selection.end_time.encode()
        self._bounded = selection.bounded
        self._names_topic = selection.topic_filter()
        self._reaches: dict[int, tuple[int, int]] = {}
        self._records: list[bytes] = []
        self._times: list[bytes] = []
        self._blocks = self._read(plan.ranges(index, number), block_bytes)

    def fill(self, given: bytes) -> None:
        """Read the next block. OutOfOrderError if it holds a record earlier than ``given``; OSError."""
        found = next(self._blocks, None)
        if found is None:
            self.frontier = None
            return
        if found.earliest < given:
            raise OutOfOrderError
        self.frontier = found.earliest
        if not found.times:
            return
        in_order = found.in_order and not (self._times and self._times[-1] > found.times[0])
        self._records += found.records
        self._times += found.times
        if not in_order:
            self._sort()

    def fill_all(self) -> None:
        """Read all there is, in whatever order it stands."""
        for found in self._blocks:
            self._records += found.records
            self._times += found.times
        self._sort()
        self.frontier = None

    def take(self, before: bytes | None) -> tuple[list[bytes], list[bytes]]:
        """Remove and return the records read that are earlier than ``before`` (all, if it is None), and their times."""
        end = len(self._times) if before is None else bisect_left(self._times, before)
        records, times = self._records[:end], self._times[:end]
        del self._records[:end], self._times[:end]
        return records, times

    def _sort(self) -> None:
        order = sorted(range(len(self._times)), key=self._times.__getitem__)
        self._records = [self._records[at] for at in order]
        self._times = [self._times[at] for at in order]

    def _read(self, ranges: Sequence[Range], block_bytes: int) -> Iterator[_Kept]:
        """Yield what is kept of each block that holds records of this slice."""
        for own in ranges:
            for offset, data in read_blocks(self._source, own.start, own.end, block_bytes):
                if kept := self._keep(offset, data, core=own.core):
                    yield kept

    def _keep(self, offset: int, data: bytes, *, core: bool) -> _Kept | None:
        lines = lines_of(data)
        block, shapes = self._cut(lines, core=core)
        times = block.times
        if not times:
            return None
        descents = 0 if sorted(times) == times else sum(map(gt, times, islice(times, 1, None)))
        first, last = (min(times), max(times)) if descents else (times[0], times[-1])
        at_home = self._low <= first and last < self._high
        if core:
            self.descents += descents + (self.edge is not None and self.edge[1] > times[0])
            self.edge = (self.edge[0] if self.edge else times[0], times[-1])
            if not at_home:
                shapes = shapes or [self._tally.shape_of[key] for key in keys_of(lines)]
                self._find_strays(times, record_offsets(lines, shapes, offset))
        keep = self._selected(block, first, last, core=core)
        if not at_home:
            inside = [self._low <= time < self._high for time in times]
            if not any(inside):
                return None
            keep = inside if keep is None else list(map(and_, keep, inside))
            first = min(compress(times, inside))
        if keep is None:
            return _Kept(block.records, times, first, not descents)
        return _Kept(list(compress(block.records, keep)), list(compress(times, keep)), first, not descents)

    def _cut(self, lines: list[bytes], *, core: bool) -> tuple[Block, list[Shape] | None]:
        """Return the block's records; and, where not every line is one of the usual kind, each line's shape."""
        tally = self._tally
        keys = [] if tally.verdict is None and not self._bounded else list(keys_of(lines))
        if tally.add(keys or keys_of(lines), count=core):
            return plain_block(lines, keys), None
        keys = keys or list(keys_of(lines))
        shapes = [tally.shape_of[key] for key in keys]
        block = mixed_block(lines, keys, shapes, continuation=self._selection.continuation)
        if core and block.orphans:
            met = [tally.shape_of[key] for key in block.orphans]
            self.orphans += len(met)
            tally.counts.unknown_form += sum(shape.known and shape.contains_time for shape in met)
        return block, shapes

    def _selected(self, block: Block, first: bytes, last: bytes, *, core: bool) -> list[bool] | None:
        """Return which records the filters keep; None: all. Count what the tally of shapes cannot know."""
        keep: list[bool] | None = None
        if not (self._start_time <= first and last <= self._end_time):
            keep = [self._start_time <= time <= self._end_time for time in block.times]
            if core:
                self._drop_by_time(Counter(compress(block.keys, map(not_, keep))))
        if self._tally.verdict is None:
            return keep
        verdicts = list(map(self._tally.verdict_of.__getitem__, block.keys))
        kept = [verdict is None for verdict in verdicts]
        if self._names_topic:
            for at, verdict in enumerate(verdicts):
                if verdict == ASK and (keep is None or keep[at]):
                    kept[at] = self._names_topic(block.records[at], self._tally.shape_of[block.keys[at]])
                    self._tally.counts.filtered_by_topic += core and not kept[at]
        return kept if keep is None else list(map(and_, keep, kept))

    def _drop_by_time(self, dropped: Counter[bytes]) -> None:
        """Count records as dropped by time, which comes before the reasons that the tally will give for them."""
        counts = self._tally.counts
        counts.filtered_by_time += dropped.total()
        for key, number in dropped.items():
            reason = self._tally.verdict_of[key]
            if reason and reason != ASK:
                counts.drop(reason, -number)

    def _find_strays(self, times: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Note records of other slices that those would not see, neighbours joined."""
        plan, strays = self._plan, self.strays
        for time, (start, end) in zip(times, pairwise(offsets), strict=True):
            if self._low <= time < self._high:
                continue
            home = plan.home(time)
            if home not in self._reaches:
                self._reaches[home] = plan.reach(home, self.number)
            reach = self._reaches[home]
            if reach[0] <= start < reach[1]:
                continue
            until = min(end, self._source.size)  # the last line of a log may lack its end
            if strays and (strays[-1].home, strays[-1].end) == (home, start):
                strays[-1] = strays[-1]._replace(end=until)
            else:
                strays.append(Stray(home, self.number, start, until))
