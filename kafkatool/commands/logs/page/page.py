"""The report as one HTML page: no script, no network, no server; for wide and narrow screens, eyes and keyboards."""

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Final

from kafkatool import __version__
from kafkatool.commands.logs.page.plots import HATCH, Axis, bars, colour, lanes, legend, stacked
from kafkatool.commands.logs.report_data import Data
from kafkatool.commands.logs.report_text import (
    HIDDEN,
    Table,
    bound,
    chronology,
    duration,
    limits,
    listed_of_all,
    tables,
    verdict,
)
from kafkatool.core.model.values import in_number
from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.history.report import MINUTE_MS
from kafkatool.core.statelog.history.verdict import CANNOT_SAY, COMPLETE

MOST_MOMENTS: Final = 5
"""Lines of chronology at the top."""

MOST_MARKS: Final = 12
"""Controller changes marked in the plots; of more, the first."""

TINTS: Final = (
    ("linear-gradient(0deg,var(--soft) 50%,var(--line) 50%)", "half of its replicas in sync"),
    ("var(--faint)", "not there, or not told of"),
)
DASHES: Final = "repeating-linear-gradient(var(--soft) 0 3px,transparent 3px 6px) center/2px 100% no-repeat"
STILL: Final = ", still"
CLOCKS: Final = (
    "A request cannot arrive before it was sent: where the logs say so, a clock is behind by at least that much."
)


def page(data: Data) -> str:
    """Return the whole page."""
    style = files("kafkatool.commands.logs.page").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>State changes {escape(_period(data))}</title><style>{style}</style></head><body>"
        f'<a class="skip" href="#main">Skip to the report</a>{HATCH}{"".join(_body(data))}</body></html>\n'
    )


def _period(data: Data) -> str:
    about = data["logs"]
    if about["first"] is None:
        return "(no dated line)"
    first, last = about["first"], about["last"]
    return f"{first[:19]} to {last[11:19] if first[:10] == last[:10] else last[:19]}"


def _body(data: Data) -> Iterator[str]:
    about, totals = data["logs"], data["totals"]
    yield "<header><h1>What the state-change logs tell</h1>"
    zone = "UTC" if about["utc"] else "the brokers' local time"
    yield f'<p class="soft">{escape(_period(data))} ({zone}), {duration(about["span_ms"])}; '
    brokers, logs = in_number(len(data["brokers"]), "broker", "brokers"), in_number(about["files"], "file", "files")
    yield f"{brokers}, {logs}, {data['lines']['lines']:,} lines.</p>"
    trouble = totals["without_leader"] or totals["failed"] or totals["unclean"]
    kind = "" if trouble else " calm" if data["verdict"]["state"] == COMPLETE else " open"
    yield f'<p class="verdict{kind}">{escape(verdict(data))}</p>'
    yield from (f'<p class="hidden-facts">{escape(limit)}</p>' for limit in limits(data))
    if moments := list(chronology(data, MOST_MOMENTS)):
        rows = "".join(
            f'<li><time datetime="{escape(time.replace(" ", "T").replace(",", "."))}">{escape(_clock(data, time))}</time> '
            f"{escape(words)}</li>"
            for time, words in moments
        )
        yield f'<ol class="chronology">{rows}</ol>'
    sections = [(name, title) for name, title, there in _sections(data) if there]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in sections)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main id="main">'
    yield from _cards(data)
    if about["first"] is not None:
        yield from _plots(data)
    yield from _tables(data)
    yield f'</main><footer class="soft"><p>Made by kt logs report {escape(__version__)}.</p></footer>'


def _clock(data: Data, time: str) -> str:
    """Return a time to the second, with its day where the logs are of several."""
    return time[11:19] if data["logs"]["first"][:10] == data["logs"]["last"][:10] else time[:19]


def _sections(data: Data) -> list[tuple[str, str, bool]]:
    plots = data["logs"]["first"] is not None
    return [
        ("leaders", "Leaders", plots and bool(data["partitions"])),
        ("led", "Partitions led", plots and bool(data["plots"]["led"])),
        ("isr", "In-sync replicas", plots and bool(data["partitions"])),
        ("lines-per-minute", "Lines per minute", plots),
        ("controllers", "Controllers", bool(data["controllers"])),
        ("brokers", "Brokers", bool(data["brokers"])),
        ("partitions", "Partitions", bool(data["partitions"])),
        ("minutes", "Busiest minutes", bool(data["minutes"])),
        ("clocks", "Clocks", bool(data["skew"])),
        ("lines", "Lines", True),
    ]


