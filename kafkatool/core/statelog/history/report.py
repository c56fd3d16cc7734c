"""The report's numbers: what one partition adds to them, and their sums (SCL-18X to SCL-20X). Pure functions."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkatool.core.statelog.history.facts import Fact, history_of
from kafkatool.core.statelog.history.observations import Observation, join_into, milliseconds
from kafkatool.core.statelog.history.overview import Overview
from kafkatool.core.statelog.history.partition_summary import PartitionSummary, summarise_partition
from kafkatool.core.statelog.history.skew import Skew, skews

PLOT_STEPS: Final = 480
"""Steps of time in the plots."""

MOST_BARS: Final = 240
"""Bars of the plot of lines per minute; longer logs have several minutes in a bar."""

MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class BrokerSummary:
    """One broker's events, counted: leaderships lost and gained, times out of an ISR and back, partitions led at the end."""

    lost: int = 0
    gained: int = 0
    left_isr: int = 0
    joined_isr: int = 0
    led_at_end: int = 0

    def add(self, other: "BrokerSummary") -> None:
        """Add another part."""
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
    """The sums over partitions. Keys of plots: (broker, step) and step; values are changes at that step."""

    partitions: int = 0
    without_leader: int = 0
    still_without_leader: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    longest_leaderless_ms: int = 0
    top: list[PartitionSummary] = field(default_factory=list)
    brokers: dict[int, BrokerSummary] = field(default_factory=dict)
    led: Counter[tuple[int, int]] = field(default_factory=Counter)
    leaderless: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)
    in_minutes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skew: dict[tuple[int, int], Skew] = field(default_factory=dict)

    def broker(self, number: int) -> BrokerSummary:
        """Return that broker's summary, made where there is none."""
        return self.brokers.setdefault(number, BrokerSummary())

    def add(self, other: "Sums", top: int) -> None:
        """Add another part, keeping the ``top`` partitions."""
        for name in ("partitions", "without_leader", "still_without_leader"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest_leaderless_ms = max(self.longest_leaderless_ms, other.longest_leaderless_ms)
        for name in ("totals", "led", "leaderless", "missing", "in_minutes"):
            mine: Counter[object] = getattr(self, name)
            for key, number in getattr(other, name).items():  # update() and += drop what is below zero
                mine[key] += number
        self.top = heapq.nsmallest(top, [*self.top, *other.top], key=lambda summary: summary.rank)
        for broker, summary in other.brokers.items():
            self.broker(broker).add(summary)
        join_into(self.skew, other.skew)


@dataclass(slots=True)
class Report:
    """All numbers. ``first`` and ``last`` bound what is counted; ``bars`` are lines by bar of ``bar_minutes`` minutes.

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
        """Return whether ISR changes that leaders make can be seen."""
        return self.overview.isr_passed_on > 0

    @property
    def sees_offline(self) -> bool:
        """Return whether partitions going offline and being deleted can be seen: they are logged at TRACE only."""
        return self.overview.levels["TRACE"] > 0


@dataclass(frozen=True, slots=True)
class ReportScope:
    """The time that a report is about, and what its counting depends on.

    ``heard_from``: the first time in each controller's own log. ``busy``: the minutes whose facts are counted by kind.
    """

    first: str
    last: str
    bar_minutes: int
    heard_from: Mapping[int, str]
    busy: frozenset[str] = frozenset()

    def busiest(self, lines: Mapping[str, int], top: int) -> list[Minute]:
        """Return the ``top`` minutes with the most lines."""
        busiest = heapq.nsmallest(top, lines.items(), key=lambda found: (-found[1], found[0]))
        return [Minute(minute, number) for minute, number in busiest]

    def bars(self, lines: Mapping[str, int]) -> dict[int, int]:
        """Return the lines of each bar, from those of each minute."""
        bars: Counter[int] = Counter()
        origin = milliseconds(f"{self.first[:16]}:00,000")
        for minute, number in lines.items():
            bars[(milliseconds(f"{minute}:00,000") - origin) // (MINUTE_MS * self.bar_minutes)] += number
        return dict(bars)

    def sum_up(self, topic: str, partition: int, observations: Sequence[Observation]) -> Sums:
        """Return one partition's sums."""
        history = history_of(observations)
        summary = summarise_partition(topic, partition, history, self.first, self.last)
        sums = Sums(1, summary.outages > 0, summary.leaderless_open, top=[summary])
        sums.longest_leaderless_ms = summary.longest_leaderless_ms
        for name in ("elections", "leader_changes", "isr_shrinks", "isr_growths", "outages", "leaderless_ms"):
            sums.totals[name] = getattr(summary, name)
        sums.totals.update(failed=summary.failed, ignored=summary.ignored)
        for controller in {o.controller for o in observations if o.controller is not None}:
            requests = [o for o in observations if o.controller == controller]
            sums.skew.update(skews(requests, self.heard_from.get(controller, self.first)))
        for fact in history.facts:
            if self.first <= fact.time <= self.last:
                self._count(fact, sums)
        if summary.leader is not None and not summary.deleted:
            sums.broker(summary.leader).led_at_end += 1
        self._draw(summary, sums)
        return sums

    def _count(self, fact: Fact, sums: Sums) -> None:
        minute = fact.time[:16]
        if minute in self.busy:
            sums.in_minutes[minute, fact.kind] += fact.count
        if fact.kind == "elected" and fact.leader is not None:
            sums.broker(fact.leader).gained += fact.leader != fact.old_leader
            if fact.old_leader is not None and fact.old_leader != fact.leader:
                sums.broker(fact.old_leader).lost += 1
        elif fact.kind == "offline" and fact.old_leader is not None:
            sums.broker(fact.old_leader).lost += 1
        for changed in fact.changed:
            if fact.kind == "isr_shrunk":
                sums.broker(changed).left_isr += 1
            elif fact.kind == "isr_grown":
                sums.broker(changed).joined_isr += 1

    def _draw(self, summary: PartitionSummary, sums: Sums) -> None:
        origin = milliseconds(self.first)
        step = max((milliseconds(self.last) - origin) / PLOT_STEPS, 1.0)
        for span in summary.spans:
            start, end = int((span.start_ms - origin) / step), int((span.end_ms - origin) / step)
            for at, change in ((start, 1), (end, -1)):
                if span.leader is None:
                    sums.leaderless[at] += change
                else:
                    sums.led[span.leader, at] += change
                sums.missing[at] += change * max(span.replicas - span.in_sync, 0)


def running(changes: Counter[int] | dict[int, int], steps: Sequence[int] = range(PLOT_STEPS + 1)) -> list[int]:
    """Return the value at each step, from its changes."""
    values, value = [], 0
    for step in steps:
        value += changes.get(step, 0)
        values.append(value)
    return values
