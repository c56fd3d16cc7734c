"""Logs that lie elsewhere, opened on the driver: found by Spark's connectors, looked into by a job.

The job returns the beginning and the end of each file, packed; with these the driver plans as if the files lay here. It
reads a few more places itself, where chunks are cut. A gzip file is read whole, by one task, and only unpacked there.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.sources.chunks import Chunk
from kafkatool.core.statelog.sources.files import LOG_NAME, STDIN, OpenedLogs, look_into, rank
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spool import GZIP_MAGIC
from kafkatool.core.statelog.spark.hadoop_names import hadoop_name
from kafkatool.core.statelog.there.ranges import Listed, requests
from kafkatool.core.statelog.there.surveys import EDGE_BYTES, CutTask, Survey, edges_of, unpacked
from kafkatool.core.statelog.there.workers import Workers

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_GROUP_BYTES = 64 * 1024 * 1024
_GROUP_FILES = 100


@dataclass(frozen=True, slots=True, eq=False)
class RemoteFile:
    """A file elsewhere, for the driver."""

    listed: Listed
    survey: Survey
    workers: Workers

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of what the file holds, unpacked. KafkatoolError."""
        if (known := self.survey.read(start, end)) is not None:
            return known
        if self.survey.packed is None:
            return self.workers.read(self.listed, start, end)
        return self.workers.first(CutTask(start, end).cut, list(requests("-", self.listed, 0, self.survey.packed)))


@dataclass(frozen=True, slots=True)
class RemoteExtent:
    """Bytes ``start`` to ``end`` of what a file elsewhere holds."""

    file: RemoteFile
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Tell if the file is gzip."""
        return self.file.survey.packed is not None

    def read(self, start: int, end: int) -> bytes:
        """Return bytes, to the driver. KafkatoolError."""
        return self.file.read(start, end) if start < end else b""

    def between(self, start: int, end: int) -> "RemoteExtent":
        """Return another part of the same file."""
        return replace(self, start=start, end=end)

    def requests(self, chunk: Chunk, number: int, start: int, end: int) -> Iterator[str]:
        """Yield the requests for those bytes as part ``number`` of a chunk; for all of the file if it is gzip."""
        packed = self.file.survey.packed
        header = f"{','.join(map(str, chunk))},{number},{'-' if packed is None else f'{start}-{end}'}"
        place = (start, end) if packed is None else (0, packed)
        return requests(header, self.file.listed, *place)


def is_remote(name: str) -> bool:
    """Tell a URI from a path."""
    return _SCHEME.match(name) is not None


def open_remote(
    workers: Workers,
    uris: Sequence[str],
    paths: Sequence[Path],
    *,
    labels: Iterable[str] = (),
    join_rolled: bool = True,
) -> OpenedLogs:
    """Open the logs those URIs name (files, directories, Hadoop's globs), and paths that all workers see.

    Waits for Spark's start. UsageError for one that is missing, that is no text, or whose scheme no connector serves.
    """
    if STDIN in paths:
        raise UsageError("standard input is here, not where the work is done: name a file")
    names = [*uris, *(hadoop_name(path.resolve()) for path in paths)]
    found = workers.spark.with_context(lambda _: _find(workers, names))
    found.sort(key=lambda file: rank(Path(file.uri)))
    sources, broken = [], []
    for file, survey in _look(workers, found):
        name = file.uri.removeprefix("file:") if paths else file.uri
        if not survey.complete:
            broken.append(name)
        sources.append(Source(name, "", (RemoteExtent(RemoteFile(file, survey, workers), 0, survey.size),)))
    return look_into(sources, broken, labels=labels, join_rolled=join_rolled)


def _find(workers: Workers, uris: Sequence[str]) -> list[Listed]:
    from py4j.protocol import Py4JJavaError

    found: dict[str, Listed] = {}
    for uri in uris:
        try:
            files = list(workers.listed(uri, LOG_NAME))
        except Py4JJavaError as e:
            raise UsageError(f"{uri}: {str(e.java_exception).splitlines()[0]}") from e
        if not files:
            raise UsageError(f"{uri}: no such file")
        found |= {file.uri: file for file in files}
    return list(found.values())


def _look(workers: Workers, found: Sequence[Listed]) -> Iterator[tuple[Listed, Survey]]:
    """Return what is to be known of each file, by one job, and by a second one of gzip files."""
    asked = []
    for number, file in enumerate(found):
        edge = min(file.size, EDGE_BYTES)
        ranges = [("h", 0, edge), *[("t", file.size - edge, file.size)] * (file.size > edge)]
        asked.append([r for kind, start, end in ranges for r in requests(f"{number},{kind}", file, start, end)])
    edges = dict(workers.run(edges_of, _in_groups(asked, [EDGE_BYTES * 2] * len(asked))))
    files, surveys = [], []
    for number, file in enumerate(found):
        first, head = edges[f"{number},h"]
        files.append(file.with_first(first))
        surveys.append(Survey(file.size, head, edges[f"{number},t"][1] if f"{number},t" in edges else head))
    packed = [number for number in range(len(found)) if edges[f"{number},h"][0].startswith(GZIP_MAGIC)]
    asked = [list(requests(str(number), files[number], 0, files[number].size)) for number in packed]
    for name, survey in workers.run(unpacked, _in_groups(asked, [files[number].size * 10 for number in packed])):
        surveys[int(name)] = replace(survey, packed=files[int(name)].size)
    return zip(files, surveys, strict=True)


def _in_groups(asked: Sequence[list[str]], sizes: Sequence[int]) -> list[list[str]]:
    """Return the requests in groups for one task each; those of one file stay together."""
    groups: list[list[str]] = []
    room = files = 0
    for lines, size in zip(asked, sizes, strict=True):
        if not groups or room < size or files == _GROUP_FILES:
            groups.append([])
            room, files = _GROUP_BYTES, 0
        groups[-1] += lines
        room, files = room - size, files + 1
    return groups
