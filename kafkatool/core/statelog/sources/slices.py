"""Time slices of the logs, which can be merged one by one, in parallel, with the same result as one big sort.

The plan is a guess, made from samples: cut times that share out the work evenly, and for each log the offset where each
cut time is reached. A log is nearly in order of time but not quite (lines of a controller stand up to 20 ms out of
order, a clock may be set back an hour), so a slice also looks a little beyond its part of each log. What lies further
off is found by whoever reads the part it stands in, and given to its slice in a second round (``Plan.with_strays``).
The guess thus decides how fast the merge is, never what it writes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Self

from kafkatool.core.statelog.sources.source import Source

MARGIN_BYTES = 64 * 1024
"""How far beyond its part of a log a slice looks: a few hundred lines, more than a log is usually out of order."""

SAMPLE_BYTES = 64 * 1024
"""Distance of samples; larger where that makes more than MOST_SAMPLES."""

MOST_SAMPLES = 1024
"""Samples in all logs together: each costs a seek, 30 microseconds when cached, while Spark needs the processors."""

PRECISION_BYTES = 16 * 1024
"""A cut is searched between two samples down to this distance, and then read through."""

QUIET_BYTES = 256 * 1024
"""How far around the place where a cut would share out the work best a log is looked through for a pause."""


class Range(NamedTuple):
    """Bytes of a log that begin and end with records. ``core``: the slice's own part, else only looked into."""

    start: int
    end: int
    core: bool


class Stray(NamedTuple):
    """Records of slice ``home`` that stand in a log where that slice would not look for them."""

    home: int
    source: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Slice k holds the records with ``cuts[k-1] <= time < cuts[k]``; there is one slice more than cuts.

    ``bounds[s]`` are the offsets in source s at which the slices' parts begin, ending with its size. ``strays`` are the
    ranges that slice k must read besides, by (k, s).
    """

    sources: tuple[Source, ...]
    cuts: tuple[bytes, ...]
    bounds: tuple[tuple[int, ...], ...]
    margin_bytes: int = MARGIN_BYTES
    strays: Mapping[tuple[int, int], tuple[Range, ...]] = field(default_factory=dict)

    @property
    def slices(self) -> int:
        """Return the number of slices."""
        return len(self.cuts) + 1

    def home(self, time: bytes) -> int:
        """Return the slice a record of that time belongs to."""
        return bisect_right(self.cuts, time)

    def span(self, index: int) -> tuple[bytes, bytes]:
        """Return the times of slice ``index``, the second one exclusive."""
        low = self.cuts[index - 1] if index > 0 else b""
        high = self.cuts[index] if index < len(self.cuts) else b"\xff"
        return low, high

    def reach(self, index: int, source: int) -> tuple[int, int]:
        """Return the two offsets between which slice ``index`` looks in a source: its part and the margins."""
        bounds, log = self.bounds[source], self.sources[source]
        start, end = bounds[index], bounds[index + 1]
        if index > 0:
            start = min(start, log.next_record(max(start - self.margin_bytes, bounds[0]))[0])
        if index < self.slices - 1:
            end = max(end, log.next_record(min(end + self.margin_bytes, log.size))[0])
        return start, end

    def ranges(self, index: int, source: int) -> list[Range]:
        """Return the ranges slice ``index`` reads of a source, in order of offset: margin, own part, margin, and strays."""
        start, end = self.reach(index, source)
        own_start, own_end = self.bounds[source][index], self.bounds[source][index + 1]
        near = (Range(start, own_start, False), Range(own_start, own_end, True), Range(own_end, end, False))
        far = self.strays.get((index, source), ())
        return sorted(r for r in (*near, *far) if r.start < r.end)

    def with_strays(self, strays: Sequence[Stray]) -> Self:
        """Return the plan in which each slice also reads the strays found for it."""
        found: dict[tuple[int, int], list[Range]] = {}
        for stray in sorted(strays):
            ranges = found.setdefault((stray.home, stray.source), [])
            if ranges and ranges[-1].end == stray.start:
                ranges[-1] = ranges[-1]._replace(end=stray.end)
            else:
                ranges.append(Range(stray.start, stray.end, False))
        return replace(self, strays={key: tuple(ranges) for key, ranges in found.items()})


def plan_slices(
    sources: Sequence[Source],
    slices: int,
    *,
    sample_bytes: int = SAMPLE_BYTES,
    precision_bytes: int = PRECISION_BYTES,
    margin_bytes: int = MARGIN_BYTES,
) -> Plan:
    """Return a plan of at most ``slices`` slices of about equal size. OSError, SourceChangedError."""
    total = sum(source.size for source in sources)
    distance = max(sample_bytes, total // MOST_SAMPLES)
    samples = [_sample(source, distance) if slices > 1 else [] for source in sources]
    places = sorted((time, number, place) for number, taken in enumerate(samples) for place, time in taken)
    wanted = [places[len(places) * k // slices] for k in range(1, slices)] if places else []
    around = min(distance, QUIET_BYTES)
    quiet = {_after_pause(sources[number], place, around) for _, number, place in wanted}
    cuts = tuple(sorted(quiet - {places[0][0]})) if places else ()
    bounds = tuple(
        _bounds(source, taken, cuts, precision_bytes) for source, taken in zip(sources, samples, strict=True)
    )
    return Plan(tuple(sources), cuts, bounds, margin_bytes)


def _sample(source: Source, distance: int) -> list[tuple[int, bytes]]:
    """Return offset and time of a record about every ``distance`` bytes."""
    samples: list[tuple[int, bytes]] = []
    size, offset = source.size, 0
    while offset < size:
        position, time = source.next_record(offset)
        if time is None:
            break
        samples.append((position, time))
        offset = max(offset + distance, position + 1)
    return samples


def _after_pause(source: Source, place: int, around: int) -> bytes:
    """Return the time that ends the longest pause near a record: where it is quiet, no line is on the wrong side."""
    times = [time for _, time in source.records(max(place - around, 0), min(place + around, source.size))]
    moments = list(map(_milliseconds, times))
    pauses = [after - before for before, after in pairwise(moments)]
    return times[pauses.index(max(pauses)) + 1] if pauses else times[0]


def _milliseconds(time: bytes) -> int:
    """Return a number whose differences are pauses; between days or months only that they are longer than a day's."""
    days = (int(time[:4]) * 12 + int(time[5:7])) * 31 + int(time[8:10])
    return ((days * 24 + int(time[11:13])) * 60 + int(time[14:16])) * 60_000 + int(time[17:19] + time[20:23])


def _bounds(
    source: Source, samples: list[tuple[int, bytes]], cuts: Sequence[bytes], precision_bytes: int
) -> tuple[int, ...]:
    bounds = [0]
    for cut in cuts:
        after = bisect_left(samples, cut, key=lambda sample: sample[1])
        low = samples[after - 1][0] if after else 0
        high = samples[after][0] if after < len(samples) else source.size
        while high - low > precision_bytes:
            middle = (low + high) // 2
            position, time = source.next_record(middle)
            if time is not None and position < high and time < cut:
                low = position
            else:  # reached there, or no record begins between the two
                high = middle
        reached = next((place for place, time in source.records(low, high) if time >= cut), None)
        bounds.append(max(bounds[-1], source.next_record(high)[0] if reached is None else reached))
    bounds.append(source.size)
    return tuple(bounds)
