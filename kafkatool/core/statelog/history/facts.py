"""The facts about a partition, each once, with all brokers that logged it (SCL-17X, SCL-19X). Pure functions."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from kafkatool.core.statelog.history.leadership import DELETING, NO_LEADER, State, states_of
from kafkatool.core.statelog.history.lives import ECHO_MS, lives_of
from kafkatool.core.statelog.history.observations import DISK_FAILED, FAILURES, IGNORED, Observation, milliseconds
from kafkatool.core.statelog.lines.forms import KRAFT

RECOVERED: Final = "RECOVERED"
RECOVERING: Final = "RECOVERING"


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


@dataclass(slots=True)
class History:
    """A partition's facts in order, and how it stands at the end (None: not known). ``deleted`` tells it is gone."""

    facts: list[Fact]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    partition_epoch: int | None = None
    topic_id: str | None = None
    leader_recovery_state: str | None = None
    mode: str | None = None
    deleted: bool = False
    elections: int = 0


def history_of(observations: Iterable[Observation]) -> History:
    """Return the history that all observations of one partition give."""
    history = History([])
    for observed in lives_of(sorted(set(observations))):
        incarnation = _Incarnation(observed)
        history.facts.extend(incarnation.facts())
        final = incarnation.states[-1] if incarnation.states else None
        history.leader, history.leader_epoch = (final.leader, final.leader_epoch) if final else (None, None)
        history.isr, history.partition_epoch = (final.isr, final.partition_epoch) if final else (None, None)
        history.leader_recovery_state = incarnation.recovery
        history.topic_id, history.mode = incarnation.topic_id, final.mode if final else None
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


def _elections(observed: Sequence[Observation], states: Sequence[State]) -> int:
    """Count the elections a controller logged: 0.8 to 0.11 in words, later as the new state; else leaders that changed."""
    online = [o for o in observed if o.event == "partition_online"]
    in_words = sum(o.event == "leader_elected" for o in observed)
    if online or in_words:
        first = sum(o.leader_epoch is None and o.text == "NewPartition" for o in online)
        return in_words + first + len({o.leader_epoch for o in online if o.leader_epoch is not None})
    first = bool(states) and states[0].leader >= 0 and states[0].leader_epoch == 0 and not states[0].partition_epoch
    return first + sum(before.leader != after.leader and after.leader >= 0 for before, after in pairwise(states))


