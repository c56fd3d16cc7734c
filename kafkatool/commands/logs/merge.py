"""``kt logs merge``: the state-change logs of many brokers as one log, or as rows of data (SCL-1 to SCL-16X)."""

from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.logs.session import (
    EXIT_CODES,
    LogSession,
    Uri,
    account,
    asked_about,
    input_options,
    log_session,
    make_selection,
    out_option,
    output,
    selection_options,
    strict_option,
    wanted_logs,
)
from kafkatool.commands.shared.options import KtCommand
from kafkatool.commands.shared.printable import say
from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.history.skew import WARN_MS, skew_at_the_end
from kafkatool.core.statelog.jobs.here import Here, PartFiles
from kafkatool.core.statelog.jobs.merge import Merged, merge, plan_merge
from kafkatool.core.statelog.jobs.ordered_merge import Ordered, merge_ordered
from kafkatool.core.statelog.lines.forms import EVENTS
from kafkatool.core.statelog.lines.grammar import LEVELS
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.merging.rows import COLUMNS
from kafkatool.core.statelog.spark.hadoop_names import hadoop_name
from kafkatool.core.statelog.spark.parquet import new_directory, write_parquet
from kafkatool.core.statelog.spark.session import is_local
from kafkatool.core.statelog.there.carrier import RemoteParts
from kafkatool.core.statelog.there.output import check_new, save

FORMATS: Final = ("text", "jsonl", "parquet")

EXAMPLES: Final = (
    "kt logs merge --logs broker1/state-change.log,broker2/state-change.log --topic orders --partitions 0,1",
    "kt logs merge --logs-regex '/collected/state-change.log*' --start-time '2016-01-01 10:00:00,000' --out merged.log",
    "kt logs merge --logs collected/ --tz Europe/Berlin --tz collected/b3=America/New_York --show-source",
    "kt logs merge --logs collected/ --level WARN --format jsonl | jq -r '[.time,.actor_id,.text]|@tsv'",
    "kt logs merge --logs collected/ --format parquet --out outage.parquet",
)
NOTES: Final = (
    "Order: time, then file, then line; lines without a time stay with their record. Counts that account for every "
    "line go to stderr. Room for the input is needed in TMPDIR (with rows, three times that).",
    "--tz: order, --start-time and --end-time then go by UTC; lines stay as they are. Files under a PATH have its ZONE.",
    f"Rows (--format jsonl, parquet) are one for each partition named: {', '.join(column.name for column in COLUMNS)}.",
    "With a --master elsewhere, --format parquet needs an URI as --out: workers write it, to what they share with us.",
    EXIT_CODES,
)


