"""``kt logs report``: an outage in figures, as text, JSON, TSV, and as a page with plots (SCL-18X to SCL-20X)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.logs.page.page import page
from kafkatool.commands.logs.report_data import Data, as_data, duration, without_leader
from kafkatool.commands.logs.session import (
    EXIT_CODES,
    input_options,
    log_session,
    make_selection,
    output,
    selection_options,
    strict_option,
    wanted_logs,
)
from kafkatool.commands.logs.verdict import verdict
from kafkatool.commands.shared.options import KtCommand, output_option
from kafkatool.commands.shared.output import Answer, Output
from kafkatool.core.statelog.jobs.report import make_report

EXAMPLES: Final = (
    "kt logs report --logs collected/",
    "kt logs report --logs collected/ --html outage.html --top 50",
    "kt logs report --logs collected/ --topic orders --skew --output json | jq '.items[0].partitions'",
)
NOTES: Final = (
    "Without leader: from the controller's word that a partition is offline to its next leader's election. The time "
    "before, until ZooKeeper noticed the broker's death, is in no state-change log.",
    '"Not visible": since Kafka 2.6 the log holds INFO only, where leaders\' own ISR changes and partitions going '
    "offline are missing; other counts of these are lower bounds then.",
    "--html writes one file that needs no network and no server.",
    EXIT_CODES,
)
COLUMNS: Final = (
    *("topic", "partition", "leaderless_ms", "longest_leaderless_ms", "leaderless_at_end", "outages", "elections"),
    *("leader_changes", "isr_shrinks", "isr_growths", "failed", "ignored", "leader", "isr", "deleted"),
)
KEYS: Final = (
    *("logs", "visibility", "totals", "controllers", "brokers", "partitions", "minutes", "skew", "lines", "plots"),
)


@click.command("report", cls=KtCommand, examples=EXAMPLES, columns=COLUMNS, json_keys=KEYS, notes=NOTES)
@input_options
@selection_options
@click.option(
    "--top", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Partitions and minutes told."
)
@click.option("--skew", is_flag=True, help="Also how far the brokers' clocks are apart, as far as requests prove it.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file.")
@strict_option
@output_option
@click.pass_context
def report(
    ctx: click.Context,
    /,
    names: str | None,
    logs_regex: str | None,
    zones: tuple[str, ...],
    master: str,
    top: int,
    skew: bool,
    html: Path | None,
    strict: bool,
    out: Output,
    **filters: Any,
) -> None:
    """An outage explained: who was without leader and how long, which brokers, which controllers, when."""
    selection = make_selection(**filters)
    wanted = wanted_logs(names, logs_regex)
    with log_session(wanted, master, zones) as session:
        made = make_report(session.gather(selection), session.spark, top=top)
    data = as_data(made, utc=bool(zones), with_skew=skew or html is not None)
    if html is not None:
        with output(html) as file:
            file.write(page(data).encode("utf-8", "replace"))
    out.show(Answer(lines(data), [data] if out.form == "json" else data["partitions"], COLUMNS))
    session.tell_warnings()
    if html is not None:
        out.note(f"{html} written: open it in a browser")
    if session.opened.broken or (strict and data["lines"]["unknown_form"]):
        ctx.exit(1)


def lines(data: Data) -> Iterator[str]:
    """The report as text."""
    about, totals, seen = data["logs"], data["totals"], data["visibility"]
    zone = "UTC" if about["utc"] else "brokers' local time"
    yield f"Logs: {about['files']} files, {data['lines']['lines']} lines"
    if about["first"] is None:
        yield "No line with a time: nothing to report."
        return
    yield f"From {about['first']} to {about['last']} ({zone}), {duration(about['span_ms'])}"
    yield from (f"Not visible: {what}" for what in seen["not_visible"])
    yield ""
    yield verdict(data)
    yield ""
    rows = [(c["epoch"], c["broker"], c["first"], c["last"], c["lines"], c["told_by"]) for c in data["controllers"]]
    yield from _table("Controllers", ("EPOCH", "BROKER", "FIRST HEARD", "LAST HEARD", "LINES", "TOLD BY"), rows)
    brokers = [
        (b["broker"], b["lines"], b["lost"], b["gained"], b["left_isr"], b["joined_isr"], b["led_at_end"])
        for b in data["brokers"]
    ]
    heading = ("BROKER", "LINES", "LEADERSHIPS LOST", "GAINED", "LEFT AN ISR", "CAME BACK", "LEADS AT THE END")
    yield from _table("Brokers", heading, brokers)
    told = f"Partitions: the {len(data['partitions'])} that suffered most, of {totals['partitions']}"
    partitions = [_partition_row(p, seen) for p in data["partitions"]]
    yield from _table(
        told,
        (
            *("PARTITION", "WITHOUT LEADER", "LONGEST", "TIMES", "ELECTIONS", "LEADER CHANGES", "ISR SHRANK", "GREW"),
            *("FAILED", "IGNORED", "AT THE END"),
        ),
        partitions,
    )
    minutes = [(m["minute"], m["lines"], _kinds(m["facts"])) for m in data["minutes"]]
    yield from _table("Busiest minutes", ("MINUTE", "LINES", "FACTS"), minutes)
    if data["skew"] is not None:
        skews = [
            (s["broker"], s["controller"], f"{s['behind_at_least_ms']} ms", _ahead(s), s["pairs"]) for s in data["skew"]
        ]
        yield from _table(
            "Clocks, beside the controller's",
            ("BROKER", "CONTROLLER", "BEHIND, AT LEAST", "AHEAD, AT MOST", "PAIRS"),
            skews,
        )
    yield from _table("Lines", ("CLASS", "NUMBER"), [(k.replace("_", " "), n) for k, n in data["lines"].items()])


def _partition_row(p: Data, seen: Data) -> tuple[object, ...]:
    end = "deleted" if p["deleted"] else "no leader" if p["leader"] is None else f"leader {p['leader']}"
    isr = ",".join(map(str, p["isr"] or ()))
    hidden = "not visible"
    return (
        f"{p['topic']}-{p['partition']}",
        without_leader(p, "leaderless_ms") + (" until the end" if p["leaderless_at_end"] else ""),
        without_leader(p, "longest_leaderless_ms"),
        hidden if p["outages"] is None else p["outages"],
        p["elections"],
        p["leader_changes"],
        hidden if p["isr_shrinks"] is None else p["isr_shrinks"],
        hidden if p["isr_growths"] is None else p["isr_growths"],
        p["failed"],
        p["ignored"],
        f"{end}, ISR {isr}" if isr and not p["deleted"] else end,
    )


def _ahead(skew: Data) -> str:
    return f"{max(skew['ahead_at_most_ms'], 0)} ms"


def _kinds(facts: Data) -> str:
    return ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in facts.items()) or "-"


def _table(title: str, heading: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A title, a heading, rows in columns, an empty line; nothing without rows."""
    if not rows:
        return
    cells = [tuple(map(str, row)) for row in (heading, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]
    right = [all(row[i].lstrip("-").isdigit() for row in cells[1:]) for i in range(len(heading))]
    yield title
    for row in cells:
        aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        yield f"  {'  '.join(aligned)}".rstrip()
    yield ""
