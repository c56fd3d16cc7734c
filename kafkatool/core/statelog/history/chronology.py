"""Who was gone and came back, and who ruled: the moments that a reader asks for first (SCL-18X). Pure functions.

State-change logs do not tell of brokers' deaths. A broker that falls out of every ISR, and whom a controller has
removed from some, was gone for the controller: it died, was cut off, or was shut down. It was shut down in a controlled
way where the controller gave its leaderships away while it was alive, and took it out of those ISRs at once: nothing else
does both. One that only leaders have removed may live on, too slow to keep up.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.lines.forms import KRAFT
from kafkatool.core.statelog.sources.spilling import Many

ONE_DEATH_MS: Final = 10_000
"""A broker's losses with no longer pause between them have one cause; a controller needs seconds for many partitions."""

_REST: Final = 0.5
"""Of the partitions that a broker lost at once: as many as may have been deleted before. A failed disk takes fewer."""

GONE: Final = "broker_gone"
OUT_OF_SYNC: Final = "broker_out_of_sync"
BACK: Final = "broker_back"
CONTROLLER: Final = "controller_changed"


class Standing(NamedTuple):
    """How many more ISRs a broker was in after a stretch of time than before, and what it lost meanwhile.

    ``lost``: ISRs it left though its replica stays; of these ``removed`` by a controller, and ``led`` by it till then;
    of those ``handed_over`` while it was alive. Times are empty where nothing was lost, or gained.
    """

    change: int = 0
    lost: int = 0
    removed: int = 0
    led: int = 0
    handed_over: int = 0
    first_lost: str = ""
    first_gained: str = ""

    def joined(self, other: "Standing") -> "Standing":
        """Return both together."""
        first_lost = min(filter(None, (self.first_lost, other.first_lost)), default="")
        first_gained = min(filter(None, (self.first_gained, other.first_gained)), default="")
        return Standing(
            self.change + other.change,
            self.lost + other.lost,
            self.removed + other.removed,
            self.led + other.led,
            self.handed_over + other.handed_over,
            first_lost,
            first_gained,
        )


class Moment(NamedTuple):
    """What happened to a broker: it was gone, out of sync, back, or took the controller's office from ``old_broker``.

    ``partitions``: whose ISRs it left; ``led``: of these it led; ``handed_over``: of these before it was gone.
    """

    time: str
    kind: str
    broker: int
    old_broker: int | None = None
    partitions: int = 0
    led: int = 0
    handed_over: int = 0


def standings(facts: Many[Fact]) -> Iterator[tuple[str, int, Standing]]:
    """Yield time, broker and change for each time that a broker enters or leaves one partition's ISR. OSError."""
    if _is_one_brokers_alone(facts):
        return  # without ZooKeeper nobody but the one broker that has it tells of it, and not when that is gone
    moves = _Moves(facts)
    able: tuple[int, ...] = ()
    assigned: tuple[int, ...] | None = None
    leaving: tuple[int, ...] = ()  # replicas that the move under way takes away
    leader: int | None = None
    for number, fact in enumerate(facts):
        before = able
        match fact.kind:
            case "first_seen" | "elected" | "isr_shrunk" | "isr_grown" if fact.isr is not None:
                # One that a move takes away may be in the ISR for a moment yet.
                able = tuple(b for b in fact.isr if assigned is None or b in assigned)
            case "offline":
                leader = leader if fact.old_leader is None else fact.old_leader
                able = tuple(b for b in able if b != leader)
            case "reassigned" if fact.replicas is not None:
                assigned, leaving = fact.replicas, fact.removing_replicas or ()
                able = tuple(b for b in able if b in assigned)
            case "created" | "deletion_started" | "deleted":
                able, assigned, leaving = (), fact.replicas, ()
        planned = fact.kind in ("reassigned", "created", "deletion_started", "deleted")
        # A move ends when all that it leaves are in sync. From 2.4 on its end is not told where it changes the leader.
        ends = bool(leaving) and assigned is not None and set(assigned) <= {*before, *leaving}
        for broker in before:
            if broker in able:
                continue
            if planned or (ends and broker in leaving) or moves.take_away(broker, number, fact):
                yield fact.time, broker, Standing(-1)
            else:
                led = broker == leader
                lost = Standing(-1, 1, _is_removed(fact), led, led and fact.handed_over, first_lost=fact.time)
                yield fact.time, broker, lost
        for broker in able:
            if broker not in before:
                yield fact.time, broker, Standing(1, first_gained=fact.time)
        leader = fact.leader if fact.kind in ("first_seen", "elected") else leader


