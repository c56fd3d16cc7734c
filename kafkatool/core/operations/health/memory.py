"""What looks at a cluster leave for later ones: since when things are so, and what was before (ADM-107). Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.health.reading import Reading

FLAPPING: Final = 3  # controllers within FLAPPING_S
FLAPPING_S: Final = 600.0
RATE_ANEW_S: Final = 1800.0  # so long the older of two figures of a disk's free space is kept, at least
UNCLEAN_TOLD_S: Final = 24 * 3600.0

Terms = tuple[tuple[float, tuple[int | None, int]], ...]
"""Who has led the cluster, in which epoch, each with when a look first found it."""


class Progress(NamedTuple):
    """How far the move of a partition was when it last went on: which of its new replicas are in sync, which are not yet.

    ``bytes`` are those of the latter, as last told; ``untold``: those of which the newest look told none.
    """

    at_s: float
    joined: frozenset[int]
    copying: frozenset[int]
    bytes: Mapping[int, int]
    untold: frozenset[int] = frozenset()


class Led(NamedTuple):
    """Who led a partition and was in sync. ``topic_id`` and ``version``, of its node in ZooKeeper, are None if not told."""

    topic_id: str | None
    leader: int | None
    epoch: int | None
    version: int | None
    isr: tuple[int, ...]

    def is_of_another_topic(self, before: "Led") -> bool:
        return None not in (self.topic_id, before.topic_id) and self.topic_id != before.topic_id


class Suspicion(NamedTuple):
    """When a partition was first seen with a leader that was not in sync before, and whether it is certain."""

    at_s: float
    is_certain: bool


class Free(NamedTuple):
    """How much was free in a log directory, and when."""

    at_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What the looks so far have left, the newest included. ``since``-times tell of what has been so at each look.

    ``terms``: the first look, and each at which there was another controller than before. ``free``: of each log directory
    the figure that its rate is reckoned from, and the one that takes its place. ``fresh``: the partitions that the look
    before this one did not find; ``unled``: those without leader.
    """

    looks: int = 0
    no_controller_since_s: float | None = None
    epochs: tuple[tuple[float, int], ...] = ()
    terms: Terms = ()
    moves: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    idle_throttles: Mapping[tuple[str, str], float] = field(default_factory=dict)
    mixed_since_s: float | None = None
    free: Mapping[tuple[int, str], tuple[Free, Free]] = field(default_factory=dict)
    led: Mapping[TopicPartition, Led] = field(default_factory=dict)
    unclean: Mapping[TopicPartition, Suspicion] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = frozenset()
    fresh: frozenset[TopicPartition] = frozenset()
    unled: frozenset[TopicPartition] = frozenset()

    @property
    def newest_s(self) -> float:
        """Return the latest time in it: nothing can be told by it of looks before that."""
        since = (self.no_controller_since_s, self.mixed_since_s, *self.idle_throttles.values())
        times = [at_s for at_s in since if at_s is not None]
        times += [at_s for at_s, _ in (*self.epochs, *self.terms)]
        times += [progress.at_s for progress in self.moves.values()]
        times += [suspicion.at_s for suspicion in self.unclean.values()]
        times += [figure.at_s for figures in self.free.values() for figure in figures]
        return max(times, default=0.0)


def remember(memory: Memory, reading: Reading) -> Memory:
    """Return what is kept in mind after this look."""
    now, view = reading.at_s, reading.view
    epochs = [*memory.epochs, *([(now, reading.controller_epoch)] if reading.controller_epoch is not None else [])]
    idle = {} if reading.is_anything_moving else dict.fromkeys(reading.throttles, now)
    free = {
        (broker, d.path): Free(now, d.free_bytes)
        for broker, answer in reading.answers.told.items()
        for d in answer.log_dirs or ()
        if d.free_bytes is not None
    }
    partitions = frozenset(view.staying())
    led = dict(_led(reading))
    return Memory(
        looks=memory.looks + 1,
        no_controller_since_s=_since(memory.no_controller_since_s, now, view.controller_id is None),
        epochs=tuple((at, epoch) for at, epoch in epochs if now - at <= FLAPPING_S),
        terms=_terms(memory.terms, reading),
        moves={p: _progress(memory.moves.get(p), reading, p) for p in reading.moving},
        idle_throttles={entity: memory.idle_throttles.get(entity, at) for entity, at in idle.items()},
        mixed_since_s=_since(memory.mixed_since_s, now, len(reading.releases) > 1),
        free={key: _free(memory.free.get(key), found) for key, found in free.items()},
        led=led,
        unclean=dict(_suspicions(memory, led, reading)),
        partitions=partitions,
        fresh=partitions - memory.partitions if memory.looks else frozenset(),
        unled=frozenset(p for p in partitions if reading.leader(p) is None),
    )


