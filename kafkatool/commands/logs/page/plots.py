"""The plots of the report's page: SVG for shapes, HTML for every word, so that text keeps its size on any screen.

Shapes are drawn in a box 1000 wide that is stretched to the room there is. Every plot's numbers are in the page as
text too: a lane unfolds to its spans, a plot to a table.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Final

from kafkatool.commands.logs.report_data import Data
from kafkatool.commands.logs.report_text import duration

WIDTH: Final = 1000
COLOURS: Final = 8
GOLDEN_ANGLE: Final = 137.5  # from hue to hue: none comes near an earlier one soon
LANE_HEIGHT: Final = 100
MOST_TICKS: Final = 8
TABLE_ROWS: Final = 24
LABEL_WIDTH: Final = 18
"""Of a plot's width in per cent: what a label of nine letters takes on a narrow screen."""


_TICK_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000),
    *(900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000),
)

HATCH: Final = (
    '<svg style="position:absolute;width:0;height:0" aria-hidden="true"><defs><pattern id="none" width="8" height="8"'
    ' patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="8" height="8" fill="var(--bad)"/>'
    '<rect width="3" height="8" fill="#fff" opacity=".35"/></pattern></defs></svg>'
)


class Axis:
    """Time from left to right: places in the box, and words for times."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.start_ms = start_ms
        self.length_ms = max(end_ms - start_ms, 1)

    def x(self, at_ms: float) -> float:
        """Return the place of a time in the box."""
        return round((at_ms - self.start_ms) / self.length_ms * WIDTH, 2)

    def ticks(self) -> str:
        """Return the times beneath a plot."""
        step = next((t for t in _TICK_MS if self.length_ms / t <= MOST_TICKS), None)
        if step is None:
            step = 86_400_000 * -(-self.length_ms // (86_400_000 * MOST_TICKS))
        first = -(-self.start_ms // step) * step
        found = []
        for i, at in enumerate(range(first, self.start_ms + self.length_ms + 1, step)):
            place = self.x(at) / 10
            kinds = ["odd"] * (i % 2) + ["first"] * (place < 4) + ["last"] * (place > 96)
            kind = f' class="{" ".join(kinds)}"' if kinds else ""
            found.append(f'<span{kind} style="left:{place:.2f}%">{self._word(at, step)}</span>')
        return f'<div class="ticks" aria-hidden="true">{"".join(found)}</div>'

    def _word(self, at: int, step: int) -> str:
        form = "%d %b" if step >= 86_400_000 else "%d %b %H:%M" if self.length_ms > 2 * 86_400_000 else "%H:%M"
        word = _time(at).strftime("%H:%M:%S" if step < 60_000 else form)
        return f"{word}.{at % 1000:03d}" if step < 1000 else word


def clock(at_ms: float) -> str:
    """Return a time of day with milliseconds."""
    return f"{_time(int(at_ms)):%Y-%m-%d %H:%M:%S},{int(at_ms) % 1000:03d}"


def colour(index: int) -> str:
    """Return the colour of the broker at that place in the list of brokers; from the ninth on they are less distinct."""
    return f"var(--b{index})" if index < COLOURS else f"hsl({index * GOLDEN_ANGLE % 360:.0f} 45% 50%)"


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return what colours mean."""
    items = "".join(f'<li><i style="background:{fill}"></i>{escape(word)}</li>' for fill, word in entries)
    return f'<ul class="legend">{items}</ul>'


def lanes(partitions: Sequence[Data], brokers: Sequence[int], axis: Axis, marks: Sequence[tuple[int, str]]) -> str:
    """Draw one lane for each partition: colour its leader, height its share of replicas in sync, red where it has none."""
    rows = "".join(_lane(partition, brokers, axis) for partition in partitions)
    head = f'<div class="plot" aria-hidden="true"><div></div>{_marks(axis, marks, "marks")}</div>' if marks else ""
    return f'<div class="lanes">{head}{rows}<div class="plot"><div></div>{axis.ticks()}</div></div>'


