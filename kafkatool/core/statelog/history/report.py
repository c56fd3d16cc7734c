"""The report's numbers: what one partition adds to them, and their sums (SCL-18X to SCL-20X). Pure functions."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from kafkatool.core.statelog.history.chronology import Moment, Standing, chronology, standings
from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.history.observations import Observation, join_into, milliseconds
from kafkatool.core.statelog.history.overview import Overview
from kafkatool.core.statelog.history.partition_summary import PartitionSummary, summarise_partition
from kafkatool.core.statelog.history.skew import Skew, skews
from kafkatool.core.statelog.history.verdict import Verdict, judge
from kafkatool.core.statelog.history.visibility import Visibility
from kafkatool.core.statelog.lines.forms import KRAFT
from kafkatool.core.statelog.sources.spilling import Many

PLOT_STEPS: Final = 480
"""Steps of time in the plots."""

MOST_BARS: Final = 240
"""Bars of the plot of lines per minute; longer logs have several minutes in a bar."""

MINUTE_MS: Final = 60_000

MOST_STRETCHES: Final = 20_000
"""Stretches of time by which it is told who was gone: absences within one of them are not seen.

They are of a millisecond, as the logs' times are, up to 20 s, and of a second at five and a half hours.
"""

BROKER_EVENTS: Final = ("lost", "gained", "left_isr", "joined_isr", "led_at_end")
"""Counted for each broker: leaderships lost and gained, times out of an ISR and back, partitions led at the end."""


@dataclass(slots=True)
class Minute:
    """A busy minute: lines in all logs, and facts in it by kind."""

    minute: str
    lines: int
    facts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Sums:
    """The sums over partitions. ``brokers``: by broker and one of BROKER_EVENTS; ``named``: all that partitions name.

    Keys of plots: (broker, step) and step; values are changes at that step. ``standing``: by broker and stretch of time.
    """

    partitions: int = 0
    without_leader: int = 0
    still_without_leader: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    longest_leaderless_ms: int = 0
    top: list[PartitionSummary] = field(default_factory=list)
    brokers: Counter[tuple[int, str]] = field(default_factory=Counter)
    led: Counter[tuple[int, int]] = field(default_factory=Counter)
    leaderless: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)
    standing: dict[tuple[int, int], Standing] = field(default_factory=dict)
    in_minutes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skew: dict[tuple[int, int], Skew] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)

    def add(self, other: "Sums", top: int) -> None:
        """Add another part, keeping the ``top`` partitions."""
        for name in ("partitions", "without_leader", "still_without_leader"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest_leaderless_ms = max(self.longest_leaderless_ms, other.longest_leaderless_ms)
        for name in ("totals", "brokers", "led", "leaderless", "missing", "in_minutes"):
            mine: Counter[object] = getattr(self, name)
            for key, number in getattr(other, name).items():  # update() and += drop what is below zero
                mine[key] += number
        self.top = heapq.nsmallest(top, [*self.top, *other.top], key=lambda summary: summary.rank)
        join_into(self.standing, other.standing)
        join_into(self.skew, other.skew)
        self.named |= other.named


@dataclass(slots=True)
class Report:
    """All numbers. ``first`` and ``last`` bound what is counted; ``bars`` are lines by bar of ``bar_minutes`` minutes.

    Where ``visibility`` says that such changes cannot be in these logs, their counts are lower bounds and 0 means "not
    visible" (SCL-19X).
    """

    overview: Overview
    first: str
    last: str
    sums: Sums
    minutes: list[Minute]
    bar_minutes: int
    bars: dict[int, int]

    @property
    def visibility(self) -> Visibility:
        """Return what can be seen at all."""
        return self.overview.visibility

    @property
    def chronology(self) -> list[Moment]:
        """Return who was gone and came back, and who ruled."""
        overview = self.overview
        told = {**overview.heard, **overview.controllers}
        ruled = [(told[epoch, broker].first, broker) for epoch, broker in sorted(told)]
        told_of = chronology(self.sums.standing, ruled, deletions_hidden=KRAFT in self.visibility.modes)
        return [moment for moment in told_of if self.first <= moment.time <= self.last]

    @property
    def verdict(self) -> Verdict:
        """Return how far these logs answer."""
        return judge(self.overview, self.sums.named, self.sums.totals["unseen"])


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

    def sum_up(self, topic: str, partition: int, observations: Many[Observation]) -> Sums:
        """Return one partition's sums. OSError."""
        history = history_of(observations)
        summary = summarise_partition(topic, partition, history, self.first, self.last)
        sums = Sums(1, summary.outages > 0, summary.leaderless_open, top=[summary])
        sums.longest_leaderless_ms = summary.longest_leaderless_ms
        for name in ("elections", "leader_changes", "isr_shrinks", "isr_growths", "outages", "leaderless_ms"):
            sums.totals[name] = getattr(summary, name)
        sums.totals.update(
            failed=summary.failed, ignored=summary.ignored, unseen=summary.unseen, unclean=summary.unclean
        )
        sums.named = history.named
        sums.skew = skews(observations, self.heard_from, self.first)
        for fact in history.facts:
            if self.first <= fact.time <= self.last:
                self._count(fact, sums)
        if summary.leader is not None and not summary.deleted:
            sums.brokers[summary.leader, "led_at_end"] += 1
        self._draw(summary, sums)
        self._place(history.facts, sums)
        return sums

    def _count(self, fact: Fact, sums: Sums) -> None:
        minute = fact.time[:16]
        if minute in self.busy:
            sums.in_minutes[minute, fact.kind] += fact.count
        if fact.kind == "elected" and fact.leader is not None:
            sums.brokers[fact.leader, "gained"] += fact.leader != fact.old_leader
            if fact.old_leader is not None and fact.old_leader != fact.leader:
                sums.brokers[fact.old_leader, "lost"] += 1
        elif fact.kind == "offline" and fact.old_leader is not None:
            sums.brokers[fact.old_leader, "lost"] += 1
        for changed in fact.changed:
            sums.brokers[changed, "left_isr" if fact.kind == "isr_shrunk" else "joined_isr"] += 1

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

    def _place(self, facts: Many[Fact], sums: Sums) -> None:
        origin = milliseconds(self.first)
        stretch_ms = max((milliseconds(self.last) - origin) / MOST_STRETCHES, 1.0)
        for time, broker, standing in standings(facts):
            after_ms = milliseconds(time) - origin
            key = broker, int(max(after_ms, 0) / stretch_ms)
            join_into(sums.standing, {key: standing if time >= self.first else Standing(standing.change)})


def running(changes: Mapping[int, int]) -> list[int]:
    """Return the value at each step, from its changes."""
    return list(accumulate(changes.get(step, 0) for step in range(PLOT_STEPS + 1)))