class _Incarnation:
    """One incarnation of a partition: its observations, sorted, its succession of states, and the facts they make.

    No step looks at all observations for each of them: one partition may have millions.
    """

    def __init__(self, observed: Sequence[Observation]) -> None:
        self._observed = observed
        everything = states_of(observed)
        self._deleting = [o for state in everything if state.leader == DELETING for o in state.observations]
        signs = self._deleting or [o for o in observed if o.event in ("partition_removed", "metadata_deleted")]
        end = min((o.time for o in signs), default=None)
        self.states = [s for s in everything if s.leader != DELETING and (end is None or s.decision.time < end)]
        self.deleted = end is not None
        self._created = [o for o in observed if o.event == "partition_created"]
        self._made = [o for o in observed if o.event == "replica_created"]
        self.topic_id = next((o.topic_id for o in observed if o.topic_id), None)
        self._offline_times = [o.time for o in observed if o.event == "partition_offline"]
        self._unclean_starts = _unclean_starts(observed)
        self.recovery: str | None = None
        self._tell_modes()

    def _tell_modes(self) -> None:
        """Tell each state its mode: that of a line about it, else of the state before it, else of the first line."""
        mode = next((o.mode for o in self._observed if o.mode), None)
        for state in self.states:
            mode = state.mode = next((o.mode for o in state.observations if o.mode), mode)

    def facts(self) -> list[Fact]:
        """Return all facts in order of time; those of the succession of states keep its order whatever clocks say."""
        placed = [(fact.time, i, fact) for i, fact in enumerate(self._others())]
        latest = ""
        for i, fact in enumerate(self._changes()):
            latest = max(latest, fact.time)
            placed.append((latest, len(placed) + i, fact))
        placed.sort(key=lambda p: (p[0], p[1]))
        for _, _, fact in placed:
            fact.topic_id = self.topic_id
        return _one_offline_each([fact for _, _, fact in placed])

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

    def _changes(self) -> Iterator[Fact]:
        isr: tuple[int, ...] | None = None
        for before, state in zip((None, *self.states), self.states, strict=False):
            unclean = self._recovers(state) and self.recovery != RECOVERING
            self.recovery = self._recovery_state(state) or self.recovery
            known = self._created or before
            unseen = _unseen(before, state) if known else 0
            if unseen:
                yield Fact(state.decision.time, "gap", count=unseen, mode=state.mode)
            for fact in self._change(before, state, isr, unclean=unclean):
                fact.leader_recovery_state = self.recovery
                yield fact
            isr = state.isr if state.isr is not None else isr

    def _change(
        self, before: State | None, state: State, isr: tuple[int, ...] | None, *, unclean: bool
    ) -> Iterator[Fact]:
        """Yield what happened between two states. ``isr`` is the latest one known."""
        new = bool(self._created) or (state.leader_epoch == 0 and not state.partition_epoch)
        old_leader = before.leader if before else None
        if before is None and not new:
            yield _fact("first_seen", state.observations, state, unclean=unclean)
            return
        if state.leader == NO_LEADER:
            if old_leader != NO_LEADER:
                yield _fact("offline", state.observations, state, old_leader=old_leader)
        elif state.leader != old_leader or unclean or self._offline_between(before, state):
            old = old_leader if old_leader != NO_LEADER else None
            handed_over = old is not None and self._is_handed_over(before, state)
            yield _fact("elected", state.observations, state, old_leader=old, unclean=unclean, handed_over=handed_over)
        if before is None or isr is None or state.isr is None:
            return
        gone = tuple(b for b in isr if b not in state.isr)
        come = tuple(b for b in state.isr if b not in isr)
        by_leader = not state.by_controller and state.mode != KRAFT
        for kind, changed in (("isr_shrunk", gone), ("isr_grown", come)):
            if changed:
                yield _fact(kind, state.observations, state, changed=changed, decided_by_leader=by_leader)

    def _recovers(self, state: State) -> bool:
        """Tell if the leader of a state was elected from outside the ISR and has not yet answered for it."""
        return any(o.recovery == RECOVERING or (o.source, o.offset) in self._unclean_starts for o in state.observations)

    def _recovery_state(self, state: State) -> str | None:
        if self._recovers(state):
            return RECOVERING
        # A leader that starts says so if it recovers; only versions that know of it tell the partition epoch then.
        told = (o.recovery or o.event == "leader_started" for o in state.observations if o.partition_epoch is not None)
        return RECOVERED if any(told) else None

    def _is_handed_over(self, before: State | None, state: State) -> bool:
        """Tell if the controller's line says that the partition was online until then, so its old leader was alive."""
        return not self._offline_between(before, state) and any(
            o.event == "partition_online" and o.text == "OnlinePartition" for o in state.observations
        )

    def _offline_between(self, before: State | None, state: State) -> bool:
        """Tell if the controller saw the partition offline between two states: then its old leader was elected again."""
        if before is None or before.leader_epoch == state.leader_epoch:
            return False
        start, end = before.decision.time, state.decision.time
        if any(o.event == "partition_online" and o.text == "OfflinePartition" for o in state.observations):
            return True
        at = bisect_left(self._offline_times, start)
        return at < len(self._offline_times) and self._offline_times[at] <= end

    def _others(self) -> Iterator[Fact]:
        for o in self._created[:1]:
            yield _simple("created", self._created, o, replicas=o.replicas)
        if self._made and not self._created and self.states and _is_first(self.states[0]):
            made = [o for o in self._made if _near(self._made[0].time, o.time)]  # later ones: a broker was started
            yield _simple("created", made, made[0])
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
        yield from _failures(
            [o for o in self._observed if o.event in FAILURES or o.event in IGNORED or o.event == DISK_FAILED]
        )

    def _only_to_be_removed(self, o: Observation, removed: Sequence[Observation]) -> bool:
        """Tell if a partition was taken offline by its deletion, which is no outage."""
        end = min((r.time for r in removed if r.time >= o.time), default=None)
        started = min((d.time for d in self._deleting), default=end)
        return end is not None and started is not None and (started <= o.time or _near(o.time, end))


