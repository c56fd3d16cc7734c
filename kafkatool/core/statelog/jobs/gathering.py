"""The analyses on Spark: testimonies are taken from chunks, brought together by partition, and judged there.

Round one reads every chunk once: testimonies about partitions go to the bucket of their partition, lines per minute to
a bucket of their own; what is small (who was controller, who spoke, how many lines) comes back to the driver. Round
two makes the history of each partition of a bucket. The driver holds sums and the best few, never lines or facts
(SCL-22X); cuts and buckets decide only who does what, so the answer is the same for any (SCL-8).
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from kafkatool.core.statelog.history.observations import Observation, observe
from kafkatool.core.statelog.jobs.merge import Mapper
from kafkatool.core.statelog.jobs.shuffle import Finding, Shelf, places_by_bucket, shelve, take
from kafkatool.core.statelog.lines.details import DetailStore
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.sources.chunks import (
    CHUNK_BYTES,
    Chunk,
    ChunkAccount,
    add_accounts,
    cut_chunks,
    first_lines,
    map_chunks,
    read_records,
)
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

MINUTES = -1
"""The bucket of lines per minute."""

MINUTE_LENGTH = 16
"""Characters of ``yyyy-MM-dd HH:mm``."""

MOST_BUCKETS = 256

Places = list[tuple[str, int]]


class Spoke(NamedTuple):
    """Lines of one speaker (a broker, or a controller of one epoch), and its first and last time."""

    lines: int
    first: str
    last: str

    def joined(self, other: "Spoke") -> "Spoke":
        """Both together."""
        return Spoke(self.lines + other.lines, min(self.first, other.first), max(self.last, other.last))


@dataclass(slots=True)
class Overview:
    """What is known of the logs as a whole. Times are None if there is no record.

    ``controllers``: by (epoch, id), what controllers said themselves, as brokers of their own requests too; ``heard``:
    what other brokers said of theirs, which is all there is where a controller's log is missing. ``isr_passed_on``:
    lines with a partition's ISR that tell also of the leader's own changes; without any, those cannot be seen.
    """

    first: str | None = None
    last: str | None = None
    brokers: dict[int, Spoke] = field(default_factory=dict)
    controllers: dict[tuple[int, int], Spoke] = field(default_factory=dict)
    heard: dict[tuple[int, int], Spoke] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    isr_passed_on: int = 0
    counts: Counts = field(default_factory=Counts)
    files: int = 0

    def add(self, other: "Overview") -> None:
        """Adds another part; ``counts`` and ``files`` are left alone."""
        self.first = min(filter(None, (self.first, other.first)), default=None)
        self.last = max(filter(None, (self.last, other.last)), default=None)
        for broker, spoke in other.brokers.items():
            self.brokers[broker] = self.brokers[broker].joined(spoke) if broker in self.brokers else spoke
        for mine, others in ((self.controllers, other.controllers), (self.heard, other.heard)):
            for key, spoke in others.items():
                mine[key] = mine[key].joined(spoke) if key in mine else spoke
        self.events.update(other.events)
        self.levels.update(other.levels)
        self.isr_passed_on += other.isr_passed_on


@dataclass(frozen=True, slots=True)
class Logs:
    """Opened logs with the clock of each, and the directory for what is found in them."""

    sources: tuple[Source, ...]
    clocks: tuple[Clock | None, ...]
    directory: Path


@dataclass(frozen=True, slots=True)
class Gathered:
    """The end of round one: the overview, and where each bucket's testimonies are."""

    overview: Overview
    places: dict[int, Places]
    first_lines: tuple[int, ...]

    def buckets(self) -> list[tuple[int, Places]]:
        """The buckets of partitions, in order."""
        return sorted((bucket, places) for bucket, places in self.places.items() if bucket != MINUTES)