def _cards(data: Data) -> Iterator[str]:
    totals = data["totals"]
    visible = data["visibility"]
    unread = data["verdict"]["state"] == CANNOT_SAY
    offline, isr = visible["offline"] and not unread, visible["leader_isr_changes"] and not unread
    shrinks, growths = bound(totals["isr_shrinks"], isr), bound(totals["isr_growths"], isr)
    longest = duration(totals["longest_leaderless_ms"]) if totals["outages"] or offline else 0
    controllers: object = HIDDEN
    if visible["controllers"] or data["controllers"]:
        controllers = bound(max(len(data["controllers"]) - 1, 0), visible["controllers"] and not unread)
    cards = [
        (bound(totals["without_leader"], offline), "partitions without leader, at times", totals["without_leader"]),
        (bound(longest, offline), "longest without leader", totals["outages"]),
        (bound(totals["still_without_leader"], offline), "without leader at the end", totals["still_without_leader"]),
        (bound(totals["leader_changes"], not (unread or totals["unseen"])), "leader changes", 0),
        (shrinks if shrinks == growths == HIDDEN else f"{shrinks} / {growths}", "ISR shrinks / growths", 0),
        (controllers, "controller changes", 0),
        (bound(totals["unclean"], not unread), "unclean elections", totals["unclean"]),
        (bound(totals["failed"], visible["controllers"] and not unread), "failed transitions", totals["failed"]),
        (totals["unseen"], "changes not in these logs", 0),
        (totals["ignored"] + totals["stale_controllers"], "stale requests ignored", 0),
    ]
    yield '<div class="cards">'
    for value, words, bad in cards:
        yield f'<div class="card{" bad" if bad else ""}"><b>{value}</b><span>{words}</span></div>'
    yield "</div>"


def _plots(data: Data) -> Iterator[str]:
    plots = data["plots"]
    axis = Axis(plots["start_ms"], plots["end_ms"])
    brokers = [int(broker) for broker in plots["led"]]
    marks = _marks(data)
    colours = [(colour(i), f"broker {broker}") for i, broker in enumerate(brokers)]
    taken_over = [(DASHES, "another controller took over")] * bool(marks)
    none = ("repeating-linear-gradient(45deg,var(--bad) 0 4px,#fff6 4px 6px)", "no leader")
    if data["partitions"]:
        yield f'<section id="leaders"><h2>Leaders</h2><p>The {len(data["partitions"])} partitions that suffered most, of '
        yield f"{data['totals']['partitions']}. Colour: who leads. Height: how many of its replicas are in sync. "
        yield "A lane opens to its story in figures.</p><figure>"
        yield legend([*colours, none, *TINTS, *taken_over])
        yield lanes(data["partitions"], brokers, axis, marks)
        yield "</figure></section>"
    if brokers:
        series = [(colour(i), f"broker {broker}", plots["led"][str(broker)]) for i, broker in enumerate(brokers)]
        series.append(("url(#none)", "no leader", plots["without_leader"]))
        yield '<section id="led"><h2>Partitions led, by broker</h2><p>A broker that dies loses its share; '
        yield "red is what nobody led.</p><figure>" + legend([*colours, none, *taken_over])
        label = "Partitions led by each broker over time"
        yield stacked(series, axis, steps=plots["steps"], marks=marks, label=label, unit="partitions")
        yield "</figure></section>"
    if data["partitions"]:
        yield '<section id="isr"><h2>In-sync replicas</h2><p>Replicas that are assigned but not in sync, in all '
        yield "partitions together: while it is above 0, a further death may cost data or leaders.</p><figure>"
        missing = [("var(--b7)", "out of sync", plots["out_of_sync"])]
        label = "Replicas out of sync over time"
        yield stacked(missing, axis, steps=plots["steps"], marks=marks, label=label, unit="replicas")
        yield "</figure></section>"
    minutes = plots["bar_minutes"]
    each = "minute" if minutes == 1 else f"{minutes} minutes"
    yield f'<section id="lines-per-minute"><h2>Lines per {each}</h2><figure>'
    origin = plots["start_ms"] // MINUTE_MS * MINUTE_MS
    wide = Axis(min(origin, plots["start_ms"]), max(plots["end_ms"], origin + len(plots["bars"]) * minutes * MINUTE_MS))
    yield bars(plots["bars"], minutes * MINUTE_MS, origin, wide, label=f"Lines per {each}", marks=marks)
    yield "</figure></section>"


def _marks(data: Data) -> list[tuple[int, str]]:
    """Return the times when another controller took over, and their labels."""
    found = [
        (milliseconds(new["first"]), f"controller {old['broker']} → {new['broker']}")
        for old, new in pairwise(data["controllers"])
    ]
    plots = data["plots"]
    return [mark for mark in found if plots["start_ms"] <= mark[0] <= plots["end_ms"]][:MOST_MARKS]


def _tables(data: Data) -> Iterator[str]:
    about = {"partitions": f"The {listed_of_all(data)}.", "clocks": CLOCKS}
    for table in tables(data, still=STILL):
        yield from _table(table, about.get(table.name, ""))


def _table(table: Table, about: str) -> Iterator[str]:
    if not table.rows:
        return
    figures = [word not in table.texts for word in table.heading]
    head = "".join(
        f'<th scope="col"{" class=n" if n else ""}>{escape(word)}</th>'
        for word, n in zip(table.heading, figures, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(_cell(value, n) for value, n in zip(row, figures, strict=True))}</tr>" for row in table.rows
    )
    told = f"<p>{escape(about)}</p>" if about else ""
    title = escape(table.title)
    yield (
        f'<section id="{table.name}"><h2>{title}</h2>{told}<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{title}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _cell(value: object, is_figure: bool) -> str:
    text = f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    kinds = ["n"] * is_figure + ["bad"] * (text == "no leader" or text.endswith(STILL)) + ["wrap"] * (len(text) > 60)
    return f'<td{f""" class="{" ".join(kinds)}" """.rstrip() if kinds else ""}>{escape(text)}</td>'
