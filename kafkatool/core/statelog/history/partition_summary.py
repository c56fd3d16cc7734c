"""One partition's part of the report: counts, time without leader, and the spans that plots show. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.facts import History, leaderless_ms
from kafkatool.core.statelog.history.observations import milliseconds

MOST_SPANS = 300
"""Spans of one partition that a plot can show; more are not kept."""


class Span(NamedTuple):
    """A stretch of time in which a partition had one leader (None: none) and one number of in-sync replicas."""

    start_ms: int
    end_ms: int
    leader: int | None
    in_sync: int
    replicas: int


@dataclass(slots=True)
class PartitionSummary:
    """One partition's events, counted. Times in milliseconds; ``leaderless_open``: without leader at the end.

    ``unseen``: changes that no line tells of; ``unclean``: elections from outside the ISR.
    """

    topic: str
    partition: int
    elections: int = 0
    leader_changes: int = 0
    isr_shrinks: int = 0
    isr_growths: int = 0
    outages: int = 0
    leaderless_ms: int = 0
    longest_leaderless_ms: int = 0
    leaderless_open: bool = False
    failed: int = 0
    ignored: int = 0
    unseen: int = 0
    unclean: int = 0
    leader: int | None = None
    isr: tuple[int, ...] | None = None
    deleted: bool = False
    spans: list[Span] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, int, int, int, int, str, int]:
        """Return a key that sorts the partition that suffered most first."""
        trouble = (self.leaderless_ms, self.failed, self.leader_changes, self.isr_shrinks, self.elections)
        return (*(-number for number in trouble), self.topic, self.partition)  # type: ignore[return-value]


def summarise_partition(topic: str, partition: int, history: History, start: str, end: str) -> PartitionSummary:
    """Sum up a partition's facts from ``start`` to ``end``; spans that begin before are cut there. OSError."""
    kinds = Counter[str]()
    leader_changes = unclean = widest = 0
    for fact in history.facts:
        widest = max(widest, len(fact.isr or ()))
        if fact.time >= start:
            kinds[fact.kind] += fact.count
            leader_changes += fact.kind == "elected" and fact.old_leader not in (None, fact.leader)
            unclean += fact.unclean
    summary = PartitionSummary(
        topic,
        partition,
        elections=history.elections,
        leader_changes=leader_changes,
        isr_shrinks=kinds["isr_shrunk"],
        isr_growths=kinds["isr_grown"],
        failed=kinds["failed"],
        ignored=kinds["ignored"],
        unseen=kinds["gap"],
        unclean=unclean,
        leader=history.leader if history.leader is not None and history.leader >= 0 else None,
        isr=history.isr,
        deleted=history.deleted,
        spans=list(islice(_spans(history.facts, start, end, widest), MOST_SPANS)),
    )
    for since, until, still in leaderless_ms(history.facts, end):
        length = milliseconds(until) - milliseconds(max(since, start))
        if until >= start:
            summary.outages += 1
            summary.leaderless_ms += length
            summary.longest_leaderless_ms = max(summary.longest_leaderless_ms, length)
            summary.leaderless_open |= still
    return summary


def _spans(facts: Iterable[Fact], start: str, end: str, widest: int) -> Iterator[Span]:
    """Yield the spans. ``widest``: the size of the largest ISR, for partitions whose assignment is not told."""
    first_ms, last_ms = milliseconds(start), milliseconds(end)
    since = first_ms
    now: tuple[int | None, int, int, bool] = (None, 0, 0, False)
    for fact in facts:
        at = since if fact.kind == "first_seen" else min(max(milliseconds(fact.time), first_ms), last_ms)
        leader, in_sync, replicas, alive = after = now
        match fact.kind:
            case "created" | "reassigned":
                after = (leader, in_sync, len(fact.replicas or ()), alive)
            case "first_seen" | "elected":
                after = (fact.leader, in_sync if fact.isr is None else len(fact.isr), replicas or widest, True)
            case "offline":
                after = (None, in_sync, replicas, True)
            case "isr_shrunk" | "isr_grown":
                after = (leader, len(fact.isr or ()), replicas, alive)
            case "deletion_started" | "deleted":
                after = (None, 0, 0, False)
        if after != now:
            if alive and at > since:
                yield Span(since, at, leader, in_sync, replicas)
            since, now = at, after
    if now[3] and last_ms > since:
        yield Span(since, last_ms, *now[:3])
