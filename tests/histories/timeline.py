"""One page to look at a run that is not clean: who did what when, with what is at odds marked. Works without network."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from tests.histories.analyser.verdict import Verdict
from tests.histories.analyser.versions import Finding
from tests.histories.history import NEVER, History, Operation, read_file

_SHOWN: Final = 5  # findings of each kind
_AROUND: Final = 60  # operations before and after those of a finding
_WIDTH, _LANE, _LEFT = 1400, 22, 90
_STYLE: Final = """
body { font: 14px sans-serif; margin: 2em; color: #222 }
svg { background: #fafafa; border: 1px solid #ccc; display: block; margin: .5em 0 2em }
.ok { fill: #9bc59b } .info { fill: #e8c86a } .fail { fill: #c9c9c9 } .fault { fill: #d33; opacity: .12 }
.odd { fill: #d22; stroke: #600; stroke-width: 2 } .lane { stroke: #ddd } text { font-size: 11px }
.dot { fill: #5b8dc9 } .dot.odd { fill: #d22 }
b.bad { color: #c00 } code { white-space: pre-wrap }
"""


def write_page(history_file: Path, page: Path, verdict: Verdict | None) -> None:
    """Write the page beside the history; a run without a verdict shows its last operations."""
    page.write_text("".join(_page(read_file(history_file), verdict)))


def _page(history: History, verdict: Verdict | None) -> Iterator[str]:
    header = history.header
    yield f"<!doctype html><meta charset=utf-8><title>History of seed {header['seed']}</title><style>{_STYLE}</style>"
    yield f"<h1>Seed {header['seed']} on {escape(header['source'])} {escape(header['version'])}</h1>"
    yield f"<p><code>{escape(str(dict(history.options)))}</code></p>"
    yield "<p>A bar is an operation: green ok, yellow unknown, grey failed, red at odds; a fault shades its time. "
    yield "Point at one to read it.</p>"
    by_line = {line: op for op in history.operations for line in (op.invoked, op.completed)}
    if verdict is None:
        yield "<h2>The run did not end; its last operations</h2>"
        yield from _lanes(history, history.operations[-2 * _AROUND :], set())
        return
    yield f"<p><code>{escape(chr(10).join(verdict.lines()))}</code></p>"
    for anomaly in sorted(verdict.anomalies, key=lambda a: (a.allowed is not None, a.kind)):
        judged = f"allowed: {anomaly.allowed}" if anomaly.allowed else "<b class=bad>not allowed</b>"
        yield f"<h2>{escape(anomaly.kind)}, {len(anomaly.findings)} times ({judged})</h2>"
        for finding in sorted(anomaly.findings, key=lambda f: (len(f.lines), f.lines))[
            : _SHOWN if not anomaly.allowed else 1
        ]:
            odd = {id(by_line[line]) for line in finding.lines if line in by_line}
            yield f"<p>{escape(finding.text)}; lines {', '.join(map(str, finding.lines))}</p>"
            yield from _lanes(history, _around(history, finding), odd)
            if finding.key is not None:
                yield from _offsets(history, finding.key, odd)


def _around(history: History, finding: Finding) -> Sequence[Operation]:
    """Return what to show: around each line, and only of the same key between."""
    operations = history.operations
    wanted: set[int] = set()
    for place, operation in enumerate(operations):
        if operation.completed in finding.lines or operation.invoked in finding.lines:
            wanted.update(range(max(0, place - _AROUND), min(len(operations), place + _AROUND)))
    return [operations[place] for place in sorted(wanted)]


def _span(operation: Operation) -> tuple[int, int]:
    return operation.time_invoked, operation.time if operation.time != NEVER else operation.time_invoked


def _lanes(history: History, shown: Sequence[Operation], odd: set[int]) -> Iterator[str]:
    if not shown:
        return
    first, last = min(_span(o)[0] for o in shown), max(_span(o)[1] for o in shown)
    scale = (_WIDTH - _LEFT - 20) / max(1, last - first)
    processes = sorted({o.process for o in shown}, key=str)
    height = _LANE * len(processes) + 30
    yield f"<svg class=lanes width={_WIDTH} height={height}>"
    yield from _faults(history, first, last, scale, height)
    for row, process in enumerate(processes):
        y = row * _LANE + 4
        yield f"<line class=lane x1=0 x2={_WIDTH} y1={y + _LANE - 3} y2={y + _LANE - 3} />"
        yield f"<text x=4 y={y + 14}>process {escape(str(process))}</text>"
        for operation in shown:
            if operation.process == process:
                begun, ended = _span(operation)
                x, width = _LEFT + (begun - first) * scale, max(2.0, (ended - begun) * scale)
                kind = "odd" if id(operation) in odd else operation.type
                yield f"<rect class={kind} x={x:.1f} y={y} width={width:.1f} height={_LANE - 6}>"
                yield f"<title>{escape(_told(operation))}</title></rect>"
    yield f"<text x={_LEFT} y={height - 6}>{(last - first) / 1e9:.3f} s from {first / 1e9:.3f} s on</text></svg>"


def _faults(history: History, first: int, last: int, scale: float, height: int) -> Iterator[str]:
    for start, end, told in _spans(history, first, last):
        if start < last and end > first:
            left = _LEFT + (max(start, first) - first) * scale
            width = (min(end, last) - max(start, first)) * scale
            yield f"<rect class=fault x={left:.1f} y=0 width={width:.1f} height={height}>"
            yield f"<title>{escape(told)}</title></rect>"


def _spans(history: History, first: int, last: int) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and words of each fault: the simulation tells its end when it begins."""
    begun: dict[int, int] = {}
    for line in history.faults:
        value, told = line["value"], ", ".join(line["value"]["faults"])
        if "until" in value:
            yield line["time"], value["until"], told
        elif value["begins"]:
            begun[value["step"]] = line["time"]
        else:
            yield begun.pop(value["step"], first), line["time"], told
    yield from ((start, last, "still") for start in begun.values())


def _offsets(history: History, key: int, odd: set[int]) -> Iterator[str]:
    """Draw a key's offsets over time: what was sent and polled where."""
    dots = [
        (operation, offset, value)
        for operation in history.operations
        for part in operation.parts
        for offset, value in _places(part, key)
        if operation.time != NEVER
    ]
    if not dots:
        return
    first, last = min(o.time for o, _, _ in dots), max(o.time for o, _, _ in dots)
    low, high = min(at for _, at, _ in dots), max(at for _, at, _ in dots)
    across, down = (_WIDTH - _LEFT - 20) / max(1, last - first), 180 / max(1, high - low)
    yield f"<svg class=offsets width={_WIDTH} height=220><text x=4 y=16>key {key}</text>"
    yield f"<text x=4 y=34>offset {high}</text><text x=4 y=200>offset {low}</text>"
    yield from _faults(history, first, last, across, 220)
    for operation, offset, value in sorted(dots, key=lambda dot: id(dot[0]) in odd):
        x, y = _LEFT + (operation.time - first) * across, 205 - (offset - low) * down
        marked = " odd" if id(operation) in odd else ""
        yield f'<circle class="dot{marked}" cx={x:.1f} cy={y:.1f} r={4 if marked else 2}>'
        yield f"<title>{value} at {offset} by process {operation.process}</title></circle>"
    yield "</svg>"


def _places(part: object, key: int) -> Iterator[tuple[int, int | None]]:
    if (runs := getattr(part, "runs", None)) is not None:
        offsets, values = runs.get(key, ((), ()))
        yield from zip(offsets, values, strict=True)
    elif getattr(part, "key", None) == key and (offset := getattr(part, "offset", None)) is not None:
        yield offset, getattr(part, "value", None)


def _told(operation: Operation) -> str:
    parts = [str(part) for part in operation.parts] or [str(operation.value)]
    said = "\n".join(part if len(part) < 400 else part[:400] + " ..." for part in parts)
    return f"lines {operation.invoked} to {operation.completed}: {operation.f} {operation.type}\n{said}"
