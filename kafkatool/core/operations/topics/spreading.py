"""The replicas of a new topic, spread over brokers however they were found (ASG-2, ASG-3). No I/O."""

import random
from collections.abc import Sequence

from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.values import BrokerInfo


def spread_replicas(
    brokers: Sequence[BrokerInfo],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int | None = None,
    replica_shift: int | None = None,
    rack_aware: bool = True,
    rng: random.Random | None = None,
) -> dict[int, tuple[int, ...]]:
    """Assign a new topic's replicas. Raises RefusedError (TOP-7, ASG-14).

    A fixed ``start_index`` is the shift too; else both are drawn (ASG-3).
    """
    rng = rng or random.Random()
    count = max(len(brokers), 1)
    if replica_shift is None:
        replica_shift = rng.randrange(count) if start_index is None else start_index
    if start_index is None:
        start_index = rng.randrange(count)
    return assign_replicas(
        brokers,
        partitions,
        replication_factor,
        start_index=start_index,
        replica_shift=replica_shift,
        rack_aware=rack_aware,
    )
