"""More or fewer replicas of a topic's partitions, moving none that can stay (TOP-29X). Pure: same input, same plan."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkatool.core.model.assignment import check_replication_factor
from kafkatool.core.model.values import Assignment, BrokerInfo

Racks = Mapping[int, str | None]
"""Of each registered broker, in ascending id."""


def change_replication_factor(
    brokers: Sequence[BrokerInfo],
    assignment: Assignment,
    in_sync: Mapping[int, Sequence[int]],
    replication_factor: int,
) -> dict[int, tuple[int, ...]]:
    """Return the new replicas of those partitions that change.

    ``in_sync`` is the ISR of each partition. Growing appends to each list brokers from racks it is not on yet, such that
    the brokers' numbers of replicas of the topic end as even as they can. Shrinking drops replicas that are not in sync,
    then those of the fullest brokers, and keeps the preferred one while it is in sync. Raises RefusedError with the
    texts of TOP-7.
    """
    check_replication_factor(replication_factor, len(brokers))
    load = Counter(b for replicas in assignment.values() for b in replicas)
    racks = {b.id: b.rack for b in brokers}
    wanted = {partition: list(assignment[partition]) for partition in sorted(assignment)}
    for partition, replicas in wanted.items():
        while len(replicas) > replication_factor:
            leaving = _leaving(replicas, in_sync.get(partition, ()), load)
            replicas.remove(leaving)
            load[leaving] -= 1
        while len(replicas) < replication_factor:
            joining = _joining(replicas, racks, load)
            replicas.append(joining)
            load[joining] += 1
    # What the first partitions chose is looked at again: the last ones may have had no choice but a full broker.
    while chain := _chain(wanted, assignment, racks, load):
        for step in chain:
            replicas = wanted[step.partition]
            replicas[replicas.index(step.giver)] = step.taker
        load[chain[0].giver] -= 1
        load[chain[-1].taker] += 1
    return {p: tuple(replicas) for p, replicas in wanted.items() if tuple(replicas) != assignment[p]}


def _leaving(replicas: Sequence[int], in_sync: Sequence[int], load: Mapping[int, int]) -> int:
    places = range(len(replicas))
    place = max(places, key=lambda i: (replicas[i] not in in_sync, i > 0, load[replicas[i]], i))
    return replicas[place]


def _joining(replicas: Sequence[int], racks: Racks, load: Mapping[int, int]) -> int:
    used = {rack for b in replicas if (rack := racks.get(b)) is not None}
    free = [b for b in racks if b not in replicas]  # never empty: fewer replicas than registered brokers
    return min(free, key=lambda b: (racks[b] in used, load[b], b))


class _Step(NamedTuple):
    """A replica added to the partition, on ``giver``, that goes to ``taker`` instead."""

    partition: int
    giver: int
    taker: int


def _chain(
    wanted: Mapping[int, Sequence[int]], assignment: Assignment, racks: Racks, load: Mapping[int, int]
) -> list[_Step]:
    """Return steps from a broker to one that holds at least two replicas less; empty: no chain would even them out.

    Each broker between gives on as many as it takes.
    """
    added: defaultdict[int, list[int]] = defaultdict(list)
    for partition, replicas in wanted.items():
        for broker in replicas[len(assignment[partition]) :]:
            added[broker].append(partition)

    seen: set[int] = set()

    def steps(giver: int) -> Iterator[_Step]:
        for partition in added[giver]:
            for taker in racks:
                if taker not in seen and _may_step(wanted[partition], giver, taker, racks):
                    yield _Step(partition, giver, taker)

    least = min(load[b] for b in racks)
    for source in sorted(racks, key=lambda b: -load[b]):
        if load[source] < least + 2:
            break
        if chain := _way_down(source, steps, load, seen):
            return chain
    return []


def _way_down(
    source: int, steps: Callable[[int], Iterable[_Step]], load: Mapping[int, int], seen: set[int]
) -> list[_Step]:
    """Search for the shortest chain from ``source``; add to ``seen``, to which ``steps`` do not go.

    No partition steps twice: each step keeps its number of racks by itself, two might not. Brokers that a search without
    success came by are closed to the next one: whatever is reached from there held too many for a source with more.
    """
    seen.add(source)
    ways: list[list[_Step]] = [[]]
    for way in ways:  # which grow
        for step in steps(way[-1].taker if way else source):
            if any(step.partition == earlier.partition for earlier in way):
                continue
            if load[step.taker] <= load[source] - 2:
                return [*way, step]
            seen.add(step.taker)
            ways.append([*way, step])
    return []


def _may_step(replicas: Sequence[int], giver: int, taker: int, racks: Racks) -> bool:
    if taker in replicas:
        return False
    after = [taker if b == giver else b for b in replicas]
    return _spread(after, racks) >= _spread(replicas, racks)


def _spread(replicas: Sequence[int], racks: Racks) -> int:
    """Count the racks of the replicas; a broker without one is a rack of its own."""
    found = [racks.get(b) for b in replicas]
    return len({rack for rack in found if rack is not None}) + found.count(None)