@dataclass(frozen=True, slots=True)
class _Gathering:
    logs: Logs
    selection: Selection
    buckets: int

    def gather(self, chunk: Chunk) -> tuple[Shelf, ChunkAccount, Overview]:
        """Round one for one chunk."""
        account, overview = ChunkAccount(), Overview()
        findings: dict[int, list[Finding]] = {}
        latest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        minutes: Counter[bytes] = Counter()
        spoke: dict[tuple[int, int, int | None], list[Any]] = {}
        wanted = _chooser(self.selection)
        start, end = self.selection.start_time.encode(), self.selection.end_time.encode()
        source = self.logs.sources[chunk.source]
        for record in read_records(source, self.logs.clocks[chunk.source], chunk, DetailStore(), account):
            details, time = record.details, record.time
            shape = details.shape
            if start <= time <= end:
                minutes[time[:MINUTE_LENGTH]] += 1
                overview.levels[shape.level or "none"] += 1
                overview.events[shape.event or "unknown form"] += 1
            if details.actor_id is not None:
                actor = int(record.line[details.actor_id])
                epoch = int(record.line[details.epoch]) if details.epoch else None
                if details.actor == "controller" or details.sender is None:
                    sender = actor
                else:
                    sender = int(record.line[details.sender])
                told = spoke.get((actor, sender, epoch))
                if told is None:
                    spoke[actor, sender, epoch] = [1, time, time]
                else:
                    told[0] += 1
                    told[1], told[2] = min(told[1], time), max(told[2], time)
            if not shape.spans or time > end:
                continue
            for topic, partition, o in observe(record, chunk.source, record.line_number):
                if not wanted(topic, partition):
                    continue
                passed_on = o.isr is not None and o.event in ("metadata_cached", "update_metadata_sent")
                overview.isr_passed_on += passed_on
                key = (topic, partition, o.actor, o.actor_id, o.event, o.targets)
                said = o[7:15]
                if o.leader_epoch is not None and latest.get(key) == said:
                    continue  # the same broker says the same again
                latest[key] = said
                bucket = zlib.crc32(f"{topic}-{partition}".encode("utf-8", "surrogateescape")) % self.buckets
                findings.setdefault(bucket, []).append((topic, partition, chunk.number, tuple(o)))
        findings[MINUTES] = [(minute.decode("latin-1"), number) for minute, number in minutes.items()]
        for (actor, controller, epoch), (lines, first, last) in spoke.items():
            words = Spoke(lines, first.decode("latin-1"), last.decode("latin-1"))
            part = Overview(words.first, words.last, {actor: words})
            if epoch is not None:
                (part.controllers if actor == controller else part.heard)[epoch, controller] = words
            overview.add(part)
        return shelve(self.logs.directory / f"told-{chunk.number:06d}", findings), account, overview


def gather(logs: Logs, selection: Selection, mapper: Mapper, files: int, *, chunk_bytes: int = CHUNK_BYTES) -> Gathered:
    """Round one. Of the selection, topic and partitions are used; its times bound only the counts in the overview.

    SourceChangedError, SparkError, OSError.
    """
    chunks = cut_chunks(logs.sources, chunk_bytes)
    size = sum(chunk.end - chunk.start for chunk in chunks)
    gathering = _Gathering(logs, selection, min(max(size // chunk_bytes, 1), MOST_BUCKETS))
    found = map_chunks(mapper, gathering.gather, chunks, chunk_bytes)
    overview = Overview(counts=add_accounts(chunks, [account for _, account, _ in found]), files=files)
    for _, _, part in found:
        overview.add(part)
    numbers = first_lines(logs.sources, chunks, [account.lines for _, account, _ in found])
    return Gathered(overview, places_by_bucket(shelf for shelf, _, _ in found), tuple(numbers))


def partitions_of(places: Places, first_lines: Sequence[int]) -> Iterator[tuple[str, int, list[Observation]]]:
    """The partitions of a bucket, in order of name, each with all testimonies about it; lines numbered in their file.

    What a broker said twice in a row is dropped again here: where chunks were cut must not show.
    """
    findings = sorted(take(places), key=lambda found: (found[0], found[1], found[3][1:3]))
    for (topic, partition), told in groupby(findings, key=itemgetter(0, 1)):
        latest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        observations: list[Observation] = []
        for _, _, chunk, values in told:
            o = Observation(*values)
            key = (o.source, o.actor, o.actor_id, o.event, o.targets)
            if o.leader_epoch is not None and latest.get(key) == o[7:15]:
                continue
            latest[key] = o[7:15]
            observations.append(o._replace(line=o.line + first_lines[chunk]))
        yield topic, partition, observations


def _chooser(selection: Selection) -> Callable[[str, int], bool]:
    """Is that partition asked for?"""
    if selection.topic_regex is not None:
        pattern = re.compile(selection.topic_regex)
        return lambda topic, _: pattern.fullmatch(topic) is not None
    if selection.topic is None:
        return lambda topic, partition: True
    partitions = selection.partitions
    return lambda topic, partition: topic == selection.topic and (not partitions or partition in partitions)
