"""Rows of a picture of time, one below the other: labels on the left, and tracks on which an axis says where things are."""

from collections.abc import Collection, Iterator, Sequence
from html import escape

from tests.histories.history import History
from tests.histories.page.axis import Axis
from tests.histories.page.shades import ZOOKEEPER, Shade, lanes, lanes_of_brokers

_LEVEL_PX = 18


def picture(axis: Axis, shades: Sequence[Shade], rows: Iterator[str]) -> Iterator[str]:
    """Yield a picture whose first row is the time, with the faults of brokers and of ZooKeeper shaded over all of it."""
    yield '<div class="scroll"><div class="picture">'
    yield '<div class="row"><span class="name soft">seconds</span><div class="track ticks">'
    for left, told in axis.ticks():
        yield f'<span style="left:{left:.2f}%">{told}</span>'
    yield "</div></div>"
    yield from rows
    yield '<div class="over">'
    for shade in shades:
        if any(lane == ZOOKEEPER or lane.startswith("broker ") for lane in shade.lanes):
            for left, width in axis.pieces(shade.start, shade.end):
                yield f'<i class="shade" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
    for left, width in axis.gaps():
        yield f'<i class="gap" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
    yield "</div></div></div>"


def row(name: str, content: Iterator[str], height_px: int = _LEVEL_PX, kind: str = "") -> Iterator[str]:
    yield f'<div class="row {kind}"><span class="name">{escape(name)}</span><div class="track" style="height:{height_px}px">'
    yield from content
    yield "</div></div>"


def rows_of_faults(history: History, axis: Axis, shades: Collection[Shade]) -> Iterator[str]:
    """Yield the lanes of brokers, and of what else a fault befell; of faults at the same time one is below the other."""
    shown = [shade for shade in shades if any(axis.pieces(shade.start, shade.end))]
    for lane in lanes(history, shown):
        levels: list[int] = []  # until when each is taken
        bars = []
        for shade in shown:
            if lane in shade.lanes:
                level = next((n for n, end in enumerate(levels) if end <= shade.start), len(levels))
                levels[level : level + 1] = [shade.end]
                bars += list(_bars(history.times[0], axis, shade, level * _LEVEL_PX))
        kind = "broker" if lane in lanes_of_brokers(history) else "other"
        yield from row(lane, iter(bars), max(len(levels), 1) * _LEVEL_PX, kind)


def _bars(origin: int, axis: Axis, shade: Shade, top_px: int) -> Iterator[str]:
    times = f"{(shade.start - origin) / 1e9:,.3f} to {(shade.end - origin) / 1e9:,.3f} s"
    for left, width in axis.pieces(shade.start, shade.end):
        place = f"left:{left:.2f}%;width:{width:.2f}%;top:{top_px}px;height:{_LEVEL_PX - 2}px"
        yield f'<i class="fault" style="{place}" title="{escape(shade.told)}, {times}">{escape(shade.name)}</i>'
