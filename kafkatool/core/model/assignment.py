"""Replica assignment of new topics and added partitions (ASG-1 to ASG-16X).

Pure: same input, same plan.

First replicas go round the brokers from ``start_index``; further replicas follow at a distance that grows by one with
every round, so that the partitions of a failed broker are taken over by many. With racks, the brokers are first put in
an order that changes rack at every step, and a rack gets a second replica only when all racks have one.
The two numbers Kafka draws at random (AdminUtils.scala, 0.10.2.1) come in as arguments.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import Assignment, BrokerInfo

SOME_RACKS: Final = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
    "without rack information."
)

MAX_PARTITIONS: Final = 200_000
"""Of one topic. Far beyond what fits into its znode with ZooKeeper's default limits; without a bound, one request for
2147483647 of them would take all memory for planning."""


def assign_replicas(
    brokers: Sequence[BrokerInfo],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    replica_shift: int,
    first_partition: int = 0,
    rack_aware: bool = True,
) -> dict[int, tuple[int, ...]]:
    """Assign replicas to ``partitions`` partitions numbered from ``first_partition``; the first broker of each is preferred.

    ``brokers`` in ascending id (ASG-2); another order is another plan. ``start_index`` is a place in that list, or in
    the rack-alternated one. Raises RefusedError with Kafka's text: numbers out of range (TOP-7), racks on some brokers
    only (ASG-14).
    """
    if partitions <= 0:
        raise RefusedError("number of partitions must be larger than 0")
    if partitions > MAX_PARTITIONS:
        raise RefusedError(f"number of partitions must be at most {MAX_PARTITIONS}")
    check_replication_factor(replication_factor, len(brokers))
    numbers = range(first_partition, first_partition + partitions)
    ids = [b.id for b in brokers]
    racks = {b.id: b.rack for b in brokers if b.rack is not None} if rack_aware else {}
    if not racks:
        return _plain(ids, numbers, replication_factor, start_index, replica_shift)
    if len(racks) < len(ids):
        raise RefusedError(SOME_RACKS)
    return _rack_aware(alternate_racks(racks), racks, numbers, replication_factor, start_index, replica_shift)


def check_replication_factor(replication_factor: int, brokers: int) -> None:
    """Raise RefusedError with Kafka's text unless that many brokers can hold it (TOP-7)."""
    if replication_factor <= 0:
        raise RefusedError("replication factor must be larger than 0")
    if replication_factor > brokers:
        raise RefusedError(
            f"replication factor: {replication_factor} larger than available brokers: {brokers}",
            now="only registered brokers count: start the missing ones, or give a smaller replication factor",
        )


def add_partitions(
    brokers: Sequence[BrokerInfo], existing: Assignment, partitions: int, *, rack_aware: bool = True
) -> dict[int, tuple[int, ...]]:
    """Assign replicas to the partitions that bring ``existing`` to ``partitions`` in all, carrying on its pattern (ASG-6).

    ``brokers`` in ascending id. Returns only the new ones. Raises RefusedError as ``assign_replicas``, or if
    ``existing`` lacks partition 0.
    """
    model = existing.get(0)
    if not model:
        raise RefusedError("the topic has no partition 0 with replicas to take as a model for the new ones")
    index = next((i for i, b in enumerate(brokers) if b.id >= model[0]), 0)
    return assign_replicas(
        brokers,
        partitions - len(existing),
        len(model),
        start_index=index,
        replica_shift=index,
        first_partition=len(existing),
        rack_aware=rack_aware,
    )


def alternate_racks(racks: dict[int, str]) -> list[int]:
    """Put broker ids in an order that changes rack at every step (ASG-11).

    Racks by name, ids ascending; a rack that ran out is passed over.
    """
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for broker_id in sorted(racks):
        by_rack[racks[broker_id]].append(broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _shift_of(partition: int, first: int, shift: int, brokers: int) -> int:
    """Add one to the shift for each partition > 0 so far whose number is a multiple of the broker count (ASG-4)."""
    return shift + partition // brokers - (max(first - 1, 0) // brokers)


def _follower(first: int, distance: int, brokers: int) -> int:
    """Return the place of a further replica, never ``first`` itself (ASG-5)."""
    return (first + 1 + distance % (brokers - 1)) % brokers


def _plain(
    ids: Sequence[int], numbers: range, replication_factor: int, start: int, shift: int
) -> dict[int, tuple[int, ...]]:
    count, others = len(ids), max(len(ids) - 1, 1)
    rows: dict[tuple[int, int], tuple[int, ...]] = {}  # thousands of partitions share few
    plan = {}
    for partition in numbers:
        first = (partition + start) % count
        distance = _shift_of(partition, numbers.start, shift, count) % others
        row = rows.get((first, distance))
        if row is None:
            followers = (_follower(first, distance + j, count) for j in range(replication_factor - 1))
            row = rows[first, distance] = (ids[first], *(ids[place] for place in followers))
        plan[partition] = row
    return plan


def _rack_aware(
    ids: Sequence[int], racks: dict[int, str], numbers: range, replication_factor: int, start: int, shift: int
) -> dict[int, tuple[int, ...]]:
    """Assign over racks (ASG-12). ``ids`` alternate racks; a candidate waits while another rack or broker has none."""
    count, rack_count = len(ids), len(set(racks.values()))
    plan = {}
    for partition in numbers:
        first = (partition + start) % count
        distance = _shift_of(partition, numbers.start, shift, count) * rack_count
        chosen = [ids[first]]
        used_racks = {racks[ids[first]]}
        while len(chosen) < replication_factor:
            candidate = ids[_follower(first, distance, count)]
            distance += 1
            if candidate in chosen or (racks[candidate] in used_racks and len(used_racks) < rack_count):
                continue
            chosen.append(candidate)
            used_racks.add(racks[candidate])
        plan[partition] = tuple(chosen)
    return plan
