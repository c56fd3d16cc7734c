"""The succession of a partition's leaders and in-sync replicas, from what all brokers logged (SCL-19X).

One state of the partition is written to ZooKeeper once and logged many times: by the controller to each broker, by each
broker that receives it, again by every next controller. Brokers hear of it late, and a controller may repeat an old
one. So states are distinguished by what they are (leader epoch, ZooKeeper version where it is logged, leader, ISR), and
put in order by epochs and versions; the time decides only where these do not. Without ZooKeeper the partition epoch is
in every line about a state: it is then the version.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from kafkatool.core.statelog.history.observations import Observation, milliseconds
from kafkatool.core.statelog.sources.spilling import in_order

NO_LEADER = -1
DELETING = -2

NO_VERSION: Final = -1

MOST_TOLD: Final = 50_000
"""Observations of one leader epoch that are looked at together."""

MOST_DIFFERENT: Final = 10_000
"""Kept of what is said of one state while others of its epoch are awaited."""

MOST_ALIKE: Final = 16
"""States of one content that are compared for which one a line without a version is about: the nearest in time."""

_EVENT, _TARGETS = (Observation._fields.index(name) for name in ("event", "targets"))

_Known = tuple[int | None, frozenset[int]]


@dataclass(eq=False)
class State:
    """One state of a partition. ``by_controller``: it began its leader epoch; else the leader wrote it.

    Who decided it, and when, is asked when all its observations are there. ``isr`` is None where only followers tell of
    the state. ``mode`` is how the cluster ran then, as far as it is known.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...] | None
    partition_epoch: int | None
    by_controller: bool = True
    observations: list[Observation] = field(default_factory=list)
    mode: str | None = None

    @cached_property
    def controller_epoch(self) -> int | None:
        """Return the epoch of the controller that chose the leader: the least that is logged with the state.

        A controller that finds nothing to change logs what it found under its own, later epoch (Kafka 2.8, C6).
        """
        elected = [o.epoch for o in self.observations if o.event == "partition_online" and o.epoch is not None]
        known = elected + [o.state_epoch for o in self.observations if o.state_epoch is not None]
        return min(known or [o.epoch for o in self.observations if o.epoch is not None], default=None)

    @cached_property
    def decision(self) -> Observation:
        """Return the observation that counts for its time: of the controller that decided, else the earliest."""
        epoch = self.controller_epoch
        decided = (
            [o for o in self.observations if o.actor == "controller" and o.epoch == epoch] if self.by_controller else []
        )
        return min(decided or self.observations)

    @cached_property
    def controller(self) -> int | None:
        """Return the controller that chose the leader, if any line names it."""
        epoch = self.controller_epoch
        told = [o for o in self.observations if o.epoch == epoch and o.controller is not None]
        return min(told).controller if told else None

    @property
    def replicas(self) -> list[tuple[Observation, tuple[int, ...]]]:
        """Return the assignments in requests to replicas, each with its first observation."""
        found: dict[tuple[int, ...], Observation] = {}
        for o in sorted(self.observations):
            if o.replicas and o.event in (
                "leader_and_isr_sent",
                "leader_and_isr_received",
                "reassignment_sent",
                "partition_changed",
            ):
                found.setdefault(o.replicas, o)
        return [(o, replicas) for replicas, o in found.items()]


def states_of(observations: Iterable[Observation]) -> Iterator[State]:
    """Yield the states of one incarnation of a partition, in order; ``observations`` are in order of time. OSError."""
    told = in_order((o for o in observations if o.leader_epoch is not None), key=_leader_epoch)
    for _, observed in groupby(told, key=_leader_epoch):
        yield from _of_one_epoch(observed)


_leader_epoch = attrgetter("leader_epoch")


def _of_one_epoch(observed: Iterable[Observation]) -> Iterator[State]:
    """Yield the states of one leader epoch, of which there may be any number: followers come and go.

    Whenever MOST_TOLD observations are at hand, the older half of the states is taken for settled: what is said of
    these afterwards is left out. An epoch of fewer observations is looked at as a whole.
    """
    at_hand: list[Observation] = []
    first: State | None = None
    settled = NO_VERSION  # the highest partition epoch of those settled
    for o in observed:
        if o.partition_epoch is not None and o.partition_epoch <= settled:
            continue
        at_hand.append(o)
        if len(at_hand) < MOST_TOLD:
            continue
        states = _succession(at_hand, first)
        half = len(states) // 2
        settled = max([settled, *map(_version, states[:half])])
        while half < len(states) and NO_VERSION < _version(states[half]) <= settled:
            half += 1  # told in two ways
        for state in states[:half]:
            first = first or state
            yield state
        at_hand = sorted(o for state in states[half:] for o in _different(state.observations))
    yield from _succession(at_hand, first)


