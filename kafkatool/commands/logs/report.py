"""``kt logs report``: an outage in figures, as text, JSON, TSV, and as a page with plots (SCL-18X to SCL-20X)."""

from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.logs.page.page import page
from kafkatool.commands.logs.report_data import as_data
from kafkatool.commands.logs.report_text import text_lines
from kafkatool.commands.logs.session import (
    EXIT_CODES,
    asked_about,
    input_options,
    log_session,
    make_selection,
    output,
    selection_options,
    strict_option,
    wanted_logs,
)
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
    *(
        "leader_changes",
        "isr_shrinks",
        "isr_growths",
        "failed",
        "ignored",
        "unseen",
        "unclean",
        "leader",
        "isr",
        "deleted",
    ),
)
KEYS: Final = (
    "verdict",
    "logs",
    "visibility",
    "totals",
    "controllers",
    "brokers",
    "partitions",
    "minutes",
    "skew",
    "lines",
    "plots",
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
def report(
    names: str | None,
    logs_regex: str | None,
    zones: tuple[str, ...],
    master: str,
    settings: dict[str, str],
    top: int,
    skew: bool,
    html: Path | None,
    strict: bool,
    out: Output,
    **filters: Any,
) -> int:
    """An outage explained: who was without leader and how long, which brokers, which controllers, when."""
    selection = make_selection(**filters)
    wanted = wanted_logs(names, logs_regex)
    with log_session(wanted, master, zones, settings=settings) as session:
        gathered = session.gather(selection)
        made = make_report(gathered, top=top)
    data = as_data(made, utc=bool(zones), with_skew=skew or html is not None, asked=asked_about(selection))
    if html is not None:
        with output(html) as file:
            file.write(page(data).encode("utf-8", "replace"))
    out.show(Answer(text_lines(data), data["partitions"] if out.form == "tsv" else [data], COLUMNS))
    session.tell_warnings()
    if not data["totals"]["partitions"]:
        session.tell_unnamed(gathered)
    if html is not None:
        out.note(f"{html} written: open it in a browser")
    return session.exit_code(data["lines"]["unknown_form"], strict=strict)
