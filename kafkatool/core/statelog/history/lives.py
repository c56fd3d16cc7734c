"""The lives of a partition: a topic deleted and made again under its name starts anew at leader epoch 0. Pure functions.

Order and comparison never go across lives. With ZooKeeper the controller says when a life begins; without it brokers
name the topic's id; where neither is logged, leader epoch 0 after a higher one of the same broker tells it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from kafkatool.core.statelog.history.leadership import DELETING
from kafkatool.core.statelog.history.observations import Observation, milliseconds

ECHO_MS: Final = 5000
"""The same words of several brokers within this time are one fact."""

_STARTS: Final = frozenset({"leader_started", "follower_started", "partition_changed", "partition_online"})
"""Lines of what a broker or a controller does itself: none is about a life that it knows to be over."""


def lives_of(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    """Yield the observations of each life, in order; ``observations`` are sorted."""
    created = list(dict.fromkeys(o.time for o in observations if o.event == "partition_created"))
    if created:
        for life in _by_creation(observations, created):
            yield from _by_topic_id(life)
    elif len({o.topic_id for o in observations if o.topic_id is not None}) > 1:
        yield from _by_topic_id(observations)
    else:
        yield from _by_epoch(observations)


def _by_creation(observations: Sequence[Observation], created: Sequence[str]) -> Iterator[list[Observation]]:
    lives: list[list[Observation]] = [[] for _ in range(len(created) + 1)]
    for o in observations:
        number = bisect_right(created, o.time)
        if number < len(created) and o.leader_epoch == 0 and o.partition_epoch in (0, None):
            early_ms = milliseconds(created[number]) - milliseconds(o.time)
            early = o.leader != DELETING and early_ms < ECHO_MS
            if early and all(before.leader_epoch is None for before in lives[number]):
                number += 1  # a broker whose clock is behind heard of the new one before it was made
        lives[number].append(o)
    yield from filter(None, lives)


def _by_topic_id(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    """Yield the observations of each topic id. A line without one is about the topic its broker named last, or next."""
    ids = list(dict.fromkeys(o.topic_id for o in observations if o.topic_id is not None))
    if len(ids) < 2:
        yield list(observations)
        return
    lives: dict[str | None, list[Observation]] = {topic_id: [] for topic_id in ids}
    by_witness: dict[tuple[int, str, int], list[Observation]] = {}
    for o in observations:
        by_witness.setdefault((o.source, o.actor, o.actor_id), []).append(o)
    for told in by_witness.values():
        told.sort(key=lambda o: o.offset)
        current = next((o.topic_id for o in told if o.topic_id is not None), None)
        for o in told:
            current = o.topic_id or current
            lives[current or _at(o.time, lives)].append(o)
    yield from (sorted(life) for life in lives.values())


def _at(time: str, lives: dict[str | None, list[Observation]]) -> str | None:
    """Return the topic id in use at a time, by what is known so far: the last that was named before it."""
    begun = [(life[0].time, topic_id) for topic_id, life in lives.items() if life and life[0].time <= time]
    return max(begun)[1] if begun else next(iter(lives))


def _by_epoch(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    """Yield the observations before and after each fall of a broker's leader epoch to 0."""
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
    lives: list[list[Observation]] = [[] for _ in range(len(cuts) + 1)]
    for o in observations:
        lives[bisect_right(cuts, o.time)].append(o)
    yield from filter(None, lives)
