"""The session that ``kt logs merge``, ``timeline`` and ``report`` share: logs, selection, Spark, output; and its flags."""

import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final, TypeVar

import click

from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.jobs.gathering import Gathered, Logs, gather
from kafkatool.core.statelog.jobs.merge import replacing
from kafkatool.core.statelog.lines.grammar import TIME
from kafkatool.core.statelog.lines.selection import EARLIEST, LATEST, Counts, Selection
from kafkatool.core.statelog.sources.clocks import Clock, clocks, find_zone
from kafkatool.core.statelog.sources.files import OpenedLogs, find_files, open_logs
from kafkatool.core.statelog.sources.spool import Spool, spool
from kafkatool.core.statelog.spark.remote import fetch, is_remote
from kafkatool.core.statelog.spark.session import Spark

F = TypeVar("F", bound=Callable[..., Any])

TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss,SSS"
TERMINATED: Final = 128 + signal.SIGTERM

EXIT_CODES: Final = (
    "Exit codes: 0; 1 a file broke off, or --strict and a dated line of unknown form; 2 usage, or a file missing."
)


@dataclass(frozen=True, slots=True)
class LogSession:
    """Opened logs, their clocks, Spark, and a directory for temporary files."""

    opened: OpenedLogs
    clocks: tuple[Clock | None, ...]
    spark: Spark
    directory: Path

    def gather(self, selection: Selection) -> Gathered:
        """Run the first round of an analysis: what the logs hold about the partitions selected."""
        logs = Logs(self.opened.sources, self.clocks, self.directory)
        return gather(logs, selection, self.spark, self.opened.files)

    def tell_warnings(self) -> None:
        """Print what the user must know about the files, on stderr."""
        for warning in (*self.opened.warnings, *self.opened.broken):
            click.echo(f"kt: {warning}", err=True)


