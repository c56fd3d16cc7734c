"""One page to look at a run: what befell brokers, who did what when, and what lay where, with what is at odds in colour.

It works without network, and without a program in it: all is laid out here, and what does not fit on a screen scrolls.
"""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from tests.histories.analyser.verdict import Anomaly, Verdict
from tests.histories.analyser.versions import Finding
from tests.histories.history import History, Operation, read_file
from tests.histories.page.offsets import chart, places
from tests.histories.page.operations import COLOURS, axis_around, lanes, whole
from tests.histories.page.shades import Shade, shades
from tests.histories.page.words import LONG, told

_SHOWN: Final = 5  # findings of each kind
_MOST_KEYS: Final = 3  # of a finding that is of no single one
_STYLE: Final = Path(__file__).with_name("page") / "page.css"
_NOTHING_FROM_OUTSIDE: Final = "default-src 'none'; style-src 'unsafe-inline'"
_LEGEND: Final = (
    ('<i class="op ok"></i>', "operation: it happened (ok)"),
    ('<i class="op info"></i>', "nobody knows (info)"),
    ('<i class="op fail"></i>', "it did not happen (fail)"),
    ('<i class="op odd c0"></i>', "at odds, a colour for each operation"),
    ('<i class="fault"></i>', "fault, on the lane of whom it befell; shaded over all others"),
    ('<i class="gap"></i>', "time left out"),
    ('<svg><rect class="mark c0" x="7" y="3" width="8" height="8"/></svg>', "sent"),
    ('<svg><circle class="mark c0" cx="11" cy="7" r="4"/></svg>', "polled"),
    ('<svg><rect class="mark c0" x="2" y="5" width="18" height="4"/></svg>', "committed or told without a value"),
    ('<svg><circle class="ring" cx="11" cy="7" r="6"/></svg>', "the value at odds"),
)


def write_page(history_file: Path, page: Path, verdict: Verdict | None) -> None:
    """Write the page beside the history; where nothing was found, or judged, it shows the last operations."""
    page.write_text("".join(_page(read_file(history_file), verdict)))


def _page(history: History, verdict: Verdict | None) -> Iterator[str]:
    header = history.header
    name = f"Seed {header['seed']} on {header['source']} {header['version']}".strip()
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_FROM_OUTSIDE}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE.read_text()}</style></head><body>"
    yield f"<h1>{escape(name)}</h1>"
    options = ", ".join(f"{option} {value}" for option, value in history.options.items())
    yield f'<p class="soft">{escape(options)}</p>'
    yield from _verdict(verdict)
    yield '<ul class="legend">'
    yield from (f"<li>{sign}{words}</li>" for sign, words in _LEGEND)
    yield "</ul><p class=soft>Point at anything to read what it is. Seconds count from the first line of the history.</p>"
    if not history.times:
        yield "<p>Nothing was done.</p></body></html>"
        return
    faults = shades(history)
    anomalies = sorted(verdict.anomalies if verdict else (), key=lambda a: (a.allowed is not None, a.kind))
    yield "<h2>The whole run</h2><figure>"
    unallowed = [anomaly for anomaly in anomalies if anomaly.allowed is None]
    yield from whole(history, faults, {(min(f.lines), a.kind) for a in unallowed for f in a.findings if f.lines})
    yield "</figure>"
    if not anomalies:
        yield "<h2>The last operations</h2><figure>"
        yield from lanes(history, axis_around(history, [len(history.times) - 1]), faults, {})
        yield "</figure>"
    by_line = {line: op for op in history.operations for line in (op.invoked, op.completed)}
    for number, anomaly in enumerate(anomalies):
        yield from _anomaly(history, anomaly, number, faults, by_line)
    yield "</body></html>"


def _verdict(verdict: Verdict | None) -> Iterator[str]:
    if verdict is None:
        yield '<p class="bad">The run did not end.</p>'
        return
    yield f'<ul class="verdict{"" if verdict.unallowed or verdict.too_little else " calm"}">'
    yield from (f"<li>{escape(line)}</li>" for line in verdict.lines())
    yield "</ul>"
    if verdict.anomalies:
        anomalies = sorted(verdict.anomalies, key=lambda a: (a.allowed is not None, a.kind))
        yield "<nav><ul>"
        yield from (f'<li><a href="#kind-{n}">{escape(a.kind)}</a></li>' for n, a in enumerate(anomalies))
        yield "</ul></nav>"


def _anomaly(
    history: History, anomaly: Anomaly, number: int, faults: Sequence[Shade], by_line: dict[int, Operation]
) -> Iterator[str]:
    judged = f"allowed: {escape(anomaly.allowed)}" if anomaly.allowed else '<span class="bad">not allowed</span>'
    kind = escape(anomaly.kind)
    yield f'<section data-kind="{kind}"><h2 id="kind-{number}">{kind}, {len(anomaly.findings)} times ({judged})</h2>'
    shown = 1 if anomaly.allowed else _SHOWN
    if len(anomaly.findings) > shown:
        yield f"<p class=soft>The smallest {shown} of them:</p>"
    for finding in sorted(anomaly.findings, key=lambda f: (len(f.lines), f.lines))[:shown]:
        yield f"<h3>{escape(finding.text)}; lines {', '.join(map(str, finding.lines))}</h3>"
        yield from _finding(history, finding, faults, by_line)
    yield "</section>"


def _finding(
    history: History, finding: Finding, faults: Sequence[Shade], by_line: dict[int, Operation]
) -> Iterator[str]:
    odd = {id(op): op for op in (by_line[line] for line in finding.lines if line in by_line)}
    in_order = sorted(odd.values(), key=lambda op: op.invoked)
    colours = {id(op): number % COLOURS for number, op in enumerate(in_order)}
    yield '<figure class="lanes">'
    yield from lanes(history, axis_around(history, finding.lines or [0]), faults, colours)
    yield '<ul class="odds">'
    for op in in_order:
        words = escape(told(op, history.times[0], LONG))
        yield f'<li><i class="c{colours[id(op)]}"></i>process {escape(str(op.process))}: {words}</li>'
    yield "</ul></figure>"
    for key in _keys(history, finding, in_order):
        yield from chart(history, key, finding.text, faults, colours)


def _keys(history: History, finding: Finding, odd: Sequence[Operation]) -> Sequence[int]:
    """Return the finding's key; of one that is of none, keys that several of its operations have in common."""
    if finding.key is not None:
        return [finding.key]
    concerned = [{s.key for s in op.sends} | {key for poll in op.polls for key in poll.runs} for op in odd]
    common = {key for keys in concerned for key in keys if sum(key in others for others in concerned) > 1}
    return [key for key in sorted(common) if places(history, key)][:_MOST_KEYS]
