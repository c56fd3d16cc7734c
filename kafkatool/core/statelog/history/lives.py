"""The lives of a partition: a topic deleted and made again under its name starts anew at leader epoch 0. Pure functions.

Order and comparison never go across lives. With ZooKeeper the controller says when a life begins; without it brokers
name the topic's id; where neither is logged, leader epoch 0 after a higher one of the same broker tells it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from kafkatool.core.statelog.history.leadership import DELETING
from kafkatool.core.statelog.history.observations import Observation, milliseconds
from kafkatool.core.statelog.sources.spilling import Many, in_order, kept

ECHO_MS: Final = 5000
"""The same words of several brokers within this time are one fact."""

_STARTS: Final = frozenset({"leader_started", "follower_started", "partition_changed", "partition_online"})
"""Lines of what a broker or a controller does itself: none is about a life that it knows to be over."""

_Numbered = Iterator[tuple[int, Observation]]
"""Observations with the number of their life."""


def lives_of(observations: Many[Observation]) -> Iterator[Many[Observation]]:
    """Yield the observations of each life, in order of time, as ``observations`` are. OSError."""
    created: list[str] = []
    ids: set[str] = set()
    for o in observations:
        if o.event == "partition_created" and o.time not in created[-1:]:
            created.append(o.time)
        if o.topic_id is not None:
            ids.add(o.topic_id)
    if created:
        for life in _apart(_by_creation(observations, created)):
            yield from _by_topic_id(life)
    elif len(ids) > 1:
        yield from _by_topic_id(observations)
    else:
        cuts = _cuts(observations)
        yield from _apart((bisect_right(cuts, o.time), o) for o in observations) if cuts else [observations]


def _apart(numbered: _Numbered) -> Iterator[Many[Observation]]:
    """Yield the observations of each number; those of one number keep their order."""
    for _, life in groupby(in_order(numbered, itemgetter(0)), key=itemgetter(0)):
        yield kept(o for _, o in life)


def _by_creation(observations: Many[Observation], created: Sequence[str]) -> _Numbered:
    begun: set[int] = set()  # lives of which a leader epoch was told
    for o in observations:
        number = bisect_right(created, o.time)
        if number < len(created) and o.leader_epoch == 0 and o.partition_epoch in (0, None):
            early_ms = milliseconds(created[number]) - milliseconds(o.time)
            if o.leader != DELETING and early_ms < ECHO_MS and number not in begun:
                number += 1  # a broker whose clock is behind heard of the new one before it was made
        if o.leader_epoch is not None:
            begun.add(number)
        yield number, o


def _by_topic_id(observations: Many[Observation]) -> Iterator[Many[Observation]]:
    """Yield the observations of each topic id. A line without one is about the topic its broker named last, or next."""
    named: dict[str, str] = {}  # when each id was first named
    for o in observations:
        if o.topic_id is not None:
            named.setdefault(o.topic_id, o.time)
    if len(named) < 2:
        yield observations
        return
    numbers = {topic_id: number for number, topic_id in enumerate(named)}
    numbered = ((numbers[topic_id], o) for topic_id, o in _with_ids(observations, named))
    for _, life in groupby(in_order(numbered), key=itemgetter(0)):
        yield kept(o for _, o in life)


def _with_ids(observations: Many[Observation], named: dict[str, str]) -> Iterator[tuple[str, Observation]]:
    """Yield each observation after its topic's id, by witness in order of its lines."""
    first_named: dict[tuple[int, str, int], str] = {}
    by_witness = in_order(observations, key=lambda o: (_witness(o), o.offset))
    for o in by_witness:
        if o.topic_id is not None:
            first_named.setdefault(_witness(o), o.topic_id)
    for witness, told in groupby(by_witness, key=_witness):
        current = first_named.get(witness)
        for o in told:
            current = o.topic_id or current
            yield current or _at(o.time, named), o


def _witness(o: Observation) -> tuple[int, str, int]:
    return o.source, o.actor, o.actor_id


def _at(time: str, named: dict[str, str]) -> str:
    """Return the topic id in use at a time: the last that was named before it."""
    begun = [(first, topic_id) for topic_id, first in named.items() if first <= time]
    return max(begun)[1] if begun else next(iter(named))


def _cuts(observations: Many[Observation]) -> list[str]:
    """Return when a broker's leader epoch fell to 0."""
    highest: dict[tuple[str, int], int] = {}
    cuts: list[str] = []
    for o in observations:
        if o.leader_epoch is None or o.event not in _STARTS:
            continue
        witness = (o.actor, o.actor_id)
        if o.leader_epoch == 0 and o.partition_epoch in (0, None) and highest.get(witness, 0) > 0:
            if not cuts or milliseconds(o.time) - milliseconds(cuts[-1]) > ECHO_MS:
                cuts.append(o.time)
            highest.clear()
        highest[witness] = max(highest.get(witness, 0), o.leader_epoch)
    return cuts