# --- flags -----------------------------------------------------------------------------------------------------


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check a time as log4j writes it; double quotes are allowed (SCL-4)."""
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
    """Read partition numbers by commas, none twice (SCL-2)."""
    if value is None:
        return frozenset()
    named = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in named):
        raise UsageError(f"--partitions {value!r} is not a list of partition numbers such as 0,1,2")
    numbers = [int(part) for part in named]
    if repeated := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise UsageError(f"The list of partitions contains repeated entries: {','.join(map(str, repeated))}")
    return frozenset(numbers)


def _zones(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        find_zone(text.rpartition("=")[2])
    return value


def input_options(function: F) -> F:
    """Add the flags that name logs: passes ``names``, ``logs_regex``, ``zones``, ``master``."""
    for option in (
        click.option(
            "--master", default="local[*]", show_default=True, help="Spark master; workers must see the files."
        ),
        click.option(
            "--tz",
            "zones",
            callback=_zones,
            multiple=True,
            metavar="[PATH=]ZONE",
            help="Brokers' time zone; repeatable.",
        ),
        click.option(
            "--logs-regex", metavar="DIR/RE", help="A directory, and a regex searched in the file names there."
        ),
        click.option(
            "--logs",
            "names",
            metavar="PATH,…",
            help="Files, directories, globs, URIs, - (stdin), by commas; gz is read.",
        ),
    ):
        function = option(function)
    return function


def selection_options(function: F) -> F:
    """Add the flags that select records: passes ``topic``, ``partitions``, ``topic_regex``, ``start_time``, ``end_time``."""
    for option in (
        click.option("--end-time", callback=_time, metavar="TIME", help="Latest time, inclusive."),
        click.option("--start-time", callback=_time, metavar="TIME", help=f"Earliest time, inclusive: {TIME_FORMAT}"),
        click.option("--topic-regex", metavar="RE", help="Only topics whose whole name this matches."),
        click.option(
            "--partitions", "--partition", callback=_partitions, metavar="0,1,…", help="Only these; needs --topic."
        ),
        click.option("--topic", help="Only this topic."),
    ):
        function = option(function)
    return function


def out_option(function: F) -> F:
    """Add ``--out FILE``; passes ``out_path: Path | None``."""
    return click.option(
        "--out",
        "out_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write this file: whole or not at all.",
    )(function)


def strict_option(function: F) -> F:
    """Add ``--strict``; passes ``strict: bool``."""
    return click.option(
        "--strict", is_flag=True, help="Exit 1 if a dated line is of no form known from Kafka 0.8 to 2.8."
    )(function)


def make_selection(
    *,
    topic: str | None,
    partitions: frozenset[int],
    topic_regex: str | None,
    start_time: str | None,
    end_time: str | None,
    **more: Any,
) -> Selection:
    """Return the selection those flags ask for; UsageError for those that exclude each other."""
    if partitions and topic is None:
        raise UsageError("The option --topic needs to be provided an argument when specifying partition ids")
    if topic is not None and topic_regex is not None:
        raise UsageError("--topic and --topic-regex exclude each other")
    if topic_regex is not None:
        try:
            re.compile(topic_regex)
        except re.error as e:
            raise UsageError(f"--topic-regex {topic_regex!r} is not a regular expression: {e}") from e
    start, end = start_time or EARLIEST, end_time or LATEST
    if start > end:
        raise UsageError(f"--start-time {start} is after --end-time {end}")
    return Selection(
        start_time=start, end_time=end, topic=topic, partitions=partitions, topic_regex=topic_regex, **more
    )


# --- session ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedLogs:
    """The logs the user named: files here, and URIs of what Spark has to fetch."""

    files: list[Path]
    uris: list[str]


def wanted_logs(names: str | None, logs_regex: str | None) -> WantedLogs:
    """Return the logs asked for by exactly one of the two options; UsageError before anything starts (SCL-2)."""
    if (names is None) == (logs_regex is None):
        raise UsageError("Provide arguments to exactly one of the two options --logs and --logs-regex")
    uris = [name for name in (names or "").split(",") if is_remote(name)]
    here = None if names is None else ",".join(name for name in names.split(",") if not is_remote(name))
    return WantedLogs(find_files(here, logs_regex) if here or not uris else [], uris)


@contextmanager
def log_session(
    wanted: WantedLogs, master: str, zones: Sequence[str], *, labels: Sequence[str] = (), join_rolled: bool = True
) -> Iterator[LogSession]:
    """Start Spark and open the logs; at the end, also by SIGTERM, end Spark and remove every temporary file."""
    with _ended_by_sigterm(), spool() as own, Spark(master, own.directory) as spark:
        spark.announce = lambda text: click.echo(f"kt: {text}", err=True)
        if sys.stderr.isatty():
            spark.progress = _show_progress
        opened = _opened(wanted, own, spark, labels, join_rolled=join_rolled)
        try:
            yield LogSession(opened, clocks(opened.sources, zones), spark, own.directory)
        except OSError as e:
            if isinstance(e, BrokenPipeError):
                raise
            raise KafkatoolError(f"{e.filename or f'temporary files in {own.directory.parent}'}: {e.strerror}") from e


def _show_progress(done: int, tasks: int) -> None:
    """Show the tasks of the Spark job under way, on a terminal's last line; erased with the last one."""
    click.echo("\r\033[K" + (f"Spark: {done} of {tasks} tasks" if done < tasks else ""), err=True, nl=False)


def _opened(wanted: WantedLogs, own: Spool, spark: Spark, labels: Sequence[str], *, join_rolled: bool) -> OpenedLogs:
    try:
        fetched: dict[Path, str] = {}
        if wanted.uris:
            (directory := own.directory / "fetched").mkdir()
            fetched = fetch(spark, wanted.uris, directory)
        return open_logs(wanted.files, own, fetched=fetched, labels=labels, join_rolled=join_rolled)
    except OSError as e:
        raise KafkatoolError(f"{e.filename or f'temporary files in {own.directory}'}: {e.strerror}") from e


@contextmanager
def output(path: Path | None) -> Iterator[BinaryIO]:
    """Give stdout, or a file that appears whole at the end (SCL-22X)."""
    try:
        if path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with replacing(path) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as e:
        raise KafkatoolError(f"cannot write {path or 'to stdout'}: {e.strerror}") from e


def account(files: int, counts: Counts, **more: int) -> str:
    """Return one line for each class; records and the two classes below it are all lines (SCL-12X)."""
    rows = {
        "files": files,
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
        **{name.replace("_", " "): number for name, number in more.items()},
    }
    return "\n".join(f"{name:<36}{number:>12}" for name, number in rows.items())


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end us as an exception does: Spark is stopped and the temporary files, large ones, are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)  # no Exception: py4j would take it for a lost connection, and a job for failed

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
