"""The logs to be read, from what the user names: paths, directories, patterns, compressed files, copies.

``find_files`` gives paths and refuses what is not there; ``open_logs`` looks inside: it unpacks what cannot be read at
any offset (gz by content, pipes, ``-``), leaves out a copy of another file, and joins lines of a stack trace that a
roll put at the start of the next file to the record they belong to.
"""

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.lines.grammar import LOGGER, parse_head
from kafkatool.core.statelog.lines.shapes import classify
from kafkatool.core.statelog.sources.source import FileExtent, Source
from kafkatool.core.statelog.sources.spool import GZIP_MAGIC, unpack

STDIN = Path("-")
LOG_NAME = "state-change.log"
"""In a directory only names that contain this are taken: Kafka keeps server.log and others beside it."""

COMPARED_BYTES = 4096
"""Of two files of one length, beginning and end that must be equal for them to count as copies."""

_ROLLED = re.compile(r"(?P<live>.*?)(?P<hour>\.\d{4}-\d\d-\d\d-\d\d)?(?:\.gz)?")
_LABEL_BYTES = 64 * 1024
_LINES_TRIED = 200
_SHOWN = 60  # characters of a line in a warning
_LOGGER = re.compile(r"\(([\w.$]+)\)\s*$")


@dataclass(frozen=True, slots=True)
class OpenedLogs:
    """Logs ready to be merged. ``warnings`` and ``broken`` (files not read to their end) are for the user."""

    sources: tuple[Source, ...]
    files: int
    warnings: tuple[str, ...]
    broken: tuple[str, ...]


def find_files(logs: str | None, logs_regex: str | None) -> list[Path]:
    """Return the files named by ``--logs`` (files, directories, globs, ``-``, by commas) or ``--logs-regex`` (DIR/RE).

    The order is that of ties in the result: by name, rolled files before the live one (SCL-10X). A file named twice is
    read once. UsageError for one that is missing or cannot be read (SCL-2, SCL-3, SCL-11X).
    """
    if logs is not None:
        found = [path for name in logs.split(",") if name for path in _expand(name)]
    else:
        found = _matching(logs_regex or "")
    if not found:
        raise UsageError("no log files named: nothing in --logs")
    unique = {path if path == STDIN else path.resolve(): path for path in reversed(found)}
    return sorted(unique.values(), key=rank)


def open_logs(
    paths: Sequence[Path], directory: Path, *, labels: Iterable[str] = (), join_rolled: bool = True
) -> OpenedLogs:
    """Open files that lie here; what cannot be read at any offset is unpacked into ``directory``. As ``look_into``."""
    broken: list[str] = []
    sources: list[Source] = []
    unpacked = _unpack(paths, directory)
    for path in paths:
        data_path, complete = unpacked.get(path, (path, True))
        if not complete:
            broken.append(str(path))
        status = data_path.stat()
        sources.append(Source(str(path), "", (FileExtent(data_path, status.st_ino, 0, status.st_size),)))
    return look_into(sources, broken, labels=labels, join_rolled=join_rolled)


def look_into(
    sources: Sequence[Source], broken: Iterable[str], *, labels: Iterable[str] = (), join_rolled: bool = True
) -> OpenedLogs:
    """Look into logs, each one extent and without label. UsageError for one that is no text; SourceChangedError, OSError.

    ``broken`` names those whose gzip data is damaged. ``labels`` are texts PATH=NAME; other logs are called by the broker
    id in their lines, else by their file's name (SCL-14X). ``join_rolled`` False leaves each file's first lines in it.
    """
    warnings: list[str] = []
    for source in sources:
        if b"\0" in source.read(0, min(COMPARED_BYTES, source.size)):
            raise UsageError(f"{source.name} is not text: a state-change log is needed, as it is or gzipped")
        if (why := _unlike_a_log(source.read(0, min(_LABEL_BYTES, source.size)))) is not None:
            warnings.append(f"{source.name} seems to be no state-change log: {why}")
    chosen = _without_copies(sources, warnings)
    if join_rolled:
        chosen = _join_rolled(chosen)
    told = tuple(f"{name} breaks off: the gzip data is cut or damaged; what came before was read" for name in broken)
    return OpenedLogs(_labelled(chosen, labels), len(sources), tuple(warnings), told)


def _unlike_a_log(start: bytes) -> str | None:
    """Say why that is not the start of a state-change log; None: a line is of one, or nothing is there."""
    first, dated, logger = "", 0, ""
    for text in start.decode("latin-1").split("\n")[:_LINES_TRIED]:
        shape = classify(text)
        if shape.time_at is not None:
            named = _LOGGER.search(text)
            logger = logger or (named[1] if named is not None else "")
            dated += 1
            if shape.known or logger == LOGGER:
                return None
        first = first or text.strip()
    if not first:
        return None
    if dated:
        whose = f"; its lines are of {logger}, as in a {'controller' if 'ontroller' in logger else 'server'}.log"
        return f"none of {dated} dated lines looked at is of a known form{whose if logger else ''}"
    return f"no line begins with a time such as [2016-01-01 10:00:00,000]; the first is {first[:_SHOWN]!r}"


