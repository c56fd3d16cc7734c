"""The captured logs of real Kafka, lines to build others from, and a stand-in for Spark that runs in the process."""

import gzip
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kafkatool.core.statelog.history.observations import Observation
from kafkatool.core.statelog.jobs.carrier import Parts
from kafkatool.core.statelog.jobs.gathering import Gathered, partitions_of
from kafkatool.core.statelog.sources.source import FileExtent, Source
from kafkatool.core.statelog.sources.spilling import Many
from tests.paths import DATA

CAPTURES = DATA / "state-change-logs"
VERSIONS = ("0.10.2.2", "1.1.1", "2.8.2")
NEWER = ("3.9.1", "4.1.0")
"""Without Kafka's merger beside them; 4.1.0 is without ZooKeeper, too."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class InProcess:
    """Maps like Spark does, here."""

    def __init__(self, parallelism: int = 2) -> None:
        self.parallelism = parallelism

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return ``function`` of each item."""
        return [function(item) for item in items]


def observations_of(gathered: Gathered) -> list[tuple[str, int, Many[Observation]]]:
    """Return topic, partition and all observations of each partition gathered here."""
    found = gathered.scattered.each(
        lambda entries: list(partitions_of(entries, gathered.first_lines)), range(gathered.buckets)
    )
    return [partition for bucket in found for partition in bucket]


def written(parts: Parts) -> bytes:
    """Return a result as a whole."""
    output = io.BytesIO()
    parts.write_to(output)
    return output.getvalue()


def story(version: str) -> list[Path]:
    """Return the four brokers' logs of the first story, which Kafka's merger was run on."""
    return sorted((CAPTURES / version / "story").iterdir())


def lines_of(path: Path) -> list[str]:
    """Return a capture's lines."""
    return gzip.decompress(path.read_bytes()).decode("latin-1").splitlines()


def all_lines() -> list[str]:
    """Return every line of every captured log."""
    return [line for path in sorted(CAPTURES.glob("*/*/*.log.gz")) for line in lines_of(path)]


def at_info(version: str, directory: Path) -> list[Path]:
    """Write that story's logs as the default level, INFO, would have left them."""
    written = []
    for path in story(version):
        kept: list[str] = []
        wanted = True
        for line in lines_of(path):
            if line.startswith("["):
                wanted = line.split()[2] not in ("TRACE", "DEBUG")
            kept += [f"{line}\n"] * wanted
        (copy := directory / path.name.removesuffix(".gz")).write_text("".join(kept), "latin-1")
        written.append(copy)
    return written


def merger_output(version: str, name: str) -> bytes:
    """Return what Kafka's merger printed on stdout."""
    text = gzip.decompress((CAPTURES / version / f"{name}.txt.gz").read_bytes())
    return text.split(b"# stdout\n", 1)[1].split(b"# stderr\n", 1)[0]


def record(time: str, text: str = "Broker 1 stopped", level: str = "TRACE") -> bytes:
    """Return a line as log4j lays it out. ``time`` may be seconds and milliseconds only: ``00,000``."""
    full = time if len(time) == 23 else f"2016-01-01 10:00:{time}"
    return f"[{full}] {level} {text} (state.change.logger)\n".encode()


def source(path: Path, content: bytes, label: str = "") -> Source:
    """Make a file with that content, as a source."""
    path.write_bytes(content)
    return Source(str(path), label or path.name, (FileExtent(path, path.stat().st_ino, 0, len(content)),))
