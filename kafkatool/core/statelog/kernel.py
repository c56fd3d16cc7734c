"""Merges one time slice: reads its parts of all logs, sorts, filters, writes one part of the result. Knows no Spark.

The order is total: time, then the log's place in the list, then the place in the log (SCL-10X). Because Python's sort
is stable, it is enough to sort by time what was read in the order of logs and offsets.
"""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, pairwise, repeat
from operator import gt, itemgetter
from pathlib import Path

from kafkatool.core.statelog.grammar import TIME_LENGTH
from kafkatool.core.statelog.selection import Counts, Selection
from kafkatool.core.statelog.shapes import ONE_DIGIT, Shape, Shapes
from kafkatool.core.statelog.slices import Plan, Stray

Record = tuple[bytes, bytes, Shape, list[bytes] | None, int]
"""Time, first line, its shape, the lines that follow it up to the next record (nearly always None), number of its source.

A plain tuple: millions are made, and a named one takes three times as long.
"""

WRITE_BYTES = 1 << 20

_time = itemgetter(0)
_line = itemgetter(1)
_shape = itemgetter(2)
_time_at = itemgetter(0)  # of a shape
_tail: Callable[[Record], list[bytes] | None] = itemgetter(3)


@dataclass(slots=True)
class SliceResult:
    """What a slice found. ``edges``: by source, the times of the first and last record of the slice's own part."""

    index: int
    part: Path
    counts: Counts = field(default_factory=Counts)
    strays: list[Stray] = field(default_factory=list)
    edges: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kernel:
    """All that is needed to merge any slice of a plan; small, so that it can be sent to where the work is done."""

    plan: Plan
    selection: Selection
    directory: Path
    show_source: bool = False

    def merge(self, index: int) -> SliceResult:
        """Merges slice ``index`` into a file of its own in ``directory``. OSError, SourceChangedError."""
        collecting = gc.isenabled()
        gc.disable()  # a million tuples and no cycle: looking for one takes a third of the time
        try:
            return self._merge(index)
        finally:
            if collecting:
                gc.enable()

    def _merge(self, index: int) -> SliceResult:
        result = SliceResult(index, self.directory / f"part-{index:06d}")
        shapes = self.selection.shapes()
        records: list[Record] = []
        for number in range(len(self.plan.sources)):
            records.extend(self._collect(index, number, shapes, result))
        records.sort(key=_time)
        _count(records, shapes, result.counts)
        with result.part.open("wb", buffering=WRITE_BYTES) as part:
            part.writelines(self._kept(records, result.counts))
        return result

    def _collect(self, index: int, number: int, shapes: Shapes, result: SliceResult) -> list[Record]:
        """The slice's records of one source, in the order they stand there."""
        source = self.plan.sources[number]
        low, high = self.plan.span(index)
        collected: list[Record] = []
        for start, end, core in self.plan.ranges(index, number):
            orphans, records = cut_records(source.read(start, end), shapes, number)
            at_home = [record for record in records if low <= record[0] < high]
            collected.extend(at_home)
            if not core:
                continue
            for line in orphans:
                shape = shapes.of(line)
                result.counts.orphan_lines += 1
                result.counts.unknown_form += not shape.known or shape.contains_time
            if records:
                times = list(map(_time, records))
                result.edges[number] = (times[0], times[-1])
                result.counts.out_of_order += sum(map(gt, times, islice(times, 1, None)))
            if len(at_home) < len(records):
                first = start + sum(len(line) + 1 for line in orphans)
                result.strays.extend(self._strays(number, index, first, records))
        return collected

    def _kept(self, records: list[Record], counts: Counts) -> Iterator[bytes]:
        """The text of each record that is selected."""
        selection = self.selection
        labels = [os.fsencode(f"{source.label}\t") if self.show_source else b"" for source in self.plan.sources]
        verdict = selection.filter()
        if not verdict and not self.show_source and not any(map(_tail, records)):
            counts.written += len(records)
            counts.lines_written += len(records)
            yield b"".join(chain.from_iterable(zip(map(_line, records), repeat(b"\n"))))
            return
        for time, line, shape, tail, number in records:
            if verdict and (reason := verdict(time, line, shape)):
                counts.drop(reason)
                continue
            counts.written += 1
            counts.lines_written += 1
            yield b"%b%b\n" % (labels[number], line)
            if tail and selection.continuation:
                counts.lines_written += len(tail)
                yield b"\n".join(tail) + b"\n"

    def _strays(self, source: int, index: int, offset: int, records: Iterable[Record]) -> list[Stray]:
        """Records of other slices that those would not see, neighbours joined."""
        low, high = self.plan.span(index)
        end_of_source = self.plan.sources[source].size
        sizes = [_size(line, tail) for _, line, _, tail, _ in records]
        reaches: dict[int, tuple[int, int]] = {}
        strays: list[Stray] = []
        for record, size, start in zip(records, sizes, accumulate(sizes, initial=offset), strict=False):
            if low <= record[0] < high:
                continue
            home = self.plan.home(record[0])
            if home not in reaches:
                reaches[home] = self.plan.reach(home, source)
            if reaches[home][0] <= start < reaches[home][1]:
                continue
            end = min(start + size, end_of_source)  # the last line of a log may lack its end
            if strays and (strays[-1].home, strays[-1].end) == (home, start):
                strays[-1] = strays[-1]._replace(end=end)
            else:
                strays.append(Stray(home, source, start, end))
        return strays


