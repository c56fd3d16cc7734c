"""Trouble that is told again and again: the same failure, or the same outage, is one fact (SCL-17X, SCL-19X)."""

from collections.abc import Iterable, Iterator
from typing import Final

from kafkatool.core.statelog.history.fact import Fact, Told, simple_fact
from kafkatool.core.statelog.history.lives import ECHO_MS
from kafkatool.core.statelog.history.observations import DISK_FAILED, IGNORED, Observation, milliseconds

MOST_WAITING: Final = 10_000
"""Facts told meanwhile for which the first of an outage waits, to be joined by what is told of it later."""


def near(earlier: str, later: str) -> bool:
    """Tell whether both may be of one thing, which clocks that differ a little tell of."""
    return milliseconds(later) - milliseconds(earlier) <= ECHO_MS


def failures(observed: Iterable[Observation]) -> Iterator[tuple[int, Fact]]:
    """Yield failures, as they end, with their number: the same words again and again, or of several brokers, are one
    fact with a count. ``observed`` is in order of time.
    """
    under_way: dict[tuple[str, str, int | None], _Run] = {}  # the one that was heard of last is the last
    begun = 0
    for o in observed:
        key = (o.event, o.text or "", o.epoch)
        while under_way and not near((oldest := next(iter(under_way.values()))).told.latest, o.time):
            del under_way[oldest.key]
            yield oldest.number, oldest.fact()
        run = under_way.pop(key, None)
        if run is None:
            run = _Run(key, begun)
            begun += 1
        run.add(o)
        under_way[key] = run
    yield from ((run.number, run.fact()) for run in under_way.values())


class _Run:
    """The same failure again and again, each time soon after the last."""

    def __init__(self, key: tuple[str, str, int | None], number: int) -> None:
        self.key, self.number, self.told, self.count = key, number, Told(), 0

    def add(self, o: Observation) -> None:
        self.told.add(o)
        self.count += 1

    def fact(self) -> Fact:
        event, text, _ = self.key
        kind = "ignored" if event in IGNORED else "disk_failed" if event == DISK_FAILED else "failed"
        reason = event.replace("_", " ") + (f": {text}" if text else "")
        until = self.told.latest if self.count > 1 else None
        return simple_fact(kind, self.told, self.told.first, reason=reason, count=self.count, until=until)


def one_offline_each(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield one offline fact for one outage: a controller logs the partition's state, then its leader -1.

    It is told when the outage is over, or MOST_WAITING other facts later.
    """
    offline = False
    waiting: list[Fact] = []  # the offline fact, and what came after it
    for fact in facts:
        if fact.kind == "offline" and offline:
            if waiting:
                _join(waiting[0], fact)
            continue
        if fact.kind == "offline":
            offline = True
        elif fact.kind in ("elected", "first_seen", "created", "deleted"):
            offline = False
        if offline:
            waiting.append(fact)
        if not offline or len(waiting) > MOST_WAITING:
            yield from waiting
            waiting = []
        if not offline:
            yield fact
    yield from waiting


def _join(offline: Fact, again: Fact) -> None:
    """Add to a fact what is told of the same outage later."""
    first = {(w.broker, w.role): w for w in (*again.witnesses, *offline.witnesses)}
    offline.witnesses = tuple(sorted(first.values(), key=lambda w: (w.time, w.role != "controller", w.broker)))
    for name in ("leader_epoch", "partition_epoch", "isr", "old_leader", "controller_epoch"):
        if getattr(offline, name) is None:
            setattr(offline, name, getattr(again, name))
