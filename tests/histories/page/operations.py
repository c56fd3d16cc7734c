"""Who did what when: a lane for each broker, with its faults, and one for each process, with its operations."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from tests.histories.history import NEVER, OK, History, Operation
from tests.histories.page.axis import Axis, weighted
from tests.histories.page.rows import picture, row, rows_of_faults
from tests.histories.page.shades import Shade
from tests.histories.page.words import told

COLOURS: Final = 8
_AROUND: Final = 60  # operations before and after those of a finding
_MOST_STRETCHES: Final = 6
_PIECES: Final = 150  # of the whole run, in each of which operations are counted


def axis_around(history: History, lines: Collection[int]) -> Axis:
    """Return an axis of the times about these lines; of many that lie far apart some in the middle are left out."""
    ended = [operation for operation in history.operations if operation.completed != NEVER]
    if not ended:
        return Axis(history.times[0], [(history.times[0], history.times[-1])])
    completed = [operation.completed for operation in ended]
    ranges: list[tuple[int, int]] = []
    for place in sorted(min(bisect_left(completed, line), len(ended) - 1) for line in lines):
        low, high = max(place - _AROUND, 0), min(place + _AROUND, len(ended) - 1)
        if ranges and low <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    if len(ranges) > _MOST_STRETCHES:
        half = _MOST_STRETCHES // 2
        ranges = ranges[:half] + ranges[-half:]
    return weighted(history.times[0], [(ended[low].time, ended[high].time) for low, high in ranges])


def lanes(history: History, axis: Axis, shades: Sequence[Shade], colours: Mapping[int, int]) -> Iterator[str]:
    """Yield the picture of a stretch of time. ``colours``: of operations at odds, by their ids."""
    by_process: dict[int | str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if any(axis.pieces(operation.time_invoked, operation.time)):
            by_process[operation.process].append(operation)

    def rows() -> Iterator[str]:
        yield from rows_of_faults(history, axis, shades)
        for process in sorted(by_process, key=lambda one: (isinstance(one, str), one)):
            yield from row(f"process {process}", _bars(by_process[process], axis, history.times[0], colours))

    yield from picture(axis, shades, rows())


def _bars(operations: Sequence[Operation], axis: Axis, origin: int, colours: Mapping[int, int]) -> Iterator[str]:
    for operation in operations:
        colour = colours.get(id(operation))
        kind = f"op {operation.type}" if colour is None else f"op odd c{colour}"
        for left, width in axis.pieces(operation.time_invoked, operation.time):
            place = f"left:{left:.2f}%;width:{width:.2f}%"
            yield f'<i class="{kind}" style="{place}" title="{escape(told(operation, origin))}"></i>'


def whole(history: History, shades: Sequence[Shade], found: Collection[tuple[int, str]]) -> Iterator[str]:
    """Yield the picture of the whole run: faults, how much was done, and where something was found, by line and kind."""
    first, last = history.times[0], max(history.times[-1], history.times[0] + 1)
    axis = Axis(first, [(first, last)])
    piece = (last - first) / _PIECES
    done = Counter(
        min(int((o.time - first) / piece), _PIECES - 1) for o in history.operations if o.type == OK and o.time != NEVER
    )
    most = max(done.values(), default=1)

    def heights() -> Iterator[str]:
        for number, count in sorted(done.items()):
            place = f"left:{number * 100 / _PIECES:.2f}%;width:{100 / _PIECES:.2f}%;height:{count * 100 / most:.0f}%"
            yield f'<i class="done" style="{place}" title="{count} operations"></i>'

    def marks() -> Iterator[str]:
        for line, kind in sorted(found):
            time = history.times[min(line, len(history.times) - 1)]
            yield f'<i class="found" style="left:{axis.at(time):.2f}%" title="{escape(kind)}, line {line}"></i>'

    def rows() -> Iterator[str]:
        yield from rows_of_faults(history, axis, shades)
        yield from row(f"ok, ≤ {most / piece * 1e9:,.0f}/s", heights(), 32)
        yield from row("found", marks())

    yield from picture(axis, shades, rows())