def _expand(name: str) -> list[Path]:
    path = Path(name)
    if path == STDIN:
        return [path]
    if path.is_dir():
        found = [p for p in path.rglob(f"*{LOG_NAME}*") if p.is_file()]
        if not found:
            raise UsageError(f"no file named *{LOG_NAME}* in directory {name}; name the files")
        return [_readable(p) for p in found]
    if path.exists() or not glob.has_magic(name):
        return [_readable(path)]
    found = [Path(p) for p in glob.glob(name, recursive=True)]  # noqa: PTH207 -- patterns may be absolute
    found = [p for p in found if not p.is_dir()]
    if not found:
        raise UsageError(f"no file matches {name}")
    return [_readable(p) for p in found]


def _matching(logs_regex: str) -> list[Path]:
    """Return the files whose name contains a match of what follows the last ``/`` (SCL-3)."""
    directory, slash, expression = logs_regex.rpartition("/")
    parent = Path(directory or slash or ".")
    try:
        pattern = re.compile(expression)
        found = [p for p in parent.iterdir() if pattern.search(p.name) and p.is_file()]
    except re.error as e:
        raise UsageError(f"--logs-regex: {expression!r} is not a regular expression: {e}") from e
    except OSError as e:
        raise UsageError(f"--logs-regex: cannot list {parent}: {e.strerror}") from e
    if not found:
        raise UsageError(f"--logs-regex: no file name in {parent} contains a match of {expression!r}")
    return [_readable(p) for p in found]


def _readable(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path}: permission denied")
    return path


def rank(path: Path) -> tuple[str, bool, str, str]:
    live, hour = _split_name(path)
    return live, not hour, hour, str(path)


def _split_name(path: Path) -> tuple[str, str]:
    """Return the live file's path, and the hour of a rolled one ("" for the live one itself)."""
    named = _ROLLED.fullmatch(str(path))
    return (named["live"], named["hour"] or "") if named else (str(path), "")


def _unpack(paths: Sequence[Path], directory: Path) -> dict[Path, tuple[Path, bool]]:
    """Copy what cannot be read at any offset; return the copies by path, and whether each is complete."""
    streams = [path for path in paths if path == STDIN or not stat.S_ISREG(path.stat().st_mode)]
    unpacked = {
        path: unpack(path, directory) for path in streams
    }  # in this thread: Ctrl-C must end the wait for a pipe
    packed = [path for path in paths if path not in unpacked and _is_gzip(path)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # unpacking leaves the interpreter lock to others
        unpacked.update(zip(packed, pool.map(partial(unpack, directory=directory), packed), strict=True))
    return unpacked


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def _without_copies(sources: Sequence[Source], warnings: list[str]) -> list[Source]:
    """Drop a file that is the copy of another: the rolled and the live one may have been collected while rolling."""
    seen: dict[tuple[int, bytes], Source] = {}
    for source in sources:
        size = source.size
        edge = min(COMPARED_BYTES, size)
        # Of a hundred thousand logs the edges themselves would be most of what the driver holds.
        edges = hashlib.sha256(source.read(0, edge) + source.read(size - edge, size)).digest()
        same = seen.setdefault((size, edges), source)
        if same is not source and size:
            warnings.append(f"{source.name} is a copy of {same.name}: read once")
    first_of_copies = {id(source) for source in seen.values()}
    return [source for source in sources if id(source) in first_of_copies]


def _join_rolled(sources: list[Source]) -> list[Source]:
    """Give lines before a file's first record to the next older file of the same broker (SCL-9X)."""
    joined: list[Source] = []
    for source in sources:
        older = joined[-1] if joined else None
        first, _ = source.next_record(0)
        if older and first and _goes_on_in(older, source):
            (own,) = source.extents
            joined[-1] = replace(older, extents=(*older.extents, own.between(own.start, first)))
            joined.append(replace(source, extents=(own.between(first, own.end),)))
        else:
            joined.append(source)
    return joined


def _goes_on_in(older: Source, newer: Source) -> bool:
    """Tell if both are of one broker, and the older one holds a record and ends with a whole line."""
    one_broker = _split_name(Path(older.name))[0] == _split_name(Path(newer.name))[0]
    return one_broker and older.next_record(0)[1] is not None and older.read(older.size - 1, older.size) == b"\n"


def _labelled(sources: list[Source], labels: Iterable[str]) -> tuple[Source, ...]:
    given: dict[str, str] = {}
    for text in labels:
        path, equals, name = text.rpartition("=")
        if not (path and equals and name):
            raise UsageError(f"--label {text}: PATH=NAME is needed")
        given[str(Path(path).resolve())] = name
    unused = set(given) - {str(Path(source.name).resolve()) for source in sources}
    if unused:
        raise UsageError(f"--label: {min(unused)} is not among the logs")
    return tuple(
        replace(
            source, label=given.get(str(Path(source.name).resolve())) or _broker_id(source) or Path(source.name).name
        )
        for source in sources
    )


def _broker_id(source: Source) -> str | None:
    """Return the broker that wrote the file: both a broker's and a controller's lines name it."""
    text = source.read(0, min(_LABEL_BYTES, source.size)).decode("latin-1")
    for line in text.splitlines():
        head = parse_head(line)
        if head and head.actor:
            return str(head.actor.id)
    return None
