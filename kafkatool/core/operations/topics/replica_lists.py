"""Replica lists given by hand: read, and checked for a new topic and for added partitions. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import join_ids


def parse_replica_lists(text: str) -> list[tuple[int, ...]]:
    """Parse ``1:2,2:3`` -> [(1, 2), (2, 3)]: one group per partition. Raises RefusedError on anything but broker ids."""
    groups = []
    for number, group in enumerate(text.split(",")):
        ids = [part.strip() for part in group.split(":")]
        if not all(part.isascii() and part.isdecimal() for part in ids):
            raise RefusedError(
                f"replica assignment of partition {number} is {group!r}: expected broker ids joined by ':' such as 1:2"
            )
        groups.append(tuple(map(int, ids)))
    return groups


def check_replica_lists(
    groups: Sequence[tuple[int, ...]], shown: Callable[[Iterable[int]], str] = lambda ids: join_ids(ids, ":")
) -> None:
    """Check a new topic's lists (TOP-2); live brokers are not required. Raises RefusedError with Kafka's text."""
    for number, group in enumerate(groups):
        if twice := sorted({b for b in group if group.count(b) > 1}):
            raise RefusedError(f"Partition replica lists may not contain duplicate entries: {join_ids(twice)}")
        if len(group) != len(groups[0]):
            raise RefusedError(f"Partition {number} has different replication factor: {shown(group)}")


def check_added_lists(added: Mapping[int, tuple[int, ...]], replication_factor: int, live: Iterable[int]) -> None:
    """Check that added partitions have distinct, registered brokers, as many as partition 0 has (TOP-16).

    Raises RefusedError with the text of Kafka 1.1.
    """
    available = sorted(live)
    for number, replicas in added.items():
        shown = join_ids(replicas, ", ")
        if not replicas:
            raise RefusedError(f"Cannot have replication factor of 0 for partition id {number}.")
        if len(set(replicas)) != len(replicas):
            raise RefusedError(
                f"Duplicate brokers not allowed in replica assignment: {shown} for partition id {number}."
            )
        if not set(replicas) <= set(available):
            raise RefusedError(
                f"Some brokers specified for partition id {number} are not available. Specified brokers: {shown}, "
                f"available brokers: {join_ids(available, ', ')}."
            )
    if uneven := {p: len(r) for p, r in sorted(added.items()) if len(r) != replication_factor}:
        raise RefusedError(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{join_ids(uneven, ', ')}] have replication factors "
            f"[{join_ids(uneven.values(), ', ')}], respectively."
        )
