"""The facts about a partition, each once, with all brokers that logged it (SCL-17X, SCL-19X). Pure functions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.incarnation import Incarnation
from kafkatool.core.statelog.history.lives import lives_of
from kafkatool.core.statelog.history.observations import Observation
from kafkatool.core.statelog.sources.spilling import Many, kept


@dataclass(slots=True)
class History:
    """A partition's facts in order, and how it stands at the end (None: not known). ``deleted`` tells it is gone.

    ``named``: the brokers that the facts name as leader, replica or in-sync replica; ``unseen``: how many changes no
    line tells of.
    """

    facts: Many[Fact]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    partition_epoch: int | None = None
    topic_id: str | None = None
    leader_recovery_state: str | None = None
    mode: str | None = None
    deleted: bool = False
    elections: int = 0
    named: set[int] = field(default_factory=set)
    unseen: int = 0


def history_of(observations: Many[Observation]) -> History:
    """Return the history that all observations of one partition give; they are in order of time, each once. OSError."""
    history = History([])
    history.facts = kept(_facts_of(observations, history))
    return history


def _facts_of(observations: Many[Observation], history: History) -> Iterator[Fact]:
    """Yield the facts, and tell the history how the last life stands."""
    for observed in lives_of(observations):
        incarnation = Incarnation(observed)
        for fact in incarnation.facts():
            for broker in (fact.leader, fact.old_leader):
                if broker is not None:
                    history.named.add(broker)
            for brokers in (fact.isr, fact.replicas, fact.old_replicas, fact.changed):
                if brokers:
                    history.named.update(brokers)
            history.unseen += fact.count if fact.kind == "gap" else 0
            yield fact
        final = incarnation.last
        history.leader, history.leader_epoch = (final.leader, final.leader_epoch) if final else (None, None)
        history.isr, history.partition_epoch = (final.isr, final.partition_epoch) if final else (None, None)
        history.leader_recovery_state = incarnation.recovery
        history.topic_id, history.mode = incarnation.topic_id, final.mode if final else None
        history.deleted = incarnation.deleted
        history.elections += incarnation.elections


def leaderless_ms(facts: Iterable[Fact], end: str) -> Iterator[tuple[str, str, bool]]:
    """Yield spans without leader: from, to, and whether that is only the end of the logs."""
    since: str | None = None
    for fact in facts:
        if since is None and (fact.kind == "offline" or (fact.kind == "first_seen" and fact.leader is None)):
            since = fact.time
        elif fact.kind in ("elected", "first_seen", "deletion_started", "deleted") and since is not None:
            yield since, max(fact.time, since), False
            since = None
    if since is not None:
        yield since, max(end, since), True