def stacked(
    series: Sequence[tuple[str, str, Sequence[int]]],
    axis: Axis,
    *,
    steps: int,
    marks: Sequence[tuple[int, str]],
    label: str,
    unit: str,
) -> str:
    """Draw areas one upon the other, each (colour, name, value at each step)."""
    top = max((sum(values) for values in zip(*(v for _, _, v in series), strict=True)), default=0) or 1
    shapes = []
    base = [0.0] * (steps + 1)
    for fill, name, values in series:
        upper = [b + v for b, v in zip(base, values, strict=True)]
        if any(values):
            shapes.append(
                f'<path fill="{fill}" d="{_area(base, upper, steps, top)}"><title>{escape(name)}</title></path>'
            )
        base = upper
    table = _table(
        ("time", *(name for _, name, _ in series)),
        [
            (clock(axis.start_ms + axis.length_ms * i / steps), *(str(values[i]) for _, _, values in series))
            for i in _changes([values for _, _, values in series])
        ],
        unit,
    )
    return f"{_plot(''.join(shapes), axis, top, marks, label)}{table}"


def bars(
    values: Sequence[int], bar_ms: int, origin_ms: int, axis: Axis, *, label: str, marks: Sequence[tuple[int, str]]
) -> str:
    """Draw one bar for each stretch of time."""
    top = max(values, default=0) or 1
    shapes = []
    for i, value in enumerate(values):
        left, right = axis.x(max(origin_ms + i * bar_ms, axis.start_ms)), axis.x(origin_ms + (i + 1) * bar_ms)
        width = max(min(right, WIDTH) - left - (1 if len(values) < 200 else 0), 0.5)
        height = round(value / top * LANE_HEIGHT, 2)
        if value:
            shapes.append(
                f'<rect fill="{colour(0)}" x="{left}" y="{LANE_HEIGHT - height:.2f}" width="{width:.2f}" height="{height}">'
                f"<title>{clock(origin_ms + i * bar_ms)}: {value} lines</title></rect>"
            )
    rows = [(clock(origin_ms + i * bar_ms), str(value)) for i, value in enumerate(values)]
    busiest = sorted(sorted(rows, key=lambda row: -int(row[1]))[:TABLE_ROWS])
    return f"{_plot(''.join(shapes), axis, top, marks, label)}{_table(('from', 'lines'), busiest, 'the busiest')}"


def _lane(partition: Data, brokers: Sequence[int], axis: Axis) -> str:
    name = f"{partition['topic']}-{partition['partition']}{' (deleted)' if partition['deleted'] else ''}"
    shapes, words, told = [], [], []
    for span in partition["spans"]:
        left, right = axis.x(span["start_ms"]), axis.x(span["end_ms"])
        width = max(right - left, 1.5)
        leader, in_sync, replicas = span["leader"], span["in_sync"], span["replicas"]
        if leader is None:
            shapes.append(f'<rect fill="url(#none)" x="{left}" y="0" width="{width:.2f}" height="{LANE_HEIGHT}"/>')
        else:
            share = min(in_sync / replicas, 1) if replicas else 1
            fill = colour(brokers.index(leader))
            height = round(share * LANE_HEIGHT, 1)
            shapes.append(
                f'<rect fill="{fill}" opacity=".28" x="{left}" y="0" width="{width:.2f}" height="{LANE_HEIGHT}"/>'
                f'<rect fill="{fill}" x="{left}" y="{LANE_HEIGHT - height}" width="{width:.2f}" height="{height}"/>'
            )
        if word := _word(leader, width / WIDTH * 100):
            words.append(f'<b style="left:{left / 10:.2f}%">{word}</b>')
        length = duration(span["end_ms"] - span["start_ms"])
        told.append(
            (clock(span["start_ms"]), length, "none" if leader is None else str(leader), f"{in_sync} of {replicas}")
        )
    svg = f'<svg viewBox="0 0 {WIDTH} {LANE_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{"".join(shapes)}</svg>'
    track = f'<span class="track">{svg}{"".join(words)}</span>'
    rows = _rows(("from", "for", "leader", "in sync"), told)
    return (
        f'<details class="lane"><summary><span class="name">{escape(name)}</span>{track}</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}, span by span">{rows}</div></details>'
    )


