"""``kt logs report``: the outage in figures (SCL-18X to SCL-20X). Workers count partitions, the driver adds up."""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkatool.core.statelog.history.facts import Fact, history_of
from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.history.partition_summary import PartitionFigures, Skew, figures_of, skews
from kafkatool.core.statelog.jobs.gathering import MINUTES, Gathered, Logs, Overview, Places, partitions_of
from kafkatool.core.statelog.jobs.merge import Mapper
from kafkatool.core.statelog.jobs.shuffle import take
from kafkatool.core.statelog.lines.selection import Selection

PLOT_STEPS: Final = 480
"""Steps of time in the plots."""

MOST_BARS: Final = 240
"""Bars of the plot of lines per minute; longer logs have several minutes in a bar."""

MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class BrokerFigures:
    """What happened to one broker: leaderships lost and gained, times out of an ISR and back, partitions led at the end."""

    lost: int = 0
    gained: int = 0
    left_isr: int = 0
    joined_isr: int = 0
    led_at_end: int = 0

    def add(self, other: "BrokerFigures") -> None:
        """Adds another part."""
        for name in ("lost", "gained", "left_isr", "joined_isr", "led_at_end"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Minute:
    """A busy minute: lines in all logs, and facts in it by kind."""

    minute: str
    lines: int
    facts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Sums:
    """What partitions add up to. Keys of plots: (broker, step) and step; values are changes at that step."""

    partitions: int = 0
    without_leader: int = 0
    still_without_leader: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    longest_leaderless_ms: int = 0
    top: list[PartitionFigures] = field(default_factory=list)
    brokers: dict[int, BrokerFigures] = field(default_factory=dict)
    led: Counter[tuple[int, int]] = field(default_factory=Counter)
    leaderless: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)
    in_minutes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skew: dict[tuple[int, int], Skew] = field(default_factory=dict)

    def add(self, other: "Sums", top: int) -> None:
        """Adds another part, keeping the ``top`` partitions."""
        for name in ("partitions", "without_leader", "still_without_leader"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest_leaderless_ms = max(self.longest_leaderless_ms, other.longest_leaderless_ms)
        for name in ("totals", "led", "leaderless", "missing", "in_minutes"):
            mine: Counter[object] = getattr(self, name)
            for key, number in getattr(other, name).items():  # update() and += drop what is below zero
                mine[key] += number
        self.top = heapq.nsmallest(top, [*self.top, *other.top], key=lambda figures: figures.rank)
        for broker, figures in other.brokers.items():
            self.brokers.setdefault(broker, BrokerFigures()).add(figures)
        for pair, skew in other.skew.items():
            self.skew[pair] = self.skew[pair].joined(skew) if pair in self.skew else skew


@dataclass(slots=True)
class Report:
    """All figures. ``first`` and ``last`` bound what is counted; ``bars`` are lines by bar of ``bar_minutes`` minutes.

    ``sees_leader_isr``, ``sees_offline``: whether such changes can be in these logs at all (SCL-19X); where not, their
    counts are lower bounds and 0 means "not visible".
    """

    overview: Overview
    first: str
    last: str
    sums: Sums
    minutes: list[Minute]
    bar_minutes: int
    bars: dict[int, int]

    @property
    def sees_leader_isr(self) -> bool:
        """ISR changes that leaders make."""
        return self.overview.isr_passed_on > 0

    @property
    def sees_offline(self) -> bool:
        """Partitions going offline and being deleted: told at TRACE only."""
        return self.overview.levels["TRACE"] > 0

    @property
    def step_ms(self) -> float:
        """Length of a step of the plots."""
        return _step_ms(self.first, self.last)


@dataclass(frozen=True, slots=True)
class _Judging:
    logs: Logs
    first_lines: tuple[int, ...]
    first: str
    last: str
    top: int
    busy: frozenset[str]
    heard_from: tuple[tuple[int, str], ...]
    bar_minutes: int

    def minutes(self, places: Places) -> tuple[list[tuple[str, int]], dict[int, int]]:
        """The busiest minutes, and the lines of each bar."""
        lines: Counter[str] = Counter()
        for minute, number in take(places):
            lines[minute] += number
        bars: Counter[int] = Counter()
        origin = milliseconds(f"{self.first[:16]}:00,000")
        for minute, number in lines.items():
            bars[(milliseconds(f"{minute}:00,000") - origin) // (MINUTE_MS * self.bar_minutes)] += number
        return heapq.nsmallest(self.top, lines.items(), key=lambda found: (-found[1], found[0])), dict(bars)

    def judge(self, bucket: tuple[int, Places]) -> Sums:
        """The sums of a bucket's partitions."""
        sums = Sums()
        heard_from = dict(self.heard_from)
        for topic, partition, observations in partitions_of(bucket[1], self.first_lines):
            history = history_of(observations)
            figures = figures_of(topic, partition, history, self.first, self.last)
            own = Sums(1, figures.outages > 0, figures.leaderless_open, top=[figures])
            own.longest_leaderless_ms = figures.longest_leaderless_ms
            for name in ("elections", "leader_changes", "isr_shrinks", "isr_growths", "outages", "leaderless_ms"):
                own.totals[name] = getattr(figures, name)
            own.totals.update(failed=figures.failed, ignored=figures.ignored)
            for controller in {o.controller for o in observations if o.controller is not None}:
                told = [o for o in observations if o.controller == controller]
                own.skew.update(skews(told, heard_from.get(controller, self.first)))
            for fact in history.facts:
                if self.first <= fact.time <= self.last:
                    self._count(fact, own)
            if figures.leader is not None and not figures.deleted:
                own.brokers.setdefault(figures.leader, BrokerFigures()).led_at_end += 1
            self._draw(figures, own)
            sums.add(own, self.top)
        return sums

    def _count(self, fact: Fact, sums: Sums) -> None:
        def broker(number: int) -> BrokerFigures:
            return sums.brokers.setdefault(number, BrokerFigures())

        minute = fact.time[:16]
        if minute in self.busy:
            sums.in_minutes[minute, fact.kind] += fact.count
        if fact.kind == "elected" and fact.leader is not None:
            broker(fact.leader).gained += fact.leader != fact.old_leader
            if fact.old_leader is not None and fact.old_leader != fact.leader:
                broker(fact.old_leader).lost += 1
        elif fact.kind == "offline" and fact.old_leader is not None:
            broker(fact.old_leader).lost += 1
        for changed in fact.changed:
            if fact.kind == "isr_shrunk":
                broker(changed).left_isr += 1
            elif fact.kind == "isr_grown":
                broker(changed).joined_isr += 1

    def _draw(self, figures: PartitionFigures, sums: Sums) -> None:
        origin, step = milliseconds(self.first), _step_ms(self.first, self.last)
        for span in figures.spans:
            start, end = int((span.start_ms - origin) / step), int((span.end_ms - origin) / step)
            for at, change in ((start, 1), (end, -1)):
                if span.leader is None:
                    sums.leaderless[at] += change
                else:
                    sums.led[span.leader, at] += change
                sums.missing[at] += change * max(span.replicas - span.in_sync, 0)


def make_report(logs: Logs, gathered: Gathered, selection: Selection, mapper: Mapper, *, top: int) -> Report:
    """Counts what was gathered; ``top`` partitions and minutes are told one by one. SparkError, OSError."""
    overview = gathered.overview
    first = max(overview.first or "", selection.start_time)
    last = max(min(overview.last or "", selection.end_time), first)
    span_minutes = (milliseconds(last) - milliseconds(first)) // MINUTE_MS + 1
    heard_from: dict[int, str] = {}
    for (_, controller), spoke in overview.controllers.items():
        heard_from[controller] = min(heard_from.get(controller, spoke.first), spoke.first)
    judging = _Judging(
        logs,
        gathered.first_lines,
        first,
        last,
        top,
        frozenset(),
        tuple(heard_from.items()),
        -(-span_minutes // MOST_BARS),
    )
    busiest: list[Minute] = []
    bars: dict[int, int] = {}
    for found, lines in mapper.map(judging.minutes, [gathered.places.get(MINUTES, [])]):
        busiest, bars = [Minute(minute, number) for minute, number in found], lines
    sums = Sums()
    judging = _Judging(
        *(logs, gathered.first_lines, first, last, top, frozenset(m.minute for m in busiest)),
        *(judging.heard_from, judging.bar_minutes),
    )
    for part in mapper.map(judging.judge, gathered.buckets()):
        sums.add(part, top)
    for (minute, kind), number in sums.in_minutes.items():
        next(m for m in busiest if m.minute == minute).facts[kind] += number
    return Report(overview, first, last, sums, busiest, judging.bar_minutes, bars)


def running(changes: Counter[int] | dict[int, int], steps: Sequence[int] = range(PLOT_STEPS + 1)) -> list[int]:
    """The value at each step, from its changes."""
    values, value = [], 0
    for step in steps:
        value += changes.get(step, 0)
        values.append(value)
    return values


def _step_ms(first: str, last: str) -> float:
    return max((milliseconds(last) - milliseconds(first)) / PLOT_STEPS, 1.0)
