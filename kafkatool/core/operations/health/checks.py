"""Whether the cluster is well: each check of one look at it, with the memory of former looks (ADM-107). Pure."""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kafkatool.core.model.values import TopicPartition, in_number
from kafkatool.core.operations.brokers.releases import release_of
from kafkatool.core.operations.election import election
from kafkatool.core.operations.health.memory import FLAPPING, FLAPPING_S, Free, Memory
from kafkatool.core.operations.health.reading import MIN_ISR, UNCLEAN, Reading
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    ConfigZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicZnode,
)

NO_CONTROLLER_S: Final = 10.0
NEW_CONTROLLER_S: Final = 300.0
IMBALANCE: Final = 0.10
STUCK_S: Final = 600.0
TAKEN_UP_S: Final = 60.0
FORGOTTEN_S: Final = 10.0
NEW_S: Final = 2.0  # so long a partition that is just made may be without its first leader
MIXED_S: Final = 3600.0
LEAST_FREE: Final = 0.10
NO_MORE_THAN_REPLICAS: Final = (3, 7)  # the release from which min.insync.replicas is bounded by a partition's factor
VOTER_BEHIND_S: Final = 10.0
FULL_WITHIN_S: Final = 24 * 3600.0
RATE_OVER_S: Final = 60.0  # a shorter time tells no rate: segments come and go
DELETED_S: Final = 900.0
TIME_TELLS: Final = "--watch or --state tells"


class Level(enum.IntEnum):
    """The level of a finding; only the last two make the verdict worse."""

    OK = 0
    NOTE = 1
    UNKNOWN = 2
    DEGRADED = 3
    CRITICAL = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class Finding(NamedTuple):
    """One thing that a check has found: how bad, what, and of which partitions, brokers or topics."""

    level: Level
    what: str
    names: tuple[str, ...] = ()


