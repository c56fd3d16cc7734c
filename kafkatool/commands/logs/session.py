"""The session that ``kt logs merge``, ``timeline`` and ``report`` share: logs, selection, Spark, output; and its flags."""

import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import click

from kafkatool.commands.completion import complete_files
from kafkatool.commands.shared.options import all_of
from kafkatool.commands.shared.printable import say
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.history.overview import near_topics
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import Gathered, gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.merge import replacing
from kafkatool.core.statelog.lines.grammar import TIME
from kafkatool.core.statelog.lines.selection import EARLIEST, LATEST, Counts, Selection
from kafkatool.core.statelog.sources.clocks import clocks, find_zone
from kafkatool.core.statelog.sources.files import OpenedLogs, find_files, open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.session import Spark
from kafkatool.core.statelog.there.carrier import There
from kafkatool.core.statelog.there.files import is_remote, open_remote
from kafkatool.core.statelog.there.workers import Workers

TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss,SSS"
TERMINATED: Final = 128 + signal.SIGTERM

EXIT_CODES: Final = (
    "Exit codes: 0; 1 a file broke off, or --strict and a dated line of unknown form; 2 usage, or a file missing."
)


class Uri(str):
    """The name of a file or directory that Spark's connectors reach."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LogSession:
    """Opened logs, what jobs read of them, what carries the jobs, and Spark. ``directory`` is for temporary files."""

    opened: OpenedLogs
    logs: Logs
    carrier: Here | There
    spark: Spark
    directory: Path

    def gather(self, selection: Selection) -> Gathered:
        """Run the first round of an analysis: what the logs hold about the partitions selected."""
        return gather(self.logs, selection, self.carrier, self.opened.files)

    def exit_code(self, unknown_form: int, *, strict: bool) -> int:
        """Return 1 if a file broke off or, where that is ``strict``, so many dated lines are of unknown form."""
        return int(bool(self.opened.broken) or (strict and unknown_form > 0))

    def tell_unnamed(self, gathered: Gathered) -> None:
        """Say on stderr that no line names what was asked for, and which topic may have been meant."""
        selection = gathered.selection
        near = near_topics(selection.topic, gathered.overview.near) if selection.topic is not None else []
        others = f"; near: {', '.join(near)}" if near else ""
        if selection.topic in near:
            others = f"; other partitions of {selection.topic} are named"
        if (asked := asked_about(selection)) is not None:
            say(f"kt: no line names {asked}{others}", err=True)

    def tell_warnings(self) -> None:
        """Print what the user must know about the files, on stderr."""
        for warning in (*self.opened.warnings, *self.opened.broken):
            say(f"kt: {warning}", err=True)


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


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    for text in value:
        if not re.fullmatch(r"spark\.[\w.-]+=.*", text, re.DOTALL):
            raise UsageError(f"--spark-conf {text!r} is not of the form spark.KEY=VALUE")
    return dict(text.split("=", 1) for text in value)


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | Uri | None:
    return value if value is None else Uri(value) if is_remote(value) else Path(value)


input_options = all_of(
    click.option(
        "--logs",
        "names",
        metavar="PATH,…",
        shell_complete=complete_files,
        help="Files, directories, globs, URIs, - (stdin), by commas; gz is read.",
    ),
    click.option("--logs-regex", metavar="DIR/RE", help="A directory, and a regex searched in the file names there."),
    click.option(
        "--tz", "zones", callback=_zones, multiple=True, metavar="[PATH=]ZONE", help="Brokers' time zone; repeatable."
    ),
    click.option("--master", default="local[*]", show_default=True, help="Spark master; elsewhere, logs are URIs."),
    click.option(
        "--spark-conf",
        "settings",
        callback=_settings,
        multiple=True,
        metavar="KEY=VALUE",
        help="For Spark; repeatable.",
    ),
)
"""The flags that name logs and what works on them: pass ``names``, ``logs_regex``, ``zones``, ``master``, ``settings``."""

selection_options = all_of(
    click.option("--topic", help="Only this topic."),
    click.option(
        "--partitions", "--partition", callback=_partitions, metavar="0,1,…", help="Only these; needs --topic."
    ),
    click.option("--topic-regex", metavar="RE", help="Only topics whose whole name this matches."),
    click.option("--start-time", callback=_time, metavar="TIME", help=f"Earliest time, inclusive: {TIME_FORMAT}"),
    click.option("--end-time", callback=_time, metavar="TIME", help="Latest time, inclusive."),
)
"""The flags that select records: pass ``topic``, ``partitions``, ``topic_regex``, ``start_time``, ``end_time``."""

out_option = click.option(
    "--out",
    "out_path",
    type=click.Path(dir_okay=False),
    callback=_target,
    help="Write this file, or these part files (URI): whole or not at all.",
)
"""``--out FILE|URI``; passes ``out_path: Path | Uri | None``."""

strict_option = click.option(
    "--strict", is_flag=True, help="Exit 1 if a dated line is of no form known from Kafka 0.8 to 4.1."
)
"""``--strict``; passes ``strict: bool``."""


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


def asked_about(selection: Selection) -> str | None:
    """Return what a selection is about, in words; None: all partitions."""
    if selection.topic is not None:
        return ", ".join(f"{selection.topic}-{p}" for p in sorted(selection.partitions)) or f"topic {selection.topic}"
    return f"topics {selection.topic_regex}" if selection.topic_regex is not None else None


# --- session ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedLogs:
    """The logs the user named: files here, and URIs of what Spark's connectors reach."""

    files: list[Path]
    uris: list[str]


