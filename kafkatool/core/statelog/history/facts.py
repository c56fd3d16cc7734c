"""The facts about a partition, each once, with all brokers that logged it (SCL-17X, SCL-19X). Pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from kafkatool.core.statelog.history.leadership import DELETING, NO_LEADER, State, states_of
from kafkatool.core.statelog.history.observations import DISK_FAILED, FAILURES, IGNORED, Observation, milliseconds

KINDS: Final = (
    *("created", "first_seen", "elected", "offline", "isr_shrunk", "isr_grown", "reassigned"),
    *("disk_failed", "failed", "ignored", "deletion_started", "deleted"),
)
"""Every kind of fact."""

ECHO_MS: Final = 5000
"""The same words of several brokers within this time are one fact."""


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

    ``time`` is the decider's clock where the decider was heard, else the earliest witness's. ``controller`` and
    ``controller_epoch``: the decider; of an ISR change by a leader ``decided_by_leader`` is True. ``count`` and
    ``until``: how often a failure repeated, and its last time.
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
    witnesses: tuple[Witness, ...] = ()


@dataclass(slots=True)
class History:
    """A partition's facts in order, and how it stands at the end (None: not known). ``deleted`` tells it is gone."""

    facts: list[Fact]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    zk_version: int | None = None
    deleted: bool = False
    elections: int = 0


def history_of(observations: Iterable[Observation]) -> History:
    """Return the history that all observations of one partition give."""
    history = History([])
    for observed in _incarnations(sorted(set(observations))):
        incarnation = _Incarnation(observed)
        history.facts.extend(incarnation.facts())
        final = incarnation.states[-1] if incarnation.states else None
        history.leader, history.leader_epoch = (final.leader, final.leader_epoch) if final else (None, None)
        history.isr, history.zk_version = (final.isr, final.zk_version) if final else (None, None)
        history.deleted = incarnation.deleted
        history.elections += _elections(observed, incarnation.states)
    return history


def leaderless_ms(facts: Sequence[Fact], end: str) -> list[tuple[str, str, bool]]:
    """Return spans without leader: from, to, and whether that is only the end of the logs."""
    spans = []
    since: str | None = None
    for fact in facts:
        if since is None and (fact.kind == "offline" or (fact.kind == "first_seen" and fact.leader is None)):
            since = fact.time
        elif fact.kind in ("elected", "first_seen", "deletion_started", "deleted") and since is not None:
            spans.append((since, max(fact.time, since), False))
            since = None
    if since is not None:
        spans.append((since, max(end, since), True))
    return spans


