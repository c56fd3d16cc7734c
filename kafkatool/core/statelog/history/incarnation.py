"""One life of a partition: its observations in order of time, and the facts that they make (SCL-17X, SCL-19X)."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from kafkatool.core.statelog.history.fact import Fact, Told, fact_of, fact_of_state, simple_fact, told_of
from kafkatool.core.statelog.history.leadership import DELETING, NO_LEADER, State, states_of
from kafkatool.core.statelog.history.observations import (
    DISK_FAILED,
    FAILURES,
    IGNORED,
    RECOVERED,
    RECOVERING,
    Observation,
    milliseconds,
)
from kafkatool.core.statelog.history.told_again import failures, near, one_offline_each
from kafkatool.core.statelog.lines.forms import KRAFT
from kafkatool.core.statelog.sources.spilling import Many, Pile

_TROUBLE: Final = FAILURES | IGNORED | {DISK_FAILED}


class _Places:
    """Facts with their places in the order of one life: by time, and at one time by rank, and as they came."""

    def __init__(self) -> None:
        self._pile: Pile[tuple[str, int, int, Fact]] = Pile(itemgetter(0, 1, 2))

    def put(self, rank: int, fact: Fact, *, time: str | None = None, number: int | None = None) -> None:
        self._pile.add((time or fact.time, rank, len(self._pile) if number is None else number, fact))

    def facts(self) -> Iterator[Fact]:
        return (fact for *_, fact in self._pile.finished())


# The order of facts at one time.
_CREATED, _REASSIGNED, _OFFLINE, _DELETION_STARTED, _DELETED, _FAILED, _CHANGED = range(7)

_Candidate = tuple[Observation, tuple[int, ...], dict[str, Any]]
"""What may be a change of the assignment: a line, the assignment, and the state that it is about."""


class Incarnation:
    """One incarnation of a partition: its observations, in order of time, and the facts that they make.

    It may have millions of observations. So it goes through them, and through the states that they tell of, one after
    the other, and holds neither: what is held grows with the brokers, with deletions, and (8 bytes) with outages. How
    it stands at the end is told when all facts are asked for. ``last`` is the last state.
    """

    def __init__(self, observed: Many[Observation]) -> None:
        self._observed = observed
        self.last: State | None = None
        self.recovery: str | None = None
        self.topic_id: str | None = None
        self._mode: str | None = None
        self._created, self._made, self._deleting, self._gone = Told(), Told(), Told(), Told()
        self._replicas: tuple[int, ...] | None = None
        self._removed: list[str] = []
        self._first_removed: Observation | None = None
        self._begins = False
        self._offline_ms = array("q")
        self._has_failures = False
        self._elected_in_words = self._elected_first = self._leaders_changed = 0
        self._online = False
        self._epochs_online = 0
        self._look_through()
        self._end = next((told.first.time for told in (self._deleting, self._gone) if told), None)

    @property
    def deleted(self) -> bool:
        return self._end is not None

    @property
    def elections(self) -> int:
        """Count the elections a controller logged: 0.8 to 0.11 in words, later as the new state; else changed leaders."""
        if self._online or self._elected_in_words:
            return self._elected_in_words + self._elected_first + self._epochs_online
        return self._leaders_changed

    def facts(self) -> Iterator[Fact]:
        """Yield all facts in order of time; those of the succession of states keep its order whatever clocks say."""
        places = _Places()
        candidates: Pile[_Candidate] = Pile(itemgetter(0))
        latest = ""
        for number, fact in enumerate(self._changes(candidates)):
            latest = max(latest, fact.time)
            places.put(_CHANGED, fact, time=latest, number=number)
        if self._created:
            created = self._created.first
            places.put(_CREATED, simple_fact("created", self._created, created, replicas=created.replicas))
        elif self._made and self._begins:
            places.put(_CREATED, simple_fact("created", self._made, self._made.first))
        for fact in self._reassignments(candidates.finished()):
            places.put(_REASSIGNED, fact)
        if self._deleting:
            places.put(_DELETION_STARTED, simple_fact("deletion_started", self._deleting, self._deleting.first))
        if self._gone:
            places.put(_DELETED, simple_fact("deleted", self._gone, self._first_removed or self._gone.first))
        if self._offline_ms:
            for o in self._observed:
                if o.event == "partition_offline" and not self._only_to_be_removed(o):
                    places.put(_OFFLINE, simple_fact("offline", [o], o))
        if self._has_failures:
            for number, fact in failures(o for o in self._observed if o.event in _TROUBLE):
                places.put(_FAILED, fact, number=number)
        for fact in one_offline_each(places.facts()):
            fact.topic_id = self.topic_id
            yield fact

    def _look_through(self) -> None:
        """Take from the observations what must be known before the first fact can be told."""
        for o in self._observed:
            event = o.event
            self._mode = self._mode or o.mode
            self.topic_id = self.topic_id or o.topic_id
            if o.leader == DELETING and o.leader_epoch is not None:
                self._deleting.add(o)
            if event == "partition_offline":
                self._offline_ms.append(milliseconds(o.time))
            elif event == "partition_online":
                self._online = True
                self._elected_first += o.leader_epoch is None and o.text == "NewPartition"
            elif event == "leader_elected":
                self._elected_in_words += 1
            elif event == "partition_created":
                self._created.add(o)
                self._replicas = self._replicas or o.replicas
            elif event == "replica_created":
                if not self._made or near(self._made.first.time, o.time):  # later ones: a broker was started
                    self._made.add(o)
            elif event in ("partition_removed", "metadata_deleted"):
                self._gone.add(o)
                if event == "partition_removed":
                    self._first_removed = self._first_removed or o
                    if o.time not in self._removed[-1:]:
                        self._removed.append(o.time)
            elif event in _TROUBLE:
                self._has_failures = True

    def _reassignments(self, candidates: Many[_Candidate]) -> Iterator[Fact]:
        """Yield changes of the assignment. Its order counts only where it was logged in order, on purpose."""
        told: Iterable[_Candidate] = candidates
        if any(_told_by_controller(o) for o, _, _ in candidates):
            told = (c for c in candidates if c[0].actor == "controller")  # brokers log the same, later
        replicas = self._replicas
        found: Fact | None = None
        ordered = True
        for o, assigned, about in told:
            in_order = o.event == "reassignment_sent"
            if replicas is not None and {*assigned} == {*replicas} and (assigned == replicas or not in_order):
                continue
            if found and not ordered and replicas is not None and {*assigned} == {*replicas}:
                found.replicas = assigned  # the same assignment, now logged in its order
            elif replicas is not None:
                if found:
                    yield found
                found = fact_of_state("reassigned", [o], o, about, replicas=assigned, old_replicas=replicas)
            replicas, ordered = assigned, in_order
        if found:
            yield found

    def _changes(self, candidates: Pile[_Candidate]) -> Iterator[Fact]:
        """Yield what the succession of states tells, and add what may be changes of the assignment to the candidates."""
        isr: tuple[int, ...] | None = None
        mode = self._mode
        epoch_online: int | None = None
        before: State | None = None
        for state in states_of(self._observed):
            if state.leader_epoch != epoch_online and any(o.event == "partition_online" for o in state.observations):
                epoch_online = state.leader_epoch
                self._epochs_online += 1
            if state.leader == DELETING or (self._end is not None and state.decision.time >= self._end):
                continue
            # The mode is that of a line about the state, else of the state before it, else of the first line.
            mode = state.mode = next((o.mode for o in state.observations if o.mode), mode)
            if before is None:
                self._begins = _is_first(state)
                first = state.leader_epoch == 0 and not state.partition_epoch
                self._leaders_changed += state.leader >= 0 and first
            else:
                self._leaders_changed += before.leader != state.leader >= 0
            candidates.extend((o, replicas, told_of(state)) for o, replicas in state.replicas)
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
            before = self.last = state

    def _change(
        self, before: State | None, state: State, isr: tuple[int, ...] | None, *, unclean: bool
    ) -> Iterator[Fact]:
        """Yield what happened between two states. ``isr`` is the latest one known."""
        new = bool(self._created) or (state.leader_epoch == 0 and not state.partition_epoch)
        old_leader = before.leader if before else None
        if before is None and not new:
            yield fact_of("first_seen", state.observations, state, unclean=unclean)
            return
        if state.leader == NO_LEADER:
            if old_leader != NO_LEADER:
                yield fact_of("offline", state.observations, state, old_leader=old_leader)
        elif state.leader != old_leader or unclean or self._offline_between(before, state):
            old = old_leader if old_leader != NO_LEADER else None
            handed_over = old is not None and self._is_handed_over(before, state)
            yield fact_of(
                "elected", state.observations, state, old_leader=old, unclean=unclean, handed_over=handed_over
            )
        if before is None or isr is None or state.isr is None:
            return
        gone = tuple(b for b in isr if b not in state.isr)
        come = tuple(b for b in state.isr if b not in isr)
        by_leader = not state.by_controller and state.mode != KRAFT
        for kind, changed in (("isr_shrunk", gone), ("isr_grown", come)):
            if changed:
                yield fact_of(kind, state.observations, state, changed=changed, decided_by_leader=by_leader)

    def _recovers(self, state: State) -> bool:
        """Tell if the leader of a state was elected from outside the ISR and has not yet answered for it."""
        return any(o.recovery == RECOVERING for o in state.observations)

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
        if any(o.event == "partition_online" and o.text == "OfflinePartition" for o in state.observations):
            return True
        at = bisect_left(self._offline_ms, milliseconds(before.decision.time))
        return at < len(self._offline_ms) and self._offline_ms[at] <= milliseconds(state.decision.time)

    def _only_to_be_removed(self, o: Observation) -> bool:
        """Tell if a partition was taken offline by its deletion, which is no outage."""
        at = bisect_left(self._removed, o.time)
        if at == len(self._removed):
            return False
        end = self._removed[at]
        return (self._deleting.first.time if self._deleting else end) <= o.time or near(o.time, end)


def _is_first(state: State) -> bool:
    return state.leader_epoch == 0 and state.partition_epoch == 0


def _unseen(before: State | None, state: State) -> int:
    """Return how many changes lie between two states: each raises the partition epoch by one."""
    since = before.partition_epoch if before else -1
    if since is None or state.partition_epoch is None:
        return 0
    return max(state.partition_epoch - since - 1, 0)


def _told_by_controller(o: Observation) -> bool:
    return o.actor == "controller" and o.event != "reassignment_sent"
