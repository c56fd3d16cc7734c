"""One partition's part of the report: counts, spans without leader, and what the plots show of it. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkatool.core.statelog.history.facts import Fact, History, leaderless_ms
from kafkatool.core.statelog.history.observations import Observation, milliseconds

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
class PartitionFigures:
    """What happened to one partition, counted. Times in milliseconds; ``leaderless_open``: without leader at the end."""

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
    leader: int | None = None
    isr: tuple[int, ...] | None = None
    deleted: bool = False
    spans: list[Span] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, int, int, int, int, str, int]:
        """Sorts the partition that suffered most first."""
        trouble = (self.leaderless_ms, self.failed, self.leader_changes, self.isr_shrinks, self.elections)
        return (*(-number for number in trouble), self.topic, self.partition)  # type: ignore[return-value]


def figures_of(topic: str, partition: int, history: History, start: str, end: str) -> PartitionFigures:
    """The figures of a partition for the facts from ``start`` to ``end``; spans before are cut there."""
    facts = [fact for fact in history.facts if fact.time >= start]
    kinds = Counter[str]()
    for fact in facts:
        kinds[fact.kind] += fact.count
    figures = PartitionFigures(
        topic,
        partition,
        elections=history.elections,
        leader_changes=sum(f.kind == "elected" and f.old_leader not in (None, f.leader) for f in facts),
        isr_shrinks=kinds["isr_shrunk"],
        isr_growths=kinds["isr_grown"],
        failed=kinds["failed"],
        ignored=kinds["ignored"],
        leader=history.leader if history.leader is not None and history.leader >= 0 else None,
        isr=history.isr,
        deleted=history.deleted,
        spans=list(_spans(history.facts, start, end))[:MOST_SPANS],
    )
    for since, until, still in leaderless_ms(history.facts, end):
        length = milliseconds(until) - milliseconds(max(since, start))
        if until >= start:
            figures.outages += 1
            figures.leaderless_ms += length
            figures.longest_leaderless_ms = max(figures.longest_leaderless_ms, length)
            figures.leaderless_open |= still
    return figures


def _spans(facts: Sequence[Fact], start: str, end: str) -> Iterable[Span]:
    first_ms, last_ms = milliseconds(start), milliseconds(end)
    most = max((len(f.isr) for f in facts if f.isr), default=0)
    since = first_ms
    now: tuple[int | None, int, int, bool] = (None, 0, 0, False)
    for fact in facts:
        at = since if fact.kind == "first_seen" else min(max(milliseconds(fact.time), first_ms), last_ms)
        leader, in_sync, replicas, alive = after = now
        match fact.kind:
            case "created" | "reassigned":
                after = (leader, in_sync, len(fact.replicas or ()), alive)
            case "first_seen" | "elected":
                after = (fact.leader, len(fact.isr or ()), replicas or most, True)
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


class Skew(NamedTuple):
    """What requests tell of a broker's clock beside the controller's: behind at least, ahead at most; of how many pairs.

    A request cannot be received before it is sent, so the largest "received minus sent" below zero is a proof.
    """

    behind_at_least_ms: int
    ahead_at_most_ms: int
    pairs: int

    def joined(self, other: "Skew") -> "Skew":
        """Both together."""
        return Skew(
            max(self.behind_at_least_ms, other.behind_at_least_ms),
            min(self.ahead_at_most_ms, other.ahead_at_most_ms),
            self.pairs + other.pairs,
        )


_REQUESTS = {
    "leader_and_isr_sent": ("leader_and_isr", True),
    "update_metadata_sent": ("update_metadata", True),
    "leader_and_isr_received": ("leader_and_isr", False),
    "metadata_cached": ("update_metadata", False),
}


def skews(observations: Iterable[Observation], heard_from: str) -> dict[tuple[int, int], Skew]:
    """Clock differences by (controller, broker) from one partition's requests (SCL-20X).

    Sent and received are matched by controller epoch, leader epoch and content, the first of each. What was received
    before ``heard_from``, the first time in the controller's own log, may have been sent before that log begins.
    """
    sent: dict[tuple[object, ...], str] = {}
    received: dict[tuple[object, ...], str] = {}
    for o in observations:
        if o.event not in _REQUESTS or o.leader_epoch is None or o.isr is None or o.controller is None:
            continue
        request, is_sent = _REQUESTS[o.event]
        content = (request, o.controller, o.epoch, o.leader_epoch, o.leader, frozenset(o.isr))
        for broker in o.targets if is_sent else (o.actor_id,):
            book = sent if is_sent else received
            book[*content, broker] = min(book.get((*content, broker), o.time), o.time)
    found: dict[tuple[int, int], Skew] = {}
    for key, time in received.items():
        asked = sent.get(key)
        if asked is None or time < heard_from or key[1] == key[-1]:
            continue
        later = milliseconds(time) - milliseconds(asked)
        pair = (int(str(key[1])), int(str(key[-1])))
        skew = Skew(max(-later, 0), later, 1)
        found[pair] = found[pair].joined(skew) if pair in found else skew
    return found