def wanted_logs(names: str | None, logs_regex: str | None) -> WantedLogs:
    """Return the logs asked for by exactly one of the two options; UsageError before anything starts (SCL-2)."""
    if (names is None) == (logs_regex is None):
        raise UsageError("Provide arguments to exactly one of the two options --logs and --logs-regex")
    named = _by_commas(names or "")
    uris = [name for name in named if is_remote(name)]
    here = None if names is None else ",".join(name for name in named if not is_remote(name))
    return WantedLogs(find_files(here, logs_regex) if here or not uris else [], uris)


def _by_commas(names: str) -> list[str]:
    """Return the names; a comma in the braces of an URI is part of Hadoop's pattern."""
    found: list[str] = []
    for name in names.split(","):
        if found and is_remote(found[-1]) and found[-1].count("{") > found[-1].count("}"):
            found[-1] += f",{name}"
        else:
            found.append(name)
    return found


@contextmanager
def log_session(
    wanted: WantedLogs,
    master: str,
    zones: Sequence[str],
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    labels: Sequence[str] = (),
    join_rolled: bool = True,
    elsewhere: bool = False,
) -> Iterator[LogSession]:
    """Start Spark and open the logs; at the end, also by SIGTERM, end Spark and remove every temporary file.

    Which carrier serves follows from what was named: an URI or a master elsewhere, or what is to be written
    (``elsewhere``), needs Spark's own means; else files here are read directly.
    """
    ended = SystemExit(TERMINATED)  # no Exception: py4j would take it for a lost connection, and a job for failed
    with (
        terminated_like_interrupted(ended),
        spool() as directory,
        Spark(master, directory, settings=settings) as spark,
    ):
        spark.announce = lambda text: say(f"kt: {text}", err=True)
        if sys.stderr.isatty():
            spark.progress = _show_progress
        carrier: Here | There
        if wanted.uris or elsewhere or not spark.local:
            workers = Workers(spark, directory)
            opened = open_remote(workers, wanted.uris, wanted.files, labels=labels, join_rolled=join_rolled)
            carrier = There(workers)
            say(f"kt: carried by Spark's connectors and shuffle, on {master}", err=True)
        else:
            opened = _opened(wanted.files, directory, labels, join_rolled=join_rolled)
            carrier = Here(spark, directory)
        try:
            logs = Logs(opened.sources, clocks(opened.sources, zones))
            yield LogSession(opened, logs, carrier, spark, directory)
        except OSError as e:
            if isinstance(e, BrokenPipeError):
                raise
            raise KafkatoolError(f"{e.filename or f'temporary files in {directory.parent}'}: {e.strerror}") from e


def _show_progress(done: int, tasks: int) -> None:
    """Show the tasks of the Spark job under way, on a terminal's last line; erased with the last one."""
    click.echo("\r\033[K" + (f"Spark: {done} of {tasks} tasks" if done < tasks else ""), err=True, nl=False)


def _opened(files: Sequence[Path], directory: Path, labels: Sequence[str], *, join_rolled: bool) -> OpenedLogs:
    try:
        return open_logs(files, directory, labels=labels, join_rolled=join_rolled)
    except OSError as e:
        raise KafkatoolError(f"{e.filename or f'temporary files in {directory}'}: {e.strerror}") from e


@contextmanager
def output(path: Path | Uri | None) -> Iterator[BinaryIO]:
    """Give stdout, or a file that appears whole at the end (SCL-22X). UsageError for an URI: Spark writes those."""
    if isinstance(path, Uri):
        raise UsageError(f"--out {path}: what this command prints is written here; name a file")
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
    plain = (
        *("lines", "records", "continuation_lines", "orphan_lines", "written", "lines_written"),
        *("filtered_by_time", "filtered_by_level", "filtered_by_event", "filtered_by_topic"),
    )
    rows = {
        "files": files,
        **{name.replace("_", " "): getattr(counts, name) for name in plain},
        "dropped, naming no partition": counts.dropped_without_partition,
        "records without partition": counts.without_partition,
        "records out of order in their file": counts.out_of_order,
        "dated lines of unknown form": counts.unknown_form,
        "dated lines of other loggers": counts.other_loggers,
        **{name.replace("_", " "): number for name, number in more.items()},
    }
    return "\n".join(f"{name:<36}{number:>12}" for name, number in rows.items())