def _word(leader: int | None, width: float) -> str:
    """Return what to write on a span so many per cent wide: nothing where it would lie over the next, however narrow."""
    if leader is not None:
        return str(leader) if width > 6 else ""
    return "no leader" if width >= LABEL_WIDTH else "none" if width > LABEL_WIDTH * 0.6 else ""


def _plot(shapes: str, axis: Axis, top: int, marks: Sequence[tuple[int, str]], label: str) -> str:
    levels = sorted({0, top, *({round(top / 2)} if top > 3 else ())})
    scale = "".join(f'<span style="bottom:{level / top * 100:.1f}%">{level}</span>' for level in levels)
    grid = "".join(
        f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
        for y in (LANE_HEIGHT - level / top * LANE_HEIGHT for level in levels[1:])
    )
    upright = "".join(
        f'<line class="mark" x1="{axis.x(at)}" x2="{axis.x(at)}" y1="0" y2="{LANE_HEIGHT}"/>' for at, _ in marks
    )
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {LANE_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f"{grid}{shapes}{upright}</svg>"
    )
    above = f"<div></div>{_marks(axis, marks, 'marks')}" if marks else ""
    return (
        f'<div class="plot">{above}<div class="scale" aria-hidden="true">{scale}</div><div class="area">{svg}</div>'
        f"<div></div>{axis.ticks()}</div>"
    )


def _marks(axis: Axis, marks: Sequence[tuple[int, str]], kind: str) -> str:
    spans = []
    written = -float(LABEL_WIDTH)
    for at, word in marks:
        place = axis.x(at) / 10
        late = ' class="late"' if place > 60 else ""
        shown = escape(word) if place - written >= LABEL_WIDTH else ""  # labels that lie upon each other can't be read
        written = place if shown else written
        spans.append(f'<span{late} style="left:{place:.2f}%" title="{escape(word)}">{shown}</span>')
    return f'<div class="{kind}" aria-hidden="true">{"".join(spans)}</div>'


def _area(lower: Sequence[float], upper: Sequence[float], steps: int, top: int) -> str:
    """Return the outline between two step lines."""

    def y(value: float) -> str:
        return f"{LANE_HEIGHT - value / top * LANE_HEIGHT:.2f}".rstrip("0").rstrip(".")

    def x(step: int) -> str:
        return f"{step / steps * WIDTH:.1f}".rstrip("0").rstrip(".")

    changes = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(zip(lower, upper, strict=True))) if a != b)]
    ends = [*changes[1:], steps]
    there = "".join(f"L{x(i)} {y(upper[i])}L{x(e)} {y(upper[i])}" for i, e in zip(changes, ends, strict=True))
    back = "".join(
        f"L{x(e)} {y(lower[i])}L{x(i)} {y(lower[i])}" for i, e in reversed([*zip(changes, ends, strict=True)])
    )
    return f"M{x(0)} {y(upper[0])}{there}{back}Z"


def _changes(series: Sequence[Sequence[int]]) -> list[int]:
    """Return the steps at which a value changes; the first ones if there are many."""
    rows = list(zip(*series, strict=True))
    return [i for i in range(len(rows) - 1) if i == 0 or rows[i] != rows[i - 1]][:TABLE_ROWS]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], about: str) -> str:
    return (
        f'<details class="figures"><summary>As a table ({escape(about)})</summary><div class="scroll" tabindex="0" '
        f'role="region" aria-label="Table">{_rows(heading, rows)}</div></details>'
    )


def _rows(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in heading)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC)