def _count(records: Sequence[Record], shapes: Shapes, counts: Counts) -> None:
    """Counts what does not depend on the filters."""
    counts.records += len(records)
    shapes_met = list(map(_shape, records))
    keys = list(map(id, shapes_met))
    seen = dict(zip(keys, shapes_met, strict=True))
    for key, number in Counter(keys).items():
        counts.unknown_form += 0 if seen[key].known else number
        counts.without_partition += 0 if seen[key].spans else number
    for tail in filter(None, map(_tail, records)):
        counts.continuation_lines += len(tail)
        counts.unknown_form += sum(not shapes.of(line).known for line in tail)


def _size(line: bytes, tail: list[bytes] | None) -> int:
    """Bytes of a record in its log, each line with its end."""
    return len(line) + 1 + sum(len(more) + 1 for more in tail) if tail else len(line) + 1


def cut_records(data: bytes, shapes: Shapes, number: int) -> tuple[list[bytes], list[Record]]:
    """Lines before the first record, and the records, of data that begins at a line's beginning (SCL-4, SCL-9X)."""
    lines = data.split(b"\n")
    keys = data.translate(ONE_DIGIT).split(b"\n")
    if not lines[-1]:
        lines.pop()
    met = map(shapes.known.get, keys)
    found = [shape or shapes.learn(key) for _, key, shape in zip(lines, keys, met, strict=False)]
    if (places := set(map(_time_at, found))) and None not in places and len(places) == 1:
        at = found[0].time_at or 0  # every line is a record, of one layout: as usual, and five times as fast as below
        times = map(itemgetter(slice(at, at + TIME_LENGTH)), lines)
        return [], list(zip(times, lines, found, repeat(None), repeat(number)))
    orphans: list[bytes] = []
    records: list[Record] = []
    for line, shape in zip(lines, found, strict=True):
        if shape.time_at is not None:
            records.append((line[shape.time_at : shape.time_at + TIME_LENGTH], line, shape, None, number))
        elif not records:
            orphans.append(line)
        elif (tail := records[-1][3]) is not None:
            tail.append(line)
        else:
            records[-1] = (*records[-1][:3], [line], number)
    return orphans, records


def descents_between(results: Iterable[SliceResult]) -> int:
    """Records earlier than the one before them where that one stands in the part of an earlier slice (SCL-10X)."""
    edges: dict[int, list[tuple[bytes, bytes]]] = {}
    for result in sorted(results, key=lambda r: r.index):
        for source, edge in result.edges.items():
            edges.setdefault(source, []).append(edge)
    return sum(left[1] > right[0] for parts in edges.values() for left, right in pairwise(parts))
