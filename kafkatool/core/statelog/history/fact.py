"""One thing that happened to a partition, the brokers that logged it, and how it is made of their lines (SCL-17X)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkatool.core.statelog.history.leadership import State
from kafkatool.core.statelog.history.observations import Observation


class Witness(NamedTuple):
    """A broker's first line about a fact: as itself or as controller, by its own clock; and the place of the line."""

    broker: int
    role: str
    time: str
    source: int
    line: int


@dataclass(slots=True)
class Fact:
    """One thing that happened to a partition. Fields that its kind does not have are None or empty.

    Kinds: created, first_seen, elected, offline, isr_shrunk, isr_grown, reassigned, disk_failed, failed, ignored,
    deletion_started, deleted; gap: ``count`` changes before ``time`` that no line tells of.

    ``time`` is the decider's clock where the decider was heard, else the earliest witness's. ``controller`` and
    ``controller_epoch``: the decider; of an ISR change by a leader ``decided_by_leader`` is True. ``count`` and
    ``until``: how often a failure repeated, and its last time. ``unclean``: the leader was elected from outside the ISR,
    so records may be lost. ``handed_over``: the old leader was alive, as the controller's line tells.
    ``mode``: "zookeeper" or "kraft", where the lines tell it.
    """

    time: str
    kind: str
    leader: int | None = None
    old_leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    changed: tuple[int, ...] = ()
    replicas: tuple[int, ...] | None = None
    old_replicas: tuple[int, ...] | None = None
    controller: int | None = None
    controller_epoch: int | None = None
    decided_by_leader: bool = False
    reason: str | None = None
    count: int = 1
    until: str | None = None
    unclean: bool = False
    handed_over: bool = False
    partition_epoch: int | None = None
    topic_id: str | None = None
    leader_recovery_state: str | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    mode: str | None = None
    witnesses: tuple[Witness, ...] = ()


class Told:
    """Observations of one fact, of which each witness's first is kept."""

    def __init__(self) -> None:
        self._by_witness: dict[tuple[int, str], Observation] = {}
        self.latest = ""

    def __bool__(self) -> bool:
        return bool(self._by_witness)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self._by_witness.values())

    @property
    def first(self) -> Observation:
        return next(iter(self))

    def add(self, o: Observation) -> None:
        """Take one more, in order of time."""
        self._by_witness.setdefault((o.actor_id, o.actor), o)
        self.latest = o.time


def fact_of(kind: str, observed: Sequence[Observation], state: State, **more: object) -> Fact:
    """Make a fact of what tells of a state; its time is that of the decision."""
    return fact_of_state(kind, observed, state.decision if len(observed) > 1 else observed[0], told_of(state), **more)


def told_of(state: State) -> dict[str, Any]:
    """Return what facts tell of a state."""
    return {
        "leader": state.leader if state.leader >= 0 else None,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "mode": state.mode,
        "partition_epoch": state.partition_epoch,
        "controller": state.controller,
        "controller_epoch": state.controller_epoch,
    }


def fact_of_state(
    kind: str, observed: Sequence[Observation], decision: Observation, about: Mapping[str, Any], **more: object
) -> Fact:
    """Make a fact of lines about a state of which only what facts tell is at hand."""
    for name, values in (
        ("adding_replicas", [o.adding for o in observed]),
        ("removing_replicas", [o.removing for o in observed]),
    ):
        more[name] = next((value for value in values if value is not None), None)
    return simple_fact(kind, observed, decision, **more, **about)


def simple_fact(kind: str, observed: Iterable[Observation], o: Observation, **more: object) -> Fact:
    """Make a fact of lines alone."""
    more = {"controller": o.controller, "controller_epoch": o.epoch, "mode": o.mode, **more}
    return Fact(o.time, kind, witnesses=_witnesses(observed), **more)  # type: ignore[arg-type]


def _witnesses(observed: Iterable[Observation]) -> tuple[Witness, ...]:
    """Return each broker's first line, as controller and as itself apart."""
    first: dict[tuple[int, str], Witness] = {}
    for o in sorted(observed):
        if (o.actor_id, o.actor) not in first:
            first[o.actor_id, o.actor] = Witness(o.actor_id, o.actor, o.time, o.source, o.line)
    return tuple(sorted(first.values(), key=lambda w: (w.time, w.role != "controller", w.broker)))