def _events(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> frozenset[str]:
    if unknown := sorted(set(value) - EVENTS):
        raise UsageError(f"--event {unknown[0]}: no such event; known are {', '.join(sorted(EVENTS))}")
    return frozenset(value)


@click.command("merge", cls=KtCommand, examples=EXAMPLES, notes=NOTES)
@input_options
@selection_options
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only this level and more severe ones.")
@click.option("--event", "events", callback=_events, multiple=True, metavar="NAME", help="Only this event; repeatable.")
@click.option("--with-context", is_flag=True, help="With a topic: also records that name no partition.")
@click.option("--no-continuation", is_flag=True, help="Drop lines without a time, as Kafka does.")
@click.option("--kafka-compatible", is_flag=True, help="Select what Kafka's StateChangeLogMerger does, mistakes too.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Lines, or rows.")
@click.option("--show-source", is_flag=True, help="Begin each record with its broker's id (or label) and a tab.")
@click.option("--label", "labels", multiple=True, metavar="PATH=NAME", help="What --show-source and rows call a file.")
@out_option
@strict_option
def merge_command(
    names: str | None,
    logs_regex: str | None,
    zones: tuple[str, ...],
    master: str,
    settings: dict[str, str],
    labels: tuple[str, ...],
    form: str,
    out_path: Path | Uri | None,
    strict: bool,
    show_source: bool,
    **filters: Any,
) -> int:
    """One log in order of time from the state-change logs of all brokers."""
    wanted = wanted_logs(names, logs_regex)
    selection = _selection(**filters)
    _check(form, out_path, selection, zones, show_source)
    _check_reached(form, out_path, master)
    with log_session(
        wanted,
        master,
        zones,
        settings=settings,
        labels=labels,
        join_rolled=not selection.kafka_compatible,
        elsewhere=isinstance(out_path, Uri),
    ) as session:
        if not selection.kafka_compatible:
            _warn_of_skew(session)  # now, while Spark is still starting
        merged: Merged | Ordered
        if isinstance(out_path, Uri):
            check_new(session.spark, out_path)
        if form == "text" and not any(session.logs.clocks) and isinstance(session.carrier, Here):
            plan = plan_merge(session.logs.sources, session.spark)
            with output(out_path) as file:  # the fast way, which may write straight into the output
                merged = merge(plan, selection, session.spark, session.directory, show_source=show_source, output=file)
                merged.write_to(file)
        else:
            merged = merge_ordered(
                session.logs, selection, session.carrier, as_rows=form != "text", show_source=show_source
            )
            _write(session, merged, form, out_path)
    session.tell_warnings()
    unnamed = merged.counts.filtered_by_topic + merged.counts.dropped_without_partition
    if 0 < unnamed == merged.counts.records and (asked := asked_about(selection)) is not None:
        say(f"kt: no line names {asked}", err=True)
    more = {} if form == "text" else {"rows_written": merged.rows if isinstance(merged, Ordered) else 0}
    say(account(session.opened.files, merged.counts, **more), err=True)
    return session.exit_code(merged.counts.unknown_form, strict=strict)


def _selection(*, level: str | None, events: frozenset[str], no_continuation: bool, **filters: Any) -> Selection:
    kafka_compatible = filters["kafka_compatible"]
    if kafka_compatible and (filters["topic_regex"] is not None or level or events or filters["with_context"]):
        raise UsageError("Kafka's merger knows no --topic-regex, --level, --event or --with-context")
    return make_selection(level=level, events=events, continuation=not (no_continuation or kafka_compatible), **filters)


def _check(form: str, out: Path | Uri | None, selection: Selection, zones: tuple[str, ...], show_source: bool) -> None:
    if selection.kafka_compatible and (form != "text" or zones):
        raise UsageError("Kafka's merger knows no --format and no --tz")
    if form != "text" and show_source:
        raise UsageError(f"--show-source is for text; --format {form} has a column source")
    if form == "parquet":
        if out is None:
            raise UsageError("--format parquet needs --out DIRECTORY: it is many files, not a stream")
        if isinstance(out, Path) and out.exists():
            raise UsageError(f"{out} exists; a Parquet dataset is a directory of its own: name a new one")


def _check_reached(form: str, out: Path | Uri | None, master: str) -> None:
    if form == "parquet" and isinstance(out, Path) and not is_local(master):
        raise UsageError(
            f"--out {out}: Parquet is written by the workers, and those of {master} have disks of their own: "
            "name an URI that they and this machine share, such as hdfs://… (or file://… on a shared disk)"
        )


def _write(session: LogSession, merged: Ordered, form: str, out: Path | Uri | None) -> None:
    utc = any(session.logs.clocks)
    if isinstance(merged.parts, RemoteParts) and out is not None and (form == "parquet" or isinstance(out, Uri)):
        save(merged.parts, str(out) if isinstance(out, Uri) else hadoop_name(out.resolve()), form=form, utc=utc)
    elif form == "parquet" and isinstance(merged.parts, PartFiles) and isinstance(out, Path):
        with new_directory(out) as directory:
            write_parquet(merged.parts, directory, session.spark, utc=utc)
    else:
        with output(out) as file:
            merged.parts.write_to(file)


def _warn_of_skew(session: LogSession) -> None:
    """Warn where the brokers' clocks, which decide the order, are known to differ (SCL-20X)."""
    for (controller, broker), skew in skew_at_the_end(session.logs.sources, session.logs.clocks):
        if skew.behind_at_least_ms > WARN_MS:
            say(
                f"kt: the clock of broker {broker} is at least {skew.behind_at_least_ms / 1000:.1f} s behind that of "
                f"controller {controller}: their lines are not in true order (kt logs report --skew)",
                err=True,
            )