def _incarnations(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    """Yield the observations of each incarnation: a topic deleted and created again starts anew at leader epoch 0."""
    created = [o.time for o in observations if o.event == "partition_created"]
    created = [time for i, time in enumerate(created) if i == 0 or time != created[i - 1]]
    if not created:
        yield list(observations)
        return
    incarnations: list[list[Observation]] = [[] for _ in range(len(created) + 1)]
    for o in observations:
        number = sum(time <= o.time for time in created)
        if number < len(created) and o.leader_epoch == 0 and o.zk_version in (0, None):
            early_ms = milliseconds(created[number]) - milliseconds(o.time)
            early = o.leader != DELETING and early_ms < ECHO_MS
            if early and all(before.leader_epoch is None for before in incarnations[number]):
                number += 1  # a broker whose clock is behind heard of the new one before it was made
        incarnations[number].append(o)
    yield from filter(None, incarnations)


def _elections(observed: Sequence[Observation], states: Sequence[State]) -> int:
    """Count the elections a controller logged: 0.8 to 0.11 in words, later as the new state; else leaders that changed."""
    online = [o for o in observed if o.event == "partition_online"]
    in_words = sum(o.event == "leader_elected" for o in observed)
    if online or in_words:
        first = sum(o.leader_epoch is None and o.text == "NewPartition" for o in online)
        return in_words + first + len({o.leader_epoch for o in online if o.leader_epoch is not None})
    return sum(before.leader != after.leader and after.leader >= 0 for before, after in pairwise(states))


class _Incarnation:
    """One incarnation of a partition: its observations, its succession of states, and the facts they make."""

    def __init__(self, observed: Sequence[Observation]) -> None:
        self._observed = observed
        everything = states_of(o for o in observed)
        self._deleting = [o for state in everything if state.leader == DELETING for o in state.observations]
        signs = self._deleting or [o for o in observed if o.event in ("partition_removed", "metadata_deleted")]
        end = min((o.time for o in signs), default=None)
        self.states = [s for s in everything if s.leader != DELETING and (end is None or s.decision.time < end)]
        self.deleted = end is not None
        self._created = [o for o in observed if o.event == "partition_created"]

    def facts(self) -> list[Fact]:
        """Return all facts in order of time; those of the succession of states keep its order whatever clocks say."""
        placed = [(fact.time, i, fact) for i, fact in enumerate(self._others())]
        latest = ""
        for i, fact in enumerate(self._succession()):
            latest = max(latest, fact.time)
            placed.append((latest, len(placed) + i, fact))
        placed.sort(key=lambda p: (p[0], p[1]))
        return _one_offline_each([fact for _, _, fact in placed])

    def _succession(self) -> Iterator[Fact]:
        before: State | None = None
        for state in self.states:
            yield from self._change(before, state)
            before = state

    def _reassignments(self) -> Iterator[Fact]:
        """Yield changes of the assignment. Its order counts only where it was logged in order, on purpose."""
        observed = sorted(
            ((o, state, replicas) for state in self.states for o, replicas in state.replicas), key=lambda t: t[0]
        )
        if any(o.actor == "controller" and o.event != "reassignment_sent" for o, _, _ in observed):
            observed = [t for t in observed if t[0].actor == "controller"]  # brokers log the same, later
        replicas = next((o.replicas for o in self._created if o.replicas), None)
        found: list[Fact] = []
        ordered = True
        for o, state, assigned in observed:
            in_order = o.event == "reassignment_sent"
            if replicas is not None and {*assigned} == {*replicas} and (assigned == replicas or not in_order):
                continue
            if found and not ordered and replicas is not None and {*assigned} == {*replicas}:
                found[-1].replicas = assigned  # the same assignment, now logged in its order
            elif replicas is not None:
                found.append(_fact("reassigned", [o], state, replicas=assigned, old_replicas=replicas))
            replicas, ordered = assigned, in_order
        yield from found

    def _change(self, before: State | None, state: State) -> Iterator[Fact]:
        new = bool(self._created) or (state.leader_epoch == 0 and not state.zk_version)
        old_leader = before.leader if before else None
        if before is None and not new:
            yield _fact("first_seen", state.observations, state)
            return
        if state.leader == NO_LEADER:
            if old_leader != NO_LEADER:
                yield _fact("offline", state.observations, state, old_leader=old_leader)
        elif state.leader != old_leader or self._offline_between(before, state):
            yield _fact(
                "elected", state.observations, state, old_leader=old_leader if old_leader != NO_LEADER else None
            )
        if before is None:
            return
        gone = tuple(b for b in before.isr if b not in state.isr)
        come = tuple(b for b in state.isr if b not in before.isr)
        for kind, changed in (("isr_shrunk", gone), ("isr_grown", come)):
            if changed:
                yield _fact(kind, state.observations, state, changed=changed, decided_by_leader=not state.by_controller)

    def _offline_between(self, before: State | None, state: State) -> bool:
        """Tell if the controller saw the partition offline between two states: then its old leader was elected again."""
        if before is None or before.leader_epoch == state.leader_epoch:
            return False
        start, end = before.decision.time, state.decision.time
        return any(o.event == "partition_offline" and start <= o.time <= end for o in self._observed)

    def _others(self) -> Iterator[Fact]:
        for o in self._created[:1]:
            yield _simple("created", self._created, o, replicas=o.replicas)
        yield from self._reassignments()
        removed = [o for o in self._observed if o.event == "partition_removed"]
        for o in self._observed:
            if o.event == "partition_offline" and not self._only_to_be_removed(o, removed):
                yield _simple("offline", [o], o)
        if self._deleting:
            yield _simple("deletion_started", self._deleting, min(self._deleting))
        gone = removed or [o for o in self._observed if o.event == "metadata_deleted"]
        if gone:
            observed = [o for o in self._observed if o.event in ("partition_removed", "metadata_deleted")]
            yield _simple("deleted", observed, min(gone))
        yield from _failures([o for o in self._observed if o.event in FAILURES or o.event in (IGNORED, DISK_FAILED)])

    def _only_to_be_removed(self, o: Observation, removed: Sequence[Observation]) -> bool:
        """Tell if a partition was taken offline by its deletion, which is no outage."""
        end = min((r.time for r in removed if r.time >= o.time), default=None)
        started = min((d.time for d in self._deleting), default=end)
        return end is not None and started is not None and (started <= o.time or _near(o.time, end))


def _near(earlier: str, later: str) -> bool:
    return milliseconds(later) - milliseconds(earlier) <= ECHO_MS


def _fact(kind: str, observed: Sequence[Observation], state: State, **more: object) -> Fact:
    decision = state.decision if len(observed) > 1 else observed[0]
    return Fact(
        decision.time,
        kind,
        leader=state.leader if state.leader >= 0 else None,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        controller=state.controller,
        controller_epoch=state.controller_epoch,
        witnesses=_witnesses(observed),
        **more,  # type: ignore[arg-type]
    )


def _simple(kind: str, observed: Sequence[Observation], o: Observation, **more: object) -> Fact:
    return Fact(
        o.time,
        kind,
        controller=o.controller,
        controller_epoch=o.epoch,
        witnesses=_witnesses(observed),
        **more,  # type: ignore[arg-type]
    )


def _witnesses(observed: Iterable[Observation]) -> tuple[Witness, ...]:
    """Return each broker's first line, as controller and as itself apart."""
    first: dict[tuple[int, str], Witness] = {}
    for o in sorted(observed):
        first.setdefault((o.actor_id, o.actor), Witness(o.actor_id, o.actor, o.time, o.source, o.line))
    return tuple(sorted(first.values(), key=lambda w: (w.time, w.role != "controller", w.broker)))


def _failures(observed: Sequence[Observation]) -> Iterator[Fact]:
    """Yield failures: the same words again and again, or of several brokers, are one fact with a count."""
    runs: list[list[Observation]] = []
    open_runs: dict[tuple[str, str, int | None], list[Observation]] = {}
    for o in sorted(observed):
        key = (o.event, o.text or "", o.epoch)
        run = open_runs.get(key)
        if run and (_near(run[-1].time, o.time)):
            run.append(o)
        else:
            open_runs[key] = [o]
            runs.append(open_runs[key])
    for run in runs:
        kind = {IGNORED: "ignored", DISK_FAILED: "disk_failed"}.get(run[0].event, "failed")
        reason = f"{run[0].event.replace('_', ' ')}: {run[0].text}" if run[0].text else run[0].event.replace("_", " ")
        times = len(run)
        until = run[-1].time if times > 1 else None
        yield _simple(kind, run, run[0], reason=reason, count=times, until=until)


def _one_offline_each(facts: list[Fact]) -> list[Fact]:
    """Keep one offline fact for one outage: a controller logs the partition's state, then its leader -1."""
    kept: list[Fact] = []
    offline: Fact | None = None
    for fact in facts:
        if fact.kind == "offline" and offline is not None:
            first = {(w.broker, w.role): w for w in (*fact.witnesses, *offline.witnesses)}
            offline.witnesses = tuple(sorted(first.values(), key=lambda w: (w.time, w.role != "controller", w.broker)))
            for name in ("leader_epoch", "isr", "old_leader", "controller_epoch"):
                if getattr(offline, name) is None:
                    setattr(offline, name, getattr(fact, name))
            continue
        if fact.kind == "offline":
            offline = fact
        elif fact.kind in ("elected", "first_seen", "created", "deleted"):
            offline = None
        kept.append(fact)
    return kept
