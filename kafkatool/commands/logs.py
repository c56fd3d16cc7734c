"""``kt logs``: merges the state-change logs of many brokers into one, on Spark (SCL)."""

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

import click

from kafkatool.commands.options import KtCommand
from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.files import OpenedLogs, find_files, open_logs
from kafkatool.core.statelog.forms import EVENTS
from kafkatool.core.statelog.grammar import LEVELS, TIME
from kafkatool.core.statelog.merge import merge, replacing
from kafkatool.core.statelog.selection import EARLIEST, LATEST, Counts, Selection
from kafkatool.core.statelog.spark import Spark
from kafkatool.core.statelog.spool import Spool, spool

TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss,SSS"
TERMINATED: Final = 128 + signal.SIGTERM

EXAMPLES: Final = (
    "kt logs merge --logs broker1/state-change.log,broker2/state-change.log --topic orders --partitions 0,1",
    "kt logs merge --logs-regex '/collected/state-change.log*' --start-time '2016-01-01 10:00:00,000' --out merged.log",
)
NOTES: Final = (
    "Order: time, then file, then line; lines without a time stay with their record. Counts that account for every "
    "line go to stderr. Room for the input is needed in TMPDIR.",
    "Exit codes: 0; 1 a file broke off, or --strict and a dated line of unknown form; 2 usage, or a file missing.",
)


