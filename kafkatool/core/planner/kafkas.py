"""The plan of Kafka's own tool: a topic is spread anew, as if it were just made (RSN-3). Pure."""

import random
from collections.abc import Sequence

from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.values import Assignment, BrokerInfo


def plan_like_new(
    brokers: Sequence[BrokerInfo],
    assignment: Assignment,
    *,
    replication_factor: int | None,
    rack_aware: bool,
    rng: random.Random,
) -> dict[int, tuple[int, ...]]:
    """Spread the partitions of one topic over ``brokers``, in ascending id; ``rng`` gives ASG-3's two numbers.

    Without ``replication_factor`` all get as many replicas as the first partition has. With one, a partition that gets
    more keeps those it has on ``brokers``, and is filled up from its new row (RSN-28X). Raises RefusedError.
    """
    spread = assign_replicas(
        brokers,
        len(assignment),
        replication_factor if replication_factor is not None else len(assignment[min(assignment)]),
        start_index=rng.randrange(len(brokers)),
        replica_shift=rng.randrange(len(brokers)),
        rack_aware=rack_aware,
    )
    if replication_factor is None:
        return spread
    racks = {b.id: b.rack for b in brokers}
    return {
        p: _grown([b for b in before if b in racks], row, racks) if len(before) < len(row) else row
        for (p, before), row in zip(sorted(assignment.items()), spread.values(), strict=True)
    }


def _grown(kept: list[int], row: Sequence[int], racks: dict[int, str | None]) -> tuple[int, ...]:
    replicas = list(kept)
    while len(replicas) < len(row):
        used = {racks[b] for b in replicas}
        replicas.append(min((b for b in row if b not in replicas), key=lambda b: racks[b] in used))
    return tuple(replicas)
