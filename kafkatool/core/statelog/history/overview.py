"""The logs as a whole: which brokers and controllers wrote when, lines of each kind. Pure; added up from chunks."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkatool.core.statelog.history.observations import Observation, join_into, observe
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.sources.chunks import Record

MINUTE_LENGTH = 16
"""Characters of ``yyyy-MM-dd HH:mm``."""


class Activity(NamedTuple):
    """Lines written by a broker, or by a controller of one epoch, and their first and last time."""

    lines: int
    first: str
    last: str

    def joined(self, other: "Activity") -> "Activity":
        """Return both together."""
        return Activity(self.lines + other.lines, min(self.first, other.first), max(self.last, other.last))


@dataclass(slots=True)
class Overview:
    """Sums over all lines. Times are None if there is no record.

    ``controllers``: by (epoch, id), lines that controllers wrote themselves, as brokers of their own requests too;
    ``heard``: lines that other brokers wrote of their requests, which is all there is where a controller's log is
    missing. ``isr_passed_on``: lines with a partition's ISR that tell also of the leader's own changes; without any,
    those cannot be seen.
    """

    first: str | None = None
    last: str | None = None
    brokers: dict[int, Activity] = field(default_factory=dict)
    controllers: dict[tuple[int, int], Activity] = field(default_factory=dict)
    heard: dict[tuple[int, int], Activity] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    isr_passed_on: int = 0
    counts: Counts = field(default_factory=Counts)
    files: int = 0

    def add(self, other: "Overview") -> None:
        """Add another part; ``counts`` and ``files`` are left alone."""
        self.first = min(filter(None, (self.first, other.first)), default=None)
        self.last = max(filter(None, (self.last, other.last)), default=None)
        join_into(self.brokers, other.brokers)
        join_into(self.controllers, other.controllers)
        join_into(self.heard, other.heard)
        self.events.update(other.events)
        self.levels.update(other.levels)
        self.isr_passed_on += other.isr_passed_on


def observe_chunk(
    records: Iterable[Record], source: int, selection: Selection, overview: Overview, minutes: Counter[bytes]
) -> Iterator[tuple[str, int, Observation]]:
    """Yield topic, partition and observation for what the records of one chunk say of the partitions selected.

    ``overview``, and ``minutes`` (lines in each), are complete when the iteration is over.
    """
    activity: dict[tuple[int, int, int | None], list[Any]] = {}
    wanted = selection.partition_filter()
    start, end = selection.start_time.encode(), selection.end_time.encode()
    for record in records:
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
            so_far = activity.get((actor, sender, epoch))
            if so_far is None:
                activity[actor, sender, epoch] = [1, time, time]
            else:
                so_far[0] += 1
                so_far[1], so_far[2] = min(so_far[1], time), max(so_far[2], time)
        if not shape.spans or time > end:
            continue
        for topic, partition, o in observe(record, source, record.line_number):
            if wanted(topic, partition):
                overview.isr_passed_on += o.isr is not None and o.event in ("metadata_cached", "update_metadata_sent")
                yield topic, partition, o
    for (actor, controller, epoch), (lines, first, last) in activity.items():
        own = Activity(lines, first.decode("latin-1"), last.decode("latin-1"))
        part = Overview(own.first, own.last, {actor: own})
        if epoch is not None:
            (part.controllers if actor == controller else part.heard)[epoch, controller] = own
        overview.add(part)
