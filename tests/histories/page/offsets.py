"""What lay at which offset of a key, and when it was seen there: what is at odds in colour, all else grey."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from tests.histories.history import NEVER, History, Operation, Poll, Send
from tests.histories.page.axis import LEAST_PX, Axis, closed, round_step
from tests.histories.page.rows import picture, row, rows_of_faults
from tests.histories.page.shades import Shade

_HEIGHT_PX: Final = 240
_EDGE_PX: Final = 12
_TICKS: Final = 6
_ABOUT: Final = 8  # offsets around what is at odds
_LETTER_PX, _LINE_PX = 7, 13


SENT, POLLED, NAMED = "sent", "polled", "named"


class Place(NamedTuple):
    """A value that an operation sent to an offset of the key, or polled there; or an offset that it named without one."""

    operation: Operation
    kind: str
    offset: int
    value: int | None


def places(history: History, key: int) -> list[Place]:
    """Return all that was seen of a key, but for what has no place, or no time."""
    return [place for operation in history.operations if operation.time != NEVER for place in _places(operation, key)]


def _places(operation: Operation, key: int) -> Iterator[Place]:
    for part in operation.parts:
        if isinstance(part, Send) and part.key == key and part.offset is not None:
            yield Place(operation, SENT, part.offset, part.value)
        elif isinstance(part, Poll):
            for offset, value in zip(*part.runs.get(key, ((), ())), strict=True):
                yield Place(operation, POLLED, offset, value)


def named(operation: Operation, key: int) -> Iterator[Place]:
    """Yield offsets of the key that an operation committed or was told: of a group, or an end of the log."""
    for commit in operation.commits:
        if key in commit.offsets:
            yield Place(operation, NAMED, commit.offsets[key], None)
    if operation.f in ("committed", "ends", "final", "delete") and operation.value:
        said = operation.value.get(key)
        for offset in said if isinstance(said, list) else [] if said is None else [said]:
            yield Place(operation, NAMED, offset, None)


def at_odds(seen: Sequence[Place], odd: Sequence[Place], text: str) -> list[Place]:
    """Return what is at odds of a key: values that lie twice, or where another does, whoever has seen them there first.

    If none does, values that one of the operations at odds sent and another polled, else all of these. Of more than the
    finding's ``text`` names, those that it names.
    """
    values: dict[int, set[int | None]] = defaultdict(set)
    offsets: dict[int | None, set[int]] = defaultdict(set)
    first: dict[tuple[int, int | None], Place] = {}
    for place in seen:
        values[place.offset].add(place.value)
        offsets[place.value].add(place.offset)
        first.setdefault((place.offset, place.value), place)
    met = {place.value for place in odd} | {value for place in odd for value in values[place.offset]}
    parted = [place for place in (*odd, *first.values()) if place.value in met]
    parted = [place for place in parted if len(values[place.offset]) > 1 or len(offsets[place.value]) > 1]
    sent = {place.value for place in odd if place.kind == SENT}
    shared = sent & {place.value for place in odd if place.kind == POLLED}
    found = parted or [place for place in odd if place.value in shared] or list(odd)
    told = set(map(int, re.findall(r"-?\d+", text)))
    return list(dict.fromkeys([place for place in found if place.value in told] or found))


def chart(history: History, key: int, text: str, shades: Sequence[Shade], colours: Mapping[int, int]) -> Iterator[str]:
    """Yield the pictures of a key: all of it, and what is at odds from near by, unless that is most of it.

    ``colours``: of operations at odds, by their ids; ``text`` is the finding's.
    """
    seen = places(history, key)
    if not seen:
        return
    odd = [place for place in seen if id(place.operation) in colours]
    said = [place for op in history.operations if id(op) in colours and op.time != NEVER for place in named(op, key)]
    parted = at_odds(seen, odd, text)
    whole = closed(history.times[0], [place.operation.time for place in (*seen, *said)])
    scale = _Scale([place.offset for place in (*seen, *said)], 180)
    unplaced = [
        (operation, send)
        for operation in history.operations
        for send in operation.sends
        if id(operation) in colours and send.key == key and send.offset is None
    ]
    near = _near(whole, scale, parted or said)

    def rows(axis: Axis, scale: _Scale, *, is_last: bool) -> Iterator[str]:
        yield from rows_of_faults(history, axis, shades)
        yield f'<div class="row plot"><div class="name scale" style="height:{scale.height_px}px">'
        for offset in scale.ticks():
            yield f'<span style="top:{scale.at(offset):.1f}px">{offset:,}</span>'
        yield f'</div><div class="track" style="height:{scale.height_px}px">'
        yield from _lines(scale)
        yield from _dots(seen, axis, scale)
        yield from _marks([*odd, *said, *parted], parted, axis, scale, colours, has_labels=is_last)
        yield "</div></div>"
        if unplaced and is_last:
            yield from row("place not told", _unplaced(unplaced, axis, colours))

    yield f'<figure class="offsets"><figcaption>Key {key}: offsets, upwards, at the seconds when they were seen</figcaption>'
    yield from picture(whole, shades, rows(whole, scale, is_last=near is None))
    if near is not None:
        yield "<figcaption>What is at odds, from near by</figcaption>"
        yield from picture(near[0], shades, rows(*near, is_last=True))
    yield "</figure>"


def _near(whole: Axis, scale: "_Scale", odd: Collection[Place]) -> "tuple[Axis, _Scale] | None":
    """Return where what is at odds can be told apart; None where that is so with all of the key."""
    if not odd:
        return None
    axis = whole.about([place.operation.time for place in odd])
    low, high = min(place.offset for place in odd), max(place.offset for place in odd)
    near = _Scale([max(scale.low, low - _ABOUT), min(scale.high, high + _ABOUT)], _HEIGHT_PX)
    is_much = axis.seconds > whole.seconds / 2 and near.high - near.low > (scale.high - scale.low) / 2
    return None if is_much else (axis, near)


class _Scale:
    """Where an offset is, in px from above."""

    def __init__(self, offsets: Collection[int], height_px: int) -> None:
        self.low, self.high, self.height_px = min(offsets), max(offsets), height_px

    def holds(self, offset: int) -> bool:
        return self.low <= offset <= self.high

    def at(self, offset: int) -> float:
        room = self.height_px - 2 * _EDGE_PX
        return _EDGE_PX + room * (self.high - offset) / max(self.high - self.low, 1)

    def ticks(self) -> Iterator[int]:
        step = max(round(round_step(max(self.high - self.low, 1) / _TICKS)), 1)
        yield from range(-(-self.low // step) * step, self.high + 1, step)


def _lines(scale: _Scale) -> Iterator[str]:
    for offset in scale.ticks():
        yield f'<i class="line" style="top:{scale.at(offset):.1f}px"></i>'


def _dots(seen: Sequence[Place], axis: Axis, scale: _Scale) -> Iterator[str]:
    """Yield all places, in grey: a dot for those that would be drawn upon each other."""
    yield f'<svg class="dots" viewBox="0 0 1000 {scale.height_px}" preserveAspectRatio="none">'
    for kind in (POLLED, SENT):
        dots = {
            (round(axis.at(place.operation.time) * 10), round(scale.at(place.offset)))
            for place in seen
            if place.kind == kind and scale.holds(place.offset) and axis.holds(place.operation.time)
        }
        yield f'<path class="{kind}" d="{"".join(f"M{x} {y}h0" for x, y in sorted(dots))}"/>'
    yield "</svg>"


def _marks(
    odd: Sequence[Place],
    parted: Collection[Place],
    axis: Axis,
    scale: _Scale,
    colours: Mapping[int, int],
    *,
    has_labels: bool,
) -> Iterator[str]:
    """Yield the places of operations at odds, each in its operation's colour; what is at odds with a ring and its value."""
    odd = [place for place in dict.fromkeys(odd) if scale.holds(place.offset) and axis.holds(place.operation.time)]
    labels: list[tuple[float, float, float]] = []  # left, right and height, in px, of what stands there
    yield f'<svg class="marks" height="{scale.height_px}">'
    for place in odd:
        x, y = axis.at(place.operation.time), scale.at(place.offset)
        kind = f"mark c{colours[id(place.operation)]}" if id(place.operation) in colours else "mark another"
        title = f"<title>{_said(place)}</title>"
        if place.kind == NAMED:
            bar = f'x="{x:.2f}%" y="{y - 2:.1f}" width="18" height="4" transform="translate(-9 0)"'
            yield f'<rect class="{kind}" {bar}>{title}</rect>'
        elif place.kind == SENT:
            square = f'x="{x:.2f}%" y="{y - 4:.1f}" width="8" height="8" transform="translate(-4 0)"'
            yield f'<rect class="{kind}" {square}>{title}</rect>'
        else:
            yield f'<circle class="{kind}" cx="{x:.2f}%" cy="{y:.1f}" r="4">{title}</circle>'
        if place in parted:
            yield f'<circle class="ring" cx="{x:.2f}%" cy="{y:.1f}" r="8"/>'
    for place in odd if has_labels else ():
        x, y, said = axis.at(place.operation.time), scale.at(place.offset), str(place.value)
        to_left = x > 50
        width = len(said) * _LETTER_PX
        begins = x * LEAST_PX / 100 + (-11 - width if to_left else 11)
        box = begins, begins + width, y
        if place in parted and not any(_overlap(box, other) for other in labels):
            labels.append(box)
            anchor = 'text-anchor="end" dx="-11"' if to_left else 'dx="11"'
            yield f'<text x="{x:.2f}%" y="{y + 4:.1f}" {anchor}>{said}</text>'
    yield "</svg>"


def _overlap(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    return one[0] < other[1] + _LETTER_PX and other[0] < one[1] + _LETTER_PX and abs(one[2] - other[2]) < _LINE_PX


def _said(place: Place) -> str:
    operation = place.operation
    who = f"by process {operation.process}, line {operation.completed}"
    what = operation.f if place.kind == NAMED else f"{place.value} {place.kind}"
    return f"{what} at {place.offset} {who}"


def _unplaced(sends: Sequence[tuple[Operation, Send]], axis: Axis, colours: Mapping[int, int]) -> Iterator[str]:
    for operation, send in sends:
        left = axis.at(operation.time if operation.time != NEVER else operation.time_invoked)
        title = escape(f"{send.value} sent by process {operation.process}, line {operation.invoked}")
        yield f'<i class="op odd c{colours[id(operation)]}" style="left:{left:.2f}%" title="{title}"></i>'
