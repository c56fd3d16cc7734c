"""What may be concluded from the logs at all: silence and unread lines are no evidence (SCL-25X, SCL-26X). Pure functions.

A fact is hidden where the level, the mode (with or without ZooKeeper) or a missing file keeps it out of the logs. What
is hidden makes a verdict partial; a line that could not be read leaves everything open.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from kafkatool.core.statelog.history.facts import History
from kafkatool.core.statelog.history.overview import Overview
from kafkatool.core.statelog.lines.forms import KRAFT, ZOOKEEPER

COMPLETE: Final = "complete"
PARTIAL: Final = "partial"
CANNOT_SAY: Final = "cannot_say"

NO_LOG_OF: Final = "no log of broker"
"""How the reason begins that a broker's own changes may be missing."""

HIDDEN_ISR: Final = "ISR changes that leaders make themselves (no line passes them on; level TRACE is needed)"
HIDDEN_OFFLINE: Final = "partitions going offline, and being deleted (told at TRACE only, INFO is the default from 2.6)"
HIDDEN_WITHOUT_REPLICAS: Final = "partitions without leader while no broker that has a replica of them was alive"
HIDDEN_CONTROLLERS: Final = (
    "controllers and their changes, failed elections, why leaders were elected, which topics were deleted (without "
    "ZooKeeper no broker logs them)"
)


@dataclass(frozen=True, slots=True)
class Visibility:
    """What can be in these logs at all. ``modes`` are those of the clusters that wrote them."""

    modes: tuple[str, ...]
    leader_isr: bool
    offline: bool
    controllers: bool
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the logs answer: COMPLETE, PARTIAL or CANNOT_SAY, and what keeps them from answering all."""

    state: str
    reasons: tuple[str, ...] = ()


def visibility_of(overview: Overview) -> Visibility:
    """Return what these logs can show, as their lines tell it."""
    modes = tuple(mode for mode in (ZOOKEEPER, KRAFT) if overview.runs_by(mode))
    kraft, zookeeper = KRAFT in modes, ZOOKEEPER in modes or not modes
    leader_isr = overview.isr_passed_on > 0 or not zookeeper
    offline = overview.levels["TRACE"] > 0 and not kraft
    hidden = [HIDDEN_ISR] * (not leader_isr)
    hidden += [HIDDEN_OFFLINE] * (zookeeper and not overview.levels["TRACE"])
    hidden += [HIDDEN_WITHOUT_REPLICAS, HIDDEN_CONTROLLERS] * kraft
    return Visibility(modes, leader_isr, offline, not kraft, tuple(hidden) if overview.first else ())


def judge(overview: Overview, named: Set[int], unseen: int) -> Verdict:
    """Return the verdict. ``named``: brokers that partitions name; ``unseen``: changes that epochs prove, untold."""
    first = f" (first: {overview.first_unknown})" if overview.first_unknown else ""
    unknown = f"{overview.unknown} of {overview.dated} dated lines are of unknown form{first}"
    reasons = [unknown] * (overview.unknown > 0)
    heard = {controller for _, controller in overview.heard}
    missing = sorted({*named, *heard} - set(overview.brokers))
    if missing:
        reasons.append(f"{NO_LOG_OF}{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} is here")
    if unseen:
        reasons.append(
            f"{unseen} change{'s' * (unseen > 1)} of partitions not in these logs (gaps in partition epochs)"
        )
    reasons += [f"not visible: {hidden}" for hidden in visibility_of(overview).hidden]
    return Verdict(CANNOT_SAY if overview.unknown else PARTIAL if reasons else COMPLETE, tuple(reasons))


def brokers_named(history: History) -> set[int]:
    """Return the brokers that a partition's facts name as leader, replica or in-sync replica."""
    named = {broker for fact in history.facts for broker in (fact.leader, fact.old_leader) if broker is not None}
    for fact in history.facts:
        named.update(fact.isr or (), fact.replicas or (), fact.old_replicas or (), fact.changed)
    return named


def unseen_changes(history: History) -> int:
    """Return how many changes of a partition no line tells of."""
    return sum(fact.count for fact in history.facts if fact.kind == "gap")