def _is_first(state: State) -> bool:
    return state.leader_epoch == 0 and state.partition_epoch == 0


def _unseen(before: State | None, state: State) -> int:
    """Return how many changes lie between two states: each raises the partition epoch by one."""
    since = before.partition_epoch if before else -1
    if since is None or state.partition_epoch is None:
        return 0
    return max(state.partition_epoch - since - 1, 0)


def _unclean_starts(observed: Sequence[Observation]) -> frozenset[tuple[int, int]]:
    """Return the places of the lines of leaders that start after an unclean election: the line before says so."""
    starts: dict[tuple[int, int], list[int]] = {}
    for o in observed:
        if o.event == "leader_started":
            starts.setdefault((o.source, o.actor_id), []).append(o.offset)
    for offsets in starts.values():
        offsets.sort()
    found = set()
    for said in (o for o in observed if o.event == "leader_recovering"):
        offsets = starts.get((said.source, said.actor_id), [])
        at = bisect_right(offsets, said.offset)
        if at < len(offsets):
            found.add((said.source, offsets[at]))
    return frozenset(found)


def _near(earlier: str, later: str) -> bool:
    return milliseconds(later) - milliseconds(earlier) <= ECHO_MS


def _fact(kind: str, observed: Sequence[Observation], state: State, **more: object) -> Fact:
    decision = state.decision if len(observed) > 1 else observed[0]
    leader = state.leader if state.leader >= 0 else None
    more |= {"leader": leader, "leader_epoch": state.leader_epoch, "isr": state.isr, "mode": state.mode}
    more |= {"partition_epoch": state.partition_epoch}
    for name, values in (
        ("adding_replicas", [o.adding for o in observed]),
        ("removing_replicas", [o.removing for o in observed]),
    ):
        more[name] = next((value for value in values if value is not None), None)
    decider = {"controller": state.controller, "controller_epoch": state.controller_epoch}
    return _simple(kind, observed, decision, **decider, **more)


def _simple(kind: str, observed: Sequence[Observation], o: Observation, **more: object) -> Fact:
    more = {"controller": o.controller, "controller_epoch": o.epoch, "mode": o.mode, **more}
    return Fact(o.time, kind, witnesses=_witnesses(observed), **more)  # type: ignore[arg-type]


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
        if run and _near(run[-1].time, o.time):
            run.append(o)
        else:
            open_runs[key] = [o]
            runs.append(open_runs[key])
    for run in runs:
        event = run[0].event
        kind = "ignored" if event in IGNORED else "disk_failed" if event == DISK_FAILED else "failed"
        reason = event.replace("_", " ") + (f": {run[0].text}" if run[0].text else "")
        yield _simple(kind, run, run[0], reason=reason, count=len(run), until=run[-1].time if len(run) > 1 else None)


def _one_offline_each(facts: list[Fact]) -> list[Fact]:
    """Keep one offline fact for one outage: a controller logs the partition's state, then its leader -1."""
    kept: list[Fact] = []
    offline: Fact | None = None
    for fact in facts:
        if fact.kind == "offline" and offline is not None:
            first = {(w.broker, w.role): w for w in (*fact.witnesses, *offline.witnesses)}
            offline.witnesses = tuple(sorted(first.values(), key=lambda w: (w.time, w.role != "controller", w.broker)))
            for name in ("leader_epoch", "partition_epoch", "isr", "old_leader", "controller_epoch"):
                if getattr(offline, name) is None:
                    setattr(offline, name, getattr(fact, name))
            continue
        if fact.kind == "offline":
            offline = fact
        elif fact.kind in ("elected", "first_seen", "created", "deleted"):
            offline = None
        kept.append(fact)
    return kept
