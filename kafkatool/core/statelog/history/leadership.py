"""The succession of a partition's leaders and in-sync replicas, from what all brokers logged (SCL-19X).

One state of the partition is written to ZooKeeper once and logged many times: by the controller to each broker, by each
broker that receives it, again by every next controller. Brokers hear of it late, and a controller may repeat an old
one. So states are distinguished by what they are (leader epoch, ZooKeeper version where it is logged, leader, ISR), and
put in order by epochs and versions; the time decides only where these do not. Without ZooKeeper the partition epoch is
in every line about a state: it is then the version.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kafkatool.core.statelog.history.observations import Observation, milliseconds

NO_LEADER = -1
DELETING = -2

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


def states_of(observations: Iterable[Observation]) -> list[State]:
    """Return the states of one incarnation of a partition, in order."""
    by_epoch: dict[int, list[Observation]] = {}
    for o in observations:
        if o.leader_epoch is not None:
            by_epoch.setdefault(o.leader_epoch, []).append(o)
    return [state for _, observed in sorted(by_epoch.items()) for state in _of_one_epoch(observed)]


def _of_one_epoch(observed: Sequence[Observation]) -> list[State]:
    versioned: dict[tuple[int, _Known], State] = {}
    unversioned, without_isr, vague = [], [], []
    for o in sorted(observed):
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
    for state in _successive(unknown):
        later = (i for i, s in enumerate(states) if min(s.observations) > state.observations[0] or s.leader == DELETING)
        states.insert(next(later, len(states)), state)
    for o in vague:  # a follower started in this epoch: it says no more
        if states:
            states[0].observations.append(o)
    for state in states[1:]:
        state.by_controller = state.leader != states[0].leader
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
