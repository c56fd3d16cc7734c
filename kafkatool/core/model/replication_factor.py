"""More or fewer replicas for a topic's partitions, moving no replica that can stay (TOP-29X). Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from kafkatool.core.model.assignment import check_replication_factor
from kafkatool.core.model.values import Assignment, BrokerInfo


def change_replication_factor(
    brokers: Sequence[BrokerInfo],
    assignment: Assignment,
    in_sync: Mapping[int, Sequence[int]],
    replication_factor: int,
) -> dict[int, tuple[int, ...]]:
    """Return the new replicas of those partitions that change; ``in_sync`` is the ISR of each partition.

    Growing appends to each list the brokers with the fewest replicas of the topic, first from racks it is not on yet.
    Shrinking drops replicas that are not in sync, then those of the fullest brokers, and keeps the preferred one while
    it is in sync. Raises RefusedError with the texts of TOP-7.
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
    # Chosen once more, now that the choice for all the others is known: the last partitions had little left to even out.
    for partition, replicas in wanted.items():
        for place in range(len(assignment[partition]), replication_factor):
            load[replicas.pop(place)] -= 1
            joining = _joining(replicas, racks, load)
            replicas.insert(place, joining)
            load[joining] += 1
    return {p: tuple(replicas) for p, replicas in wanted.items() if tuple(replicas) != assignment[p]}


def _leaving(replicas: Sequence[int], in_sync: Sequence[int], load: Mapping[int, int]) -> int:
    places = range(len(replicas))
    place = max(places, key=lambda i: (replicas[i] not in in_sync, i > 0, load[replicas[i]], i))
    return replicas[place]


def _joining(replicas: Sequence[int], racks: Mapping[int, str | None], load: Mapping[int, int]) -> int:
    used = {rack for b in replicas if (rack := racks.get(b)) is not None}
    free = [b for b in racks if b not in replicas]  # never empty: fewer replicas than registered brokers
    return min(free, key=lambda b: (racks[b] in used, load[b], b))