@click.group()
def logs() -> None:
    """Merge state-change logs of all brokers."""


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A time as log4j writes it, double quotes allowed (SCL-4)."""
    if value is None:
        return None
    text = value.replace('"', " ").strip()
    try:
        if re.fullmatch(TIME, text, re.ASCII):
            datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f")
            return text
    except ValueError:
        pass  # such as the 30th of February: told below
    raise UsageError(f"--{param.name} {value!r} is not a time of the form {TIME_FORMAT}".replace("_", "-"))


def _partitions(ctx: click.Context, param: click.Parameter, value: str | None) -> frozenset[int]:
    """Partition numbers by commas, none twice (SCL-2)."""
    if value is None:
        return frozenset()
    named = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in named):
        raise UsageError(f"--partitions {value!r} is not a list of partition numbers such as 0,1,2")
    numbers = [int(part) for part in named]
    if repeated := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise UsageError(f"The list of partitions contains repeated entries: {','.join(map(str, repeated))}")
    return frozenset(numbers)


def _events(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> frozenset[str]:
    if unknown := sorted(set(value) - EVENTS):
        raise UsageError(f"--event {unknown[0]}: no such event; known are {', '.join(sorted(EVENTS))}")
    return frozenset(value)


@logs.command("merge", cls=KtCommand, examples=EXAMPLES, notes=NOTES)
@click.option("--logs", "names", metavar="PATH,…", help="Files, directories, globs, - (stdin), by commas; gz is read.")
@click.option("--logs-regex", metavar="DIR/RE", help="A directory, and a regex searched in the file names there.")
@click.option("--topic", help="Only records that name this topic.")
@click.option("--partitions", callback=_partitions, metavar="0,1,…", help="Only these partitions; needs --topic.")
@click.option("--topic-regex", metavar="RE", help="Only records that name a topic which this matches as a whole.")
@click.option("--start-time", callback=_time, metavar="TIME", help=f"Earliest time, inclusive: {TIME_FORMAT}")
@click.option("--end-time", callback=_time, metavar="TIME", help="Latest time, inclusive.")
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only this level and more severe ones.")
@click.option("--event", "events", callback=_events, multiple=True, metavar="NAME", help="Only this event; repeatable.")
@click.option("--with-context", is_flag=True, help="With a topic: also records that name no partition.")
@click.option("--no-continuation", is_flag=True, help="Drop lines without a time, as Kafka does.")
@click.option("--kafka-compatible", is_flag=True, help="Select what Kafka's StateChangeLogMerger does, mistakes too.")
@click.option("--show-source", is_flag=True, help="Begin each record with its broker's id (or label) and a tab.")
@click.option("--label", "labels", multiple=True, metavar="PATH=NAME", help="What --show-source calls a file.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write this file: whole or not at all.")
@click.option("--strict", is_flag=True, help="Exit 1 if a dated line is of no form known from Kafka 0.8 to 2.8.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master. Its workers must see the files.")
@click.pass_context
def merge_command(
    ctx: click.Context,
    /,
    names: str | None,
    logs_regex: str | None,
    labels: tuple[str, ...],
    out: Path | None,
    strict: bool,
    show_source: bool,
    master: str,
    **filters: Any,
) -> None:
    """One log in order of time from the state-change logs of all brokers."""
    if (names is None) == (logs_regex is None):
        raise UsageError("Provide arguments to exactly one of the two options --logs and --logs-regex")
    selection = _selection(**filters)
    paths = find_files(names, logs_regex)
    with _ended_by_sigterm(), spool() as own, Spark(master, own.directory) as spark:
        opened = _opened(paths, own, labels, join_rolled=not selection.kafka_compatible)
        merged = merge(opened.sources, selection, spark, own.directory, show_source=show_source)
        with _output(out) as output:
            merged.write_to(output)
    for told in (*opened.warnings, *opened.broken):
        click.echo(f"kt: {told}", err=True)
    click.echo(_account(opened, merged.counts), err=True)
    if opened.broken or (strict and merged.counts.unknown_form):
        ctx.exit(1)


def _selection(
    *,
    topic: str | None,
    partitions: frozenset[int],
    topic_regex: str | None,
    start_time: str | None,
    end_time: str | None,
    level: str | None,
    events: frozenset[str],
    with_context: bool,
    no_continuation: bool,
    kafka_compatible: bool,
) -> Selection:
    if partitions and topic is None:
        raise UsageError("The option --topic needs to be provided an argument when specifying partition ids")
    if topic is not None and topic_regex is not None:
        raise UsageError("--topic and --topic-regex exclude each other")
    if kafka_compatible and (topic_regex is not None or level or events or with_context):
        raise UsageError("Kafka's merger knows no --topic-regex, --level, --event or --with-context")
    if topic_regex is not None:
        try:
            re.compile(topic_regex)
        except re.error as e:
            raise UsageError(f"--topic-regex {topic_regex!r} is not a regular expression: {e}") from e
    return Selection(
        start_time=start_time or EARLIEST,
        end_time=end_time or LATEST,
        topic=topic,
        partitions=partitions,
        topic_regex=topic_regex,
        level=level,
        events=events,
        with_context=with_context,
        continuation=not (no_continuation or kafka_compatible),
        kafka_compatible=kafka_compatible,
    )


def _opened(paths: Sequence[Path], own: Spool, labels: Sequence[str], *, join_rolled: bool) -> OpenedLogs:
    try:
        return open_logs(paths, own, labels=labels, join_rolled=join_rolled)
    except OSError as e:
        raise KafkatoolError(f"{e.filename or f'temporary files in {own.directory}'}: {e.strerror}") from e


@contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with replacing(path) as file:
            yield file
    except OSError as e:
        raise KafkatoolError(f"cannot write {path}: {e.strerror}") from e


def _account(opened: OpenedLogs, counts: Counts) -> str:
    """One line for each class; records and the two classes below it are all lines (SCL-12X)."""
    rows = {
        "files": opened.files,
        "lines": counts.lines,
        "records": counts.records,
        "continuation lines": counts.continuation_lines,
        "orphan lines": counts.orphan_lines,
        "written": counts.written,
        "lines written": counts.lines_written,
        "filtered by time": counts.filtered_by_time,
        "filtered by level": counts.filtered_by_level,
        "filtered by event": counts.filtered_by_event,
        "filtered by topic": counts.filtered_by_topic,
        "dropped, naming no partition": counts.dropped_without_partition,
        "records without partition": counts.without_partition,
        "records out of order in their file": counts.out_of_order,
        "dated lines of unknown form": counts.unknown_form,
    }
    return "\n".join(f"{name:<36}{number:>12}" for name, number in rows.items())


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends us as an exception does: Spark is stopped and the temporary files, large ones, are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise click.exceptions.Exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
