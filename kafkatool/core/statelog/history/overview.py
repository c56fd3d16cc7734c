"""The logs as a whole: which brokers and controllers wrote when, lines of each kind. Pure; added up from chunks.

Lines of one shape are of one kind: where in them stands what is wanted is found once.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from kafkatool.core.statelog.history.observations import Heard, Said, join_into, statement_of
from kafkatool.core.statelog.history.visibility import HOUR_LENGTH, Hours, Visibility, visibility_of
from kafkatool.core.statelog.lines.details import find_details
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.lines.shapes import LONGEST_SHAPE, MOST_SHAPES
from kafkatool.core.statelog.sources.chunks import Chunk, Record

UNKNOWN = "unknown form"
"""Stands for the event in a record of unknown form."""

Wrote = tuple[bytes, bytes, bytes]
"""Who wrote a line, the controller whose request it is about, and its epoch."""

Words = bytes | tuple[bytes, ...]
"""Pieces of a line."""

_NOWHERE = slice(0, 0)
_DIGIT = re.compile(r"\d")
_NO_MINUTE = b"no time begins so"
_MINUTES_END = b":59,999"
MOST_SAID = 20_000
"""What lines say is remembered for so many of them, some 15 MB: of a chunk's lines few say what none said before."""

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
    missing. ``hours``: who wrote lines of which level and mode when. ``isr_passed_on``: lines with a partition's ISR that
    tell also of the leader's own changes; without any, those cannot be seen. ``unknown_records``: all records of unknown
    form, whenever written; ``first_unknown``: where the first dated line of unknown form stands, as FILE:LINE. ``near``:
    where a topic is asked for, a few others that lines name and whose names are like it.
    """

    first: str | None = None
    last: str | None = None
    brokers: dict[int, Activity] = field(default_factory=dict)
    controllers: dict[tuple[int, int], Activity] = field(default_factory=dict)
    heard: dict[tuple[int, int], Activity] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    near: set[str] = field(default_factory=set)
    hours: Hours = field(default_factory=Hours)
    isr_passed_on: int = 0
    unknown_records: int = 0
    first_unknown: str | None = None
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
        self.near |= other.near
        self.hours.add(other.hours)
        self.isr_passed_on += other.isr_passed_on
        self.unknown_records += other.unknown_records

    @property
    def unknown(self) -> int:
        """Return how many dated lines of unknown form are in the time asked for, or have no time that can be read."""
        return self.events[UNKNOWN] + self.counts.unknown_form - self.unknown_records

    @property
    def dated(self) -> int:
        """Return how many dated lines there are."""
        counts = self.counts
        return counts.records - counts.other_loggers + counts.unknown_form - self.unknown_records

    @property
    def visibility(self) -> Visibility:
        """Return what can be in these logs at all; where nothing is in them, nothing is hidden."""
        if self.first is None:
            return Visibility({}, leader_isr=True, offline=True, controllers=True, hidden=())
        return visibility_of(self.hours, isr_passed_on=self.isr_passed_on > 0)


def near_topics(topic: str, names: Iterable[str]) -> list[str]:
    """Return those names that one may have meant who wrote ``topic``, the likeliest first; it may be itself."""
    return difflib.get_close_matches(topic, sorted(names), n=3)


class LineKind:
    """All lines of one shape. Found once for a shape, and kept by whoever keeps shapes.

    ``who_of`` and ``words_of`` take from a line the pieces in which all of ``wrote_of``, and of what it says, stands. Who
    wrote a line is part of what it says, so its words alone tell that, too. ``met`` is for whoever counts lines: what was
    met of this kind so far.
    """

    __slots__ = ("met", "name_at", "shape", "statement", "tells_isr", "who_of", "words_of", "wrote_of")

    def __init__(self, text: str) -> None:
        """Take one of the lines, or their shape."""
        details = find_details(text)
        self.met: Any = None
        self.shape = details.shape
        self.wrote_of: Callable[[bytes], Wrote] | None = None  # nobody says that he wrote it
        self.who_of: Callable[[bytes], Words] | None = None
        by_itself = details.actor == "controller" or details.sender is None
        sender = details.actor_id if by_itself else details.sender
        if details.actor_id is not None and sender is not None:
            who = [details.actor_id, sender] + ([details.epoch] if details.epoch is not None else [])
            self.wrote_of = itemgetter(details.actor_id, sender, details.epoch or _NOWHERE)
            self.who_of = itemgetter(*_joined(who, text))
        self.statement = statement_of(details)
        self.tells_isr = self.statement is not None and self.statement.tells_isr
        if self.statement is not None:
            self.words_of: Callable[[bytes], Words] = itemgetter(*_joined(self.statement.places, text))
            span, *others = details.shape.spans
            # Of lines with many partitions hardly any two name the same.
            self.name_at = None if others else slice(span.topic_start, span.partition_end)


def _joined(places: Iterable[slice], text: str) -> list[slice]:
    """Return fewer slices with the same in them: where no digit is between two, all lines of a shape are the same there."""
    joined: list[slice] = []
    for place in sorted(places, key=lambda at: (at.start, at.stop)):
        last = joined[-1] if joined else _NOWHERE
        if joined and not _DIGIT.search(text, last.stop, place.start):
            joined[-1] = slice(last.start, max(last.stop, place.stop))
        else:
            joined.append(place)
    return joined


def observe_chunk(
    records: Iterable[Record[LineKind]], chunk: Chunk, selection: Selection, overview: Overview, minutes: Counter[bytes]
) -> Iterator[Heard]:
    """Yield what the records of a chunk say of the partitions selected.

    ``overview``, and ``minutes`` (lines in each), are complete when the iteration is over.
    """
    number, source = chunk.number, chunk.source
    others: set[str] = set()
    wanted = selection.partition_filter()
    start, end = selection.start_time.encode(), selection.end_time.encode()
    met: list[_Met] = []
    met_once: list[_Met] = []  # the one of the last long line
    activity: dict[Wrote, Activity] = {}
    learnt = 0
    # Of the last line in time: its minute, how many lines there were of it so far, and where it begins and ends.
    minute, in_minute, begins, ends = _NO_MINUTE, 0, b"1", b"0"
    for record in records:
        time, offset, line_number, line, kind, _ = record
        of_kind: _Met = kind.met
        if of_kind is None or of_kind.overview is not overview:
            _settle(met_once, activity)
            if len(met) >= MOST_SHAPES:  # a chunk may be a gzip file of any size
                _settle(met, activity)
            of_kind = kind.met = _Met(kind, overview)
            (met if len(line) <= LONGEST_SHAPE else met_once).append(of_kind)
        in_time = begins <= time <= ends
        if not in_time and start <= time <= end:
            minutes[minute] += in_minute
            in_time, in_minute, minute = True, 0, time[:MINUTE_LENGTH]
            begins, ends = max(minute, start), min(minute + _MINUTES_END, end)
        if in_time:
            in_minute += 1
            of_kind.in_time += 1
        statement = kind.statement if in_time or time <= end else None  # what comes later changes nothing
        if statement is not None:
            words = kind.words_of(line)
            known = of_kind.said.get(words)
            if known is None:
                learnt += 1
                known = of_kind.said[words] = statement.read(line), of_kind.written_by(line, time)
            said, so_far = known
        elif kind.who_of is not None:
            so_far = of_kind.activity.get(kind.who_of(line)) or of_kind.written_by(line, time)
        else:
            of_kind.by_nobody += 1
            continue
        so_far[0] += 1
        if time > so_far[2]:
            so_far[2] = time
        elif time < so_far[1]:
            so_far[1] = time
        if in_time and so_far[3] is not minute:
            so_far[3] = minute
            of_kind.seen.add((so_far[4][0], time[:HOUR_LENGTH]))
        if statement is None:
            continue
        if statement.explains:
            said = statement.explained(said, record)
        at = time.decode("latin-1")
        name = line[kind.name_at] if kind.name_at is not None else None
        named = of_kind.named.get(name)
        if named is None:
            named = [(topic, partition, wanted(topic, partition)) for topic, partition in statement.partitions(line)]
            if name is not None:
                learnt += 1
                of_kind.named[name] = named
        if kind.tells_isr:
            overview.isr_passed_on += len(named)
        for topic, partition, is_wanted in named:
            if is_wanted:
                yield topic, partition, at, source, offset, number, line_number, said
            else:
                others.add(topic)
        if learnt >= MOST_SAID:
            learnt = 0
            for one in met:
                one.said.clear()
                one.named.clear()
    if in_minute:
        minutes[minute] += in_minute
    del minutes[_NO_MINUTE]
    _settle(met, activity)
    _settle(met_once, activity)
    if selection.topic is not None:
        overview.near.update(near_topics(selection.topic, others))
    _tell_who_wrote(activity, overview)


def _tell_who_wrote(activity: dict[Wrote, Activity], overview: Overview) -> None:
    for (actor, controller, epoch), own in activity.items():
        part = Overview(own.first, own.last, {int(actor): own})
        if epoch:
            (part.controllers if int(actor) == int(controller) else part.heard)[int(epoch), int(controller)] = own
        overview.add(part)


def _settle(met: "list[_Met]", activity: dict[Wrote, Activity]) -> None:
    """Add up what was counted of kinds of lines, and let go of it."""
    for of_kind in met:
        overview, shape = of_kind.overview, of_kind.kind.shape
        of_kind.kind.met = None
        lines = of_kind.by_nobody
        for written, first, last, _, key in of_kind.activity.values():
            own = Activity(written, first.decode("latin-1"), last.decode("latin-1"))
            activity[key] = activity[key].joined(own) if key in activity else own
            lines += written
        if shape.foreign:
            continue
        overview.hours.note(shape, {(int(actor), hour.decode("latin-1")) for actor, hour in of_kind.seen})
        if of_kind.in_time:
            overview.events[shape.event or UNKNOWN] += of_kind.in_time
        overview.unknown_records += lines if shape.event is None else 0
    met.clear()


class _Met:
    """The lines of one kind that were met in a chunk, of which there is one overview."""

    __slots__ = ("activity", "by_nobody", "in_time", "kind", "named", "overview", "said", "seen")

    def __init__(self, kind: LineKind, overview: Overview) -> None:
        self.kind, self.overview = kind, overview
        self.in_time = self.by_nobody = 0
        self.activity: dict[Words, list[Any]] = {}
        """By ``who_of``: lines, their first and last time, the last minute in which there was one, and who wrote them."""
        self.seen: set[tuple[bytes, bytes]] = set()
        self.said: dict[Words, tuple[Said, list[Any]]] = {}
        self.named: dict[bytes | None, list[tuple[str, int, bool]]] = {}  # by the words; whether it is wanted

    def written_by(self, line: bytes, time: bytes) -> list[Any]:
        """Return the entry in ``activity`` for who wrote a line of that time, a new one if it is the first."""
        kind = self.kind
        assert kind.who_of is not None and kind.wrote_of is not None
        return self.activity.setdefault(kind.who_of(line), [0, time, time, None, kind.wrote_of(line)])