def _is_removed(fact: Fact) -> bool:
    """Tell whether a controller took the broker out. Without ZooKeeper that shows only where it also changed the leader."""
    return fact.kind in ("elected", "offline") or not (fact.decided_by_leader or fact.mode == KRAFT)


def _is_one_brokers_alone(facts: Iterable[Fact]) -> bool:
    """Tell whether no ISR has another broker than one, without ZooKeeper."""
    brokers: set[int] = set()
    kraft = False
    for fact in facts:
        brokers.update(fact.isr or ())
        kraft |= fact.mode == KRAFT
        if len(brokers) > 1:
            return False
    return kraft


class _Moves:
    """The reassignments that are told of after each fact, as far as they may be about it."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._ahead = enumerate(facts)
        self._next: tuple[int, Fact] | None = next(self._ahead, None)
        self._moves: deque[tuple[int, Fact]] = deque()

    def take_away(self, broker: int, number: int, left: Fact) -> bool:
        """Tell whether the broker left because a reassignment ended just then that takes its replica away."""
        last_ms = milliseconds(left.time) + ONE_DEATH_MS
        while self._next and (self._next[0] <= number or milliseconds(self._next[1].time) <= last_ms):
            if self._next[1].kind == "reassigned":
                self._moves.append(self._next)
            self._next = next(self._ahead, None)
        while self._moves and self._moves[0][0] <= number:
            self._moves.popleft()
        # Before, it may have been given more replicas, this one among them.
        return any(milliseconds(m.time) <= last_ms and broker not in (m.replicas or ()) for _, m in self._moves)


def chronology(
    standing: Mapping[tuple[int, int], Standing], controllers: Sequence[tuple[str, int]], *, deletions_hidden: bool
) -> list[Moment]:
    """Return all moments in order of time.

    ``standing``: by broker and stretch of time. ``controllers``: who ruled, and from when on, in their order.
    ``deletions_hidden``: the logs do not tell which partitions were deleted, so a broker seems to stay in some ISRs.
    """
    moments = [Moment(since, CONTROLLER, new, old) for (_, old), (since, new) in pairwise(controllers)]
    by_broker: dict[int, list[Standing]] = {}
    for broker, stretch in sorted(standing):
        by_broker.setdefault(broker, []).append(standing[broker, stretch])
    for broker, in_order in by_broker.items():
        moments += _of_broker(broker, in_order, _REST if deletions_hidden else 0)
    return sorted(moments)


def _of_broker(broker: int, standings: Sequence[Standing], rest: float) -> Iterator[Moment]:
    """Yield when it was in no ISR any more, and when it was in one again. A ``rest`` of what it lost does not count."""
    member_of = at_first = 0
    away = False
    losses: list[Standing] = []  # of one cause, which began when it was a member of ``at_first``
    for standing in standings:
        before, member_of = member_of, member_of + standing.change
        if standing.first_gained and away:
            yield Moment(standing.first_gained, BACK, broker)
            away, losses = False, []
        if standing.lost:
            if losses and milliseconds(standing.first_lost) - milliseconds(losses[-1].first_lost) > ONE_DEATH_MS:
                losses = []
            if not losses:
                at_first = before
            losses.append(standing)
        if losses and not away and member_of <= rest * sum(loss.lost for loss in losses):
            removed = any(loss.removed for loss in losses)
            partitions = max(at_first - member_of, 1)  # one that it left twice is one
            led = min(sum(loss.led for loss in losses), partitions)
            handed_over = min(sum(loss.handed_over for loss in losses), led)
            kind = GONE if removed else OUT_OF_SYNC
            yield Moment(losses[0].first_lost, kind, broker, partitions=partitions, led=led, handed_over=handed_over)
            away = True
