"""Where a time lies on a page: stretches of it stand side by side, and what is between them is left out."""

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

LEAST_PX: Final = 780
"""So wide is the axis at least: labels that fit into that never overlap."""
_GAP: Final = 2.0  # per cent
_LABEL_PX: Final = 76
_SHORTEST_S: Final = 1e-6  # between labels: with more decimals they would be wider
_FAR: Final = 0.12  # of all the time: where nothing happens for longer, that is left out
_NARROWEST: Final = 0.12  # of the time that is shown: a stretch is given at least as much room
_NEAR: Final = 0.02  # of the time that is shown: so much before and after a moment is near it


class Stretch(NamedTuple):
    """From ``first`` to ``last``, in ns; ``left`` and ``width`` in per cent."""

    first: int
    last: int
    left: float
    width: float

    def at(self, time: int) -> float:
        share = (min(max(time, self.first), self.last) - self.first) / (self.last - self.first)
        return self.left + self.width * share


class Axis:
    """``origin`` is the time that labels count from, in s."""

    def __init__(self, origin: int, spans: Sequence[tuple[int, int]], weights: Sequence[float] = ()) -> None:
        self._origin = origin
        weights = weights or [1.0] * len(spans)
        room, left = 100 - _GAP * (len(spans) - 1), 0.0
        stretches = []
        for (first, last), weight in zip(spans, weights, strict=True):
            width = room * weight / sum(weights)
            stretches.append(Stretch(first, max(last, first + 1), left, width))
            left += width + _GAP
        self.stretches: Sequence[Stretch] = stretches

    def at(self, time: int) -> float:
        """Return where a time is; one that is left out is at the end of what comes before it."""
        found = self.stretches[0]
        for stretch in self.stretches:
            if stretch.first <= time:
                found = stretch
        return found.at(time)

    @property
    def seconds(self) -> float:
        """Return how much time is shown."""
        return sum(stretch.last - stretch.first for stretch in self.stretches) / 1e9

    def holds(self, time: int) -> bool:
        return any(stretch.first <= time <= stretch.last for stretch in self.stretches)

    def about(self, times: Sequence[int]) -> "Axis":
        """Return an axis of what is shown near these times alone."""
        around = round(self.seconds * 1e9 * _NEAR)
        spans: list[tuple[int, int]] = []
        for stretch in self.stretches:
            for time in sorted(time for time in times if stretch.first <= time <= stretch.last):
                first, last = max(time - around, stretch.first), min(time + around, stretch.last)
                if spans and first <= spans[-1][1]:
                    spans[-1] = (spans[-1][0], last)
                else:
                    spans.append((first, last))
        return weighted(self._origin, spans)

    def pieces(self, start: int, end: int) -> Iterator[tuple[float, float]]:
        """Yield left and width of what can be seen of a time that lasts, one for each stretch."""
        for stretch in self.stretches:
            if start <= stretch.last and end >= stretch.first:
                left = stretch.at(start)
                yield left, stretch.at(end) - left

    def gaps(self) -> Iterator[tuple[float, float]]:
        """Yield left and width of where time is left out."""
        for before, after in zip(self.stretches, self.stretches[1:], strict=False):
            yield before.left + before.width, after.left - before.left - before.width

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield places with the seconds that they are at, none so near to another that labels would overlap."""
        for stretch in self.stretches:
            pixels = stretch.width * LEAST_PX / 100
            if pixels < _LABEL_PX:
                continue
            seconds, begins = (stretch.last - stretch.first) / 1e9, (stretch.first - self._origin) / 1e9
            step = round_step(max(seconds * _LABEL_PX / pixels, _SHORTEST_S))
            margin = _LABEL_PX / 2 / pixels * seconds
            numbers = range(math.ceil((begins + margin) / step), math.floor((begins + seconds - margin) / step) + 1)
            for number in numbers:
                yield stretch.at(self._origin + round(number * step * 1e9)), written(number * step, step)
            if not numbers:
                middle = written(begins + seconds / 2, _SHORTEST_S)
                yield stretch.left + stretch.width / 2, middle.rstrip("0").rstrip(".")


def round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def written(number: float, step: float) -> str:
    """Write a multiple of a step, with as many decimals as the step has."""
    return f"{number:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def closed(origin: int, times: Sequence[int]) -> Axis:
    """Return an axis of these times on which those far from any are left out."""
    known = sorted(times)
    far = (known[-1] - known[0]) * _FAR
    spans = [(known[0], known[0])]
    for time in known[1:]:
        if time - spans[-1][1] > far:
            spans.append((time, time))
        else:
            spans[-1] = (spans[-1][0], time)
    return weighted(origin, spans)


def weighted(origin: int, spans: Sequence[tuple[int, int]]) -> Axis:
    """Return an axis on which each stretch has room by how long it is, but never very little."""
    total = sum(last - first for first, last in spans) or 1
    return Axis(origin, spans, [max((last - first) / total, _NARROWEST) for first, last in spans])