def _since(before: float | None, now: float, holds: bool) -> float | None:
    return (now if before is None else before) if holds else None


def _terms(before: Terms, r: Reading) -> Terms:
    if r.term is None or r.term[0] is None or (before and before[-1][1] == r.term):
        return before
    return (*before[-FLAPPING:], (r.at_s, r.term))


def _free(before: tuple[Free, Free] | None, now: Free) -> tuple[Free, Free]:
    """Keep a figure that is old enough to tell a rate, and no older than what fills the disk now."""
    if before is None:
        return now, now
    return (before[1], now) if now.at_s - before[1].at_s >= RATE_ANEW_S else before


def _progress(before: Progress | None, reading: Reading, partition: TopicPartition) -> Progress:
    """Look at the new replicas alone: what is produced to the others grows while nothing is copied."""
    state = reading.view.states.get(partition)
    adding = reading.view.adding(partition)
    joined = adding.intersection(state.leader_and_isr.isr if state else ())
    copying = adding - joined
    told = {b: held for b in copying if (held := _bytes_held(reading, b, partition)) is not None}
    untold = copying - told.keys()
    if before is None or (before.joined, before.copying) != (joined, copying):
        return Progress(reading.at_s, joined, copying, told, untold)
    if any(before.bytes.get(b) != held for b, held in told.items()):
        return Progress(reading.at_s, joined, copying, {**before.bytes, **told}, untold)
    return before._replace(untold=untold)


def _bytes_held(reading: Reading, broker: int, partition: TopicPartition) -> int | None:
    answer = reading.answers.told.get(broker)
    if answer is None or answer.log_dirs is None:
        return None
    return sum(d.sizes.get(partition, 0) for d in answer.log_dirs)


# --- unclean elections ------------------------------------------------------------------------------------------


def _led(r: Reading) -> Iterator[tuple[TopicPartition, Led]]:
    # In a migration KRaft's controller writes nodes behind, several changes at once: their versions count nothing.
    counts = r.view.controller_id is None or r.view.controller_id in r.view.brokers
    for p, state in r.view.states.items():
        leadership = state.leader_and_isr
        epoch = leadership.leader_epoch if leadership.leader_epoch >= 0 else None
        version = state.version if counts and state.version >= 0 else None
        yield p, Led(r.view.topic_ids.get(p.topic), leadership.leader, epoch, version, leadership.isr)


def _suspicions(
    memory: Memory, led: Mapping[TopicPartition, Led], reading: Reading
) -> Iterator[tuple[TopicPartition, Suspicion]]:
    for p, now in led.items():
        before = memory.led.get(p)
        if before is None or now.is_of_another_topic(before):
            continue
        former = memory.unclean.get(p)
        topic = reading.view.topics.get(p.topic)
        is_unclean = _is_unclean(before, now, topic.assignment.get(p.partition, ()) if topic else ())
        if is_unclean:
            yield p, Suspicion(reading.at_s, is_certain=True)
        elif former is not None and reading.at_s - former.at_s <= UNCLEAN_TOLD_S:
            yield p, former
        elif is_unclean is None:
            yield p, Suspicion(reading.at_s, is_certain=False)


def _is_unclean(before: Led, now: Led, assigned: Collection[int]) -> bool | None:
    """Tell whether an unclean election lies between two looks at a partition of one topic; None: that cannot be told.

    Each election begins a leader epoch, and so does all that a controller of ZooKeeper's writes; a leader takes others into
    the ISR without. So nobody came into sync where there were as many epochs as writes, nor where nobody led.
    """
    epochs, writes = _step(before.epoch, now.epoch), _step(before.version, now.version)
    if epochs is not None and epochs <= 0:
        return False  # the same leader; or a topic made anew, of which no id is told
    if before.isr and None not in (before.topic_id, now.topic_id):
        if before.leader is None and epochs == 1 and now.leader not in (None, *before.isr):
            return True
        if writes is not None and writes == epochs and not set(before.isr).issuperset(now.isr):
            return True
    if not now.isr or not set(before.isr).isdisjoint(now.isr):
        return False
    has_moved = bool(before.isr) and set(before.isr).isdisjoint(assigned)  # which takes the old replicas out of sync
    return False if has_moved else None


def _step(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before