class Check(NamedTuple):
    """The outcome of one check; without findings all is well."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        return max((finding.level for finding in self.findings), default=Level.OK)


def verdict(checks: Sequence[Check]) -> Level:
    """Return OK, DEGRADED or CRITICAL: what is unknown, or a note, changes nothing (ADM-109)."""
    worst = max(check.level for check in checks)
    return worst if worst >= Level.DEGRADED else Level.OK


class Doubt(NamedTuple):
    """What another look is for, and after how long."""

    after_s: float
    why: str


def doubt(memory: Memory) -> Doubt | None:
    """Return why another look is needed to say what the newest means, None where none is.

    Topics come and go: what is made just now has no leader yet, and nothing tells that from one that lost its last.
    """
    if memory.no_controller_since_s is not None or memory.idle_throttles:
        return Doubt(FORGOTTEN_S, "only then a throttle is forgotten, or a controller missing")
    if memory.unled if memory.looks == 1 else memory.unled & memory.fresh:
        return Doubt(NEW_S, "what has no leader may have been made just now")
    return None


# --- the checks -------------------------------------------------------------------------------------------------


def judge(reading: Reading, memory: Memory) -> tuple[Check, ...]:
    """Return every check in its order. ``memory`` includes this look."""
    return tuple(Check(name, (*check(reading, memory), *_untold(reading, name))) for name, check in CHECKS.items())


_TOPICS, _CONFIGS, _BROKERS = TopicZnode.path(""), ConfigZnode.path("topics", ""), f"{BrokersZnode.PATH}/"
TOLD_BY_NODES: Final[Mapping[str, tuple[str, ...]]] = {
    "partitions": (_TOPICS, _CONFIGS),
    "brokers": (_BROKERS,),
    "moves": (_TOPICS,),
    "throttles": (_CONFIGS,),
    "unclean elections": (_CONFIGS,),
}
"""What the paths of the nodes begin with that a check cannot do without."""


def _untold(r: Reading, check: str) -> Iterator[Finding]:
    """Yield what this look cannot say: what is not known is not well (ADM-109)."""
    for what in r.untold.get(check, ()):
        yield Finding(Level.UNKNOWN, f"not told: {what}")
    if names := tuple(path for path in r.view.unreadable if path.startswith(TOLD_BY_NODES.get(check, ()))):
        yield Finding(Level.UNKNOWN, "not told: what nodes hold that cannot be read", names)


def _controller(r: Reading, memory: Memory) -> Iterator[Finding]:
    if r.view.controller_id is None or memory.no_controller_since_s is not None:
        since = memory.no_controller_since_s
        gone_s = 0.0 if since is None else r.at_s - since
        if gone_s >= NO_CONTROLLER_S:
            yield Finding(Level.CRITICAL, f"no controller for {_age(gone_s)}")
        else:
            yield Finding(Level.DEGRADED, "no controller at this look")
        return
    yield from _quorum(r)
    yield from _seen_to_change(r, memory)
    first_ever = r.controller_epoch == 1
    if r.controller_since_s is not None and not first_ever and r.at_s - r.controller_since_s < NEW_CONTROLLER_S:
        age = _age(r.at_s - r.controller_since_s)
        yield Finding(Level.DEGRADED, f"changed {age} ago", (f"broker {r.view.controller_id}",))
    rose = memory.epochs[-1][1] - memory.epochs[0][1] if memory.epochs else 0
    if r.at_s - r.controller_epoch_since_s <= FLAPPING_S:  # all its writes are of these minutes
        rose = max(rose, r.controller_epoch_writes)
    if rose >= FLAPPING:
        yield Finding(Level.DEGRADED, f"changed {rose} times within {_age(FLAPPING_S)}: it flaps")


def _quorum(r: Reading) -> Iterator[Finding]:
    behind = [f"voter {v.id}" for v in r.voters if v.behind_s is None or v.behind_s > VOTER_BEHIND_S]
    if behind:
        yield Finding(Level.DEGRADED, f"behind the quorum for over {_age(VOTER_BEHIND_S)}", tuple(behind))


def _seen_to_change(r: Reading, memory: Memory) -> Iterator[Finding]:
    """Judge from looks alone since when there is this controller, where nobody tells."""
    if r.controller_since_s is not None or r.term is None or not memory.terms:
        return
    since_s = memory.terms[-1][0]
    changes = sum(r.at_s - at_s <= FLAPPING_S for at_s, _ in memory.terms[1:])
    if r.at_s - since_s < NEW_CONTROLLER_S:
        names = (f"{'controller' if r.voters else 'broker'} {r.view.controller_id}",)
        if len(memory.terms) > 1:
            yield Finding(Level.DEGRADED, f"changed within {_age(NEW_CONTROLLER_S)}", names)
        else:
            yield Finding(Level.UNKNOWN, f"whether it changed within {_age(NEW_CONTROLLER_S)}: {TIME_TELLS}", names)
    if changes >= FLAPPING:
        yield Finding(Level.DEGRADED, f"changed {changes} times within {_age(FLAPPING_S)}: it flaps")


def _partitions(r: Reading, memory: Memory) -> Iterator[Finding]:
    leaderless: list[TopicPartition] = []
    below: list[TopicPartition] = []
    behind: list[TopicPartition] = []
    at_minimum: list[TopicPartition] = []
    fresh: list[TopicPartition] = []
    minima: dict[tuple[str, int, int], int] = {}  # of 10,000 partitions they are few
    for p, assigned in r.view.staying().items():
        leader = r.leader(p)
        if leader is None:
            (fresh if p in memory.fresh else leaderless).append(p)
            continue
        isr = set(r.view.states[p].leader_and_isr.isr)
        of = p.topic, leader, len(assigned)
        minimum = minima[of] = minima[of] if of in minima else _least_in_sync(r, *of)
        if len(isr) < minimum:
            below.append(p)
        elif not isr.issuperset(assigned) and not isr.issuperset(set(assigned) - r.view.adding(p)):
            (at_minimum if len(isr) == minimum else behind).append(p)
    yield from _found(Level.CRITICAL, leaderless, "without leader")
    yield from _found(Level.CRITICAL, below, f"below {MIN_ISR}")
    yield from _found(Level.DEGRADED, at_minimum, f"at {MIN_ISR}, with replicas out of sync")
    yield from _found(Level.DEGRADED, behind, "with replicas out of sync")
    yield from _found(Level.NOTE, fresh, "just made, and not led yet")


def _leaders(r: Reading, memory: Memory) -> Iterator[Finding]:
    # What moves is about to be preferred elsewhere: its new replicas cannot lead before they are in sync. What was just made
    # is led by nobody yet.
    rows = election.report(r.view, leave_out=r.moving | memory.fresh)
    over = [row for row in rows if row.registered and row.imbalance > IMBALANCE]
    names = [f"broker {row.broker_id} ({row.imbalance * 100:.0f} %)" for row in over]
    if names:
        yield Finding(
            Level.DEGRADED, f"over {IMBALANCE * 100:.0f} % of what they prefer is led by others", tuple(names)
        )


def _brokers(r: Reading, memory: Memory) -> Iterator[Finding]:
    live = set(r.view.brokers)
    alone, dead = [], r.view.dead_holders()
    for p, assigned in r.view.staying().items():
        state = r.view.states.get(p)
        if not dead.isdisjoint(assigned) and state is not None and not live.intersection(state.leader_and_isr.isr):
            alone.append(p)
    yield from _found(Level.CRITICAL, alone, "in sync on dead brokers alone")
    if dead:
        yield Finding(Level.DEGRADED, "dead and named in assignments", tuple(f"broker {b}" for b in sorted(dead)))
    # A refused connection is known at once, long before the session of who died ends; silence may be this machine's.
    refusing = _refusing(r)
    unknown = [b for b in r.answers.silent if b not in refusing]
    if refusing:
        names = tuple(f"broker {b}" for b in sorted(refusing))
        yield Finding(Level.DEGRADED, "registered, and nothing listens at its address: has it just died?", names)
    if unknown:
        names = tuple(f"broker {b}" for b in sorted(unknown))
        yield Finding(Level.UNKNOWN, f"registered, without an answer: {r.answers.silent[min(unknown)]}", names)
    yield from _not_permitted(r)
    if memory.mixed_since_s is not None and r.at_s - memory.mixed_since_s > MIXED_S:
        yield Finding(Level.NOTE, f"releases differ for {_age(r.at_s - memory.mixed_since_s)}", r.releases)


def _not_permitted(r: Reading) -> Iterator[Finding]:
    """Yield what brokers may not tell us: what other checks say is said without it."""
    by_refusal: dict[str, list[str]] = {}
    for broker, answer in sorted(r.answers.told.items()):
        for error, consequence in answer.refused:
            what = f"{error.operation} on {error.resource} is not permitted to {error.principal}: {consequence}"
            by_refusal.setdefault(what, []).append(f"broker {broker}")
    for what, names in by_refusal.items():
        yield Finding(Level.UNKNOWN, what, tuple(names))


def _moves(r: Reading, memory: Memory) -> Iterator[Finding]:
    still = {p: progress for p, progress in memory.moves.items() if r.at_s - progress.at_s >= STUCK_S}
    unseen = {p for p, progress in still.items() if progress.untold}
    yield from _found(Level.DEGRADED, sorted(still.keys() - unseen), f"moving without progress for {_age(STUCK_S)}")
    what = "without progress that is seen: what its new replicas hold is not told"
    yield from _found(Level.UNKNOWN, sorted(unseen), f"moving for {_age(STUCK_S)} {what}")
    yield from _bound_for_nowhere(r)
    asked = r.requests.get(ReassignmentZnode.PATH)
    waiting: list[TopicPartition] = []
    if asked is not None and r.at_s - asked >= TAKEN_UP_S:
        targets = (r.view.reassignment or {}).items()
        waiting = [p for p, to in targets if not _replicas(r, p).issuperset(to)]
        yield from _found(Level.DEGRADED, sorted(waiting), f"in {ReassignmentZnode.PATH}, which no controller takes up")
        others = sorted(set(memory.moves).difference(waiting))
        if others and memory.looks == 1 and r.at_s - asked >= STUCK_S:
            yield Finding(
                Level.UNKNOWN, f"whether what moves since {_age(r.at_s - asked)} goes on: {TIME_TELLS}", _names(others)
            )
    elif asked is None and memory.moves and memory.looks == 1:  # by requests, and nobody tells since when
        yield Finding(Level.UNKNOWN, f"whether what moves goes on: {TIME_TELLS}", _names(sorted(memory.moves)))
    elected = r.requests.get(PreferredElectionZnode.PATH)
    if elected is not None and r.at_s - elected >= TAKEN_UP_S:
        names = _names(sorted(r.view.election or ()))
        yield Finding(Level.DEGRADED, f"in {PreferredElectionZnode.PATH}, which no controller takes up", names)
    deleted = sorted(p for p in r.moving if p.topic in r.view.marked_for_deletion)
    yield from _found(Level.DEGRADED, deleted, "of topics being deleted still moving")


def _bound_for_nowhere(r: Reading) -> Iterator[Finding]:
    """Yield the moves to brokers that are gone: known at one look, long before nothing has moved for some time."""
    live, refusing = set(r.view.brokers), set(_refusing(r))
    silent = set(r.answers.silent) - refusing
    for level, gone, why in (
        (Level.DEGRADED, {b for p in r.moving for b in r.view.adding(p)} - live, "dead"),
        (Level.DEGRADED, refusing, "registered, but nothing listens at its address"),
        (Level.UNKNOWN, silent, "registered, but does not answer"),
    ):
        for broker in sorted(gone):
            found = sorted(p for p in r.moving if broker in r.view.adding(p))
            yield from _found(level, found, f"moving to broker {broker}, which is {why}")


def _throttles(r: Reading, memory: Memory) -> Iterator[Finding]:
    if r.rates_untold is not None:
        yield Finding(Level.UNKNOWN, f"of brokers: {r.rates_untold}")
    if unseen := [f"broker {broker}" for broker in sorted(r.unjudged_dir_rates)]:
        yield Finding(Level.UNKNOWN, "a rate for moves between log directories, which are not told", tuple(unseen))
    names = [entity_name(entity) for entity in forgotten(r, memory)]
    if names:
        yield Finding(
            Level.DEGRADED, "set while nothing moves: forgotten? --remove-throttles takes them off", tuple(names)
        )
    if r.default_rates:
        yield Finding(
            Level.NOTE, "set as default of all brokers, which kt leaves alone", tuple(sorted(r.default_rates))
        )


def forgotten(r: Reading, memory: Memory) -> list[tuple[str, str]]:
    """Return the entities whose throttle stood while nothing moved, at two looks FORGOTTEN_S apart (ADM-108)."""
    return [entity for entity, since_s in memory.idle_throttles.items() if r.at_s - since_s >= FORGOTTEN_S]


def entity_name(entity: tuple[str, str]) -> str:
    """Write ``broker 1``, ``topic t``."""
    return f"{entity[0].removesuffix('s')} {entity[1]}"


def _unclean(r: Reading, memory: Memory) -> Iterator[Finding]:
    yield from _found(Level.DEGRADED, sorted(r.recovering), "led after an unclean election, not recovered")
    seen = {p: suspicion.is_certain for p, suspicion in sorted(memory.unclean.items()) if p not in r.recovering}
    yield from _found(Level.DEGRADED, [p for p, certain in seen.items() if certain], "seen to be elected uncleanly")
    what = "with none in sync that was at the look before: whether by an unclean election is not told"
    yield from _found(Level.UNKNOWN, [p for p, certain in seen.items() if not certain], what)
    allowed = sorted(t for t, config in r.view.configs.items() if config.get(UNCLEAN) == "true")
    if allowed:
        yield Finding(Level.DEGRADED, "enabled on topics", tuple(allowed))
    by_default = [f"broker {b}" for b, a in sorted(r.answers.told.items()) if (a.configs or {}).get(UNCLEAN) == "true"]
    if by_default:
        yield Finding(Level.DEGRADED, "enabled for all topics by brokers", tuple(by_default))


def _disks(r: Reading, memory: Memory) -> Iterator[Finding]:
    offline, low, filling, untold = [], [], [], []
    for broker in sorted(r.view.brokers):
        answer = r.answers.told.get(broker)
        if answer is None or answer.log_dirs is None:
            untold.append(f"broker {broker}")
            continue
        for d in answer.log_dirs:
            name = f"broker {broker} {d.path}"
            if d.offline:
                offline.append(name)
            elif d.total_bytes and d.free_bytes is not None and d.free_bytes < LEAST_FREE * d.total_bytes:
                low.append(f"{name} ({100 * d.free_bytes / d.total_bytes:.0f} %)")
            elif d.free_bytes is not None and _is_filling(memory.free[broker, d.path][0], Free(r.at_s, d.free_bytes)):
                filling.append(name)
    for level, what, names in (
        (Level.CRITICAL, "log directories offline", offline),
        (Level.DEGRADED, f"less than {LEAST_FREE * 100:.0f} % free", low),
        (Level.DEGRADED, f"full within {_age(FULL_WITHIN_S)} as they fill now", filling),
        (Level.UNKNOWN, "log directories not told", untold),
    ):
        if names:
            yield Finding(level, what, tuple(names))


def _is_filling(before: Free, now: Free) -> bool:
    """Tell whether it is full in a day at the rate since then."""
    if now.at_s - before.at_s < RATE_OVER_S:
        return False
    per_second = (before.bytes - now.bytes) / (now.at_s - before.at_s)
    return per_second > 0 and now.bytes / per_second <= FULL_WITHIN_S


def _deletions(r: Reading, memory: Memory) -> Iterator[Finding]:
    old = sorted(topic for topic, since_s in r.deletions.items() if r.at_s - since_s > DELETED_S)
    if old:
        yield Finding(Level.DEGRADED, f"marked for deletion for over {_age(DELETED_S)}", tuple(old))


CHECKS: Final[Mapping[str, Callable[[Reading, Memory], Iterator[Finding]]]] = {
    "controller": _controller,
    "partitions": _partitions,
    "leaders": _leaders,
    "brokers": _brokers,
    "moves": _moves,
    "throttles": _throttles,
    "unclean elections": _unclean,
    "disks": _disks,
    "deletions": _deletions,
}


# --- helpers ----------------------------------------------------------------------------------------------------


def _replicas(r: Reading, p: TopicPartition) -> set[int]:
    topic = r.view.topics.get(p.topic)
    return set(topic.assignment.get(p.partition, ()) if topic else ())


def _refusing(r: Reading) -> list[int]:
    """Return the registered brokers that refuse connections."""
    return [b for b, error in r.answers.silent.items() if isinstance(error.__cause__, ConnectionRefusedError)]


def _least_in_sync(r: Reading, topic: str, leader: int, replicas: int) -> int:
    """Return how many have to be in sync for acks=all: from 3.7 on no more than there are replicas (KAFKA-15583)."""
    minimum = _setting(r, topic, MIN_ISR, leader, 1)
    answer = r.answers.told.get(leader)
    if answer is None or release_of(answer.served).number < NO_MORE_THAN_REPLICAS:
        return minimum
    return min(minimum, replicas)


def _setting(r: Reading, topic: str, key: str, leader: int, default: int) -> int:
    """Return a topic's setting, else its leader's, else what another broker says."""
    answers = r.answers.told
    asked = [answers[leader], *answers.values()] if leader in answers else [*answers.values()]
    values = [r.view.configs.get(topic, {}).get(key), *((a.configs or {}).get(key) for a in asked)]
    return next((int(v) for v in values if v is not None and v.isdecimal()), default)


def _names(partitions: Sequence[TopicPartition]) -> tuple[str, ...]:
    return tuple(map(str, partitions))


def _found(level: Level, partitions: Sequence[TopicPartition], what: str) -> Iterator[Finding]:
    if partitions:
        yield Finding(level, f"{in_number(len(partitions), 'partition', 'partitions')} {what}", _names(partitions))


def _age(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