def _version(state: State) -> int:
    return NO_VERSION if state.partition_epoch is None else state.partition_epoch


def _different(observations: Iterable[Observation]) -> Iterable[Observation]:
    """Return of a state's observations those that add to it: the first of each witness that says the same."""
    different: dict[tuple[object, ...], Observation] = {}
    for o in sorted(observations):
        different.setdefault((*o[_EVENT:_TARGETS], *o[_TARGETS + 1 :]), o)
    return islice(different.values(), MOST_DIFFERENT)


def _succession(observed: Iterable[Observation], first: State | None) -> list[State]:
    """Return the states that these observations tell of, in order; ``first`` is the epoch's first if it came before."""
    versioned: dict[tuple[int, _Known], State] = {}
    unversioned, without_isr, vague = [], [], []
    for o in observed:
        if o.leader is None or (o.isr is None and o.partition_epoch is None):
            vague.append(o)
        elif o.isr is None:
            without_isr.append(o)
        elif o.partition_epoch is None:
            unversioned.append(o)
        else:
            key = (o.partition_epoch, (o.leader, frozenset(o.isr)))
            if key not in versioned:
                versioned[key] = _state(o)
            versioned[key].observations.append(o)
    heard: dict[tuple[int | None, int], State] = {}
    for state in versioned.values():
        heard.setdefault((state.partition_epoch, state.leader), state)
    for o in without_isr:  # followers: a state of its own only where the leader is not heard
        assert o.leader is not None
        at = o.partition_epoch, o.leader
        if at not in heard:
            heard[at] = versioned[o.partition_epoch or 0, (o.leader, frozenset())] = _state(o)
        heard[at].observations.append(o)
    states = sorted(versioned.values(), key=lambda s: (s.partition_epoch or 0, min(s.observations)))
    by_content = _by_content(states)
    unknown = [o for o in unversioned if not _attach(o, by_content)]
    place, latest = 0, None
    for state in _successive(unknown):
        earliest = state.observations[0]
        if latest is not None and earliest < latest:
            place = 0
        while place < len(states) and states[place].leader != DELETING and min(states[place].observations) <= earliest:
            place += 1
        states.insert(place, state)
        place, latest = place + 1, earliest
    if first is None:
        for o in vague:  # a follower started in this epoch: it says no more
            if states:
                states[0].observations.append(o)
    for state in states[first is None :]:
        state.by_controller = state.leader != (first or states[0]).leader
    return states


def _state(o: Observation) -> State:
    assert o.leader is not None and o.leader_epoch is not None
    return State(o.leader, o.leader_epoch, o.isr, o.partition_epoch)


def _by_content(states: Iterable[State]) -> dict[_Known, list[State]]:
    found: dict[_Known, list[State]] = {}
    for state in states:
        if state.isr is not None:
            found.setdefault((state.leader, frozenset(state.isr)), []).append(state)
    return found


def _attach(o: Observation, by_content: Mapping[_Known, Sequence[State]]) -> bool:
    """Add an observation to its state, the nearest in time if it occurred twice. Return if there was one."""
    alike = by_content.get((o.leader, frozenset(o.isr or ())))
    if not alike:
        return False
    if len(alike) == 1:
        alike[0].observations.append(o)
        return True
    if len(alike) > MOST_ALIKE:
        later = max(bisect_left(alike, o.time, key=lambda s: s.observations[0].time) - MOST_ALIKE // 2, 0)
        alike = alike[later : later + MOST_ALIKE]
    at = milliseconds(o.time)
    nearest = min(
        alike, key=lambda s: min(abs(milliseconds(t.time) - at) for t in (s.observations[0], s.observations[-1]))
    )
    nearest.observations.append(o)
    return True


def _successive(observed: Sequence[Observation]) -> Iterator[State]:
    """Yield states without a version, in the order of one witness: each logs them in order but not at one time."""
    states: list[State] = []
    by_content: dict[_Known, list[State]] = {}
    streams: dict[tuple[str, int], list[Observation]] = {}
    for o in observed:
        streams.setdefault((o.actor, o.actor_id), []).append(o)
    for stream in sorted(streams.values(), key=lambda s: (s[0].actor != "controller", -len(s), s[0])):
        if not states:
            for o in stream:
                content = o.leader, frozenset(o.isr or ())
                if not states or content != (states[-1].leader, frozenset(states[-1].isr or ())):
                    states.append(_state(o))
                states[-1].observations.append(o)
            by_content = _by_content(states)
        else:
            for o in stream:
                if not _attach(o, by_content):
                    states.append(_state(o))
                    states[-1].observations.append(o)
                    by_content.setdefault((o.leader, frozenset(o.isr or ())), []).append(states[-1])
    yield from sorted(states, key=lambda s: min(s.observations))
