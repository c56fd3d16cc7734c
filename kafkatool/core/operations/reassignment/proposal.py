"""A plan for whole topics, laid out over brokers: what ``kt reassign --generate`` proposes (RSN-3, RSN-26X to RSN-28X)."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import BrokerInfo, TopicPartition, join_ids
from kafkatool.core.planner.kafkas import plan_like_new
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.planner.strategy import Strategy
from kafkatool.core.zookeeper.view import ClusterView


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for whole topics. ``uneven_topics`` have partitions of different replica counts (RSN-3).

    ``targets`` are the brokers planned for. ``current`` has of what is ``moving`` the replicas from before the move, and
    of ``untold`` ones, whose origin nothing tells, those to come: all together are more than anybody wants, and would be as
    many more after that plan, or as a way back.
    """

    current: Moves
    proposed: Moves
    uneven_topics: tuple[str, ...]
    targets: Mapping[int, BrokerInfo]
    moving: tuple[TopicPartition, ...] = ()
    untold: tuple[TopicPartition, ...] = ()


def propose(
    view: ClusterView,
    topics: Sequence[str],
    broker_ids: Sequence[int],
    *,
    rack_aware: bool,
    rng: random.Random,
    strategy: Strategy = Strategy.KAFKA,
    exclude: Collection[int] = (),
    replication_factor: int | None = None,
) -> Proposal:
    """Plan the topics over the listed brokers less ``exclude`` (RSN-3, RSN-26X, RSN-28X).

    ``rng`` gives ASG-3's two numbers to Kafka's strategy. Raises RefusedError: unknown topics or brokers (RSN-17X), too
    few brokers, racks.
    """
    if unknown := [t for t in topics if t not in view.topics]:
        raise RefusedError(f"List of topics to reassign contains topics that do not exist: {','.join(unknown)}")
    wanted = sorted(set(broker_ids).difference(exclude))
    if not wanted:
        raise RefusedError("every broker of the broker list is excluded: none is left to plan for")
    if missing := [b for b in wanted if b not in view.brokers]:
        live = join_ids(sorted(view.brokers)) or "none"
        raise RefusedError(
            f"Broker list contains brokers that are not registered: {join_ids(missing)} (registered: {live})"
        )
    targets = {b: view.brokers[b] for b in wanted}
    current = {
        TopicPartition(t, p): tuple(r) for t in sorted(topics) for p, r in sorted(view.topics[t].assignment.items())
    }
    origins = {p: view.origin(p) for p in sorted(view.moving.intersection(current))}
    current.update((p, view.target(p) if origin is None else origin) for p, origin in origins.items())
    assignments: dict[str, dict[int, tuple[int, ...]]] = {}
    for partition, replicas in current.items():
        assignments.setdefault(partition.topic, {})[partition.partition] = replicas
    uneven = tuple(t for t, a in assignments.items() if len({len(replicas) for replicas in a.values()}) > 1)
    proposed: Moves
    if strategy is Strategy.MINIMAL:
        from kafkatool.core.planner.minimal import plan_minimal  # who plans as Kafka does starts without it

        proposed = plan_minimal(
            list(targets.values()), current, replication_factor=replication_factor, rack_aware=rack_aware
        )
    else:
        spread = {
            t: plan_like_new(
                list(targets.values()), a, replication_factor=replication_factor, rack_aware=rack_aware, rng=rng
            )
            for t, a in assignments.items()
        }
        proposed = {TopicPartition(t, p): tuple(r) for t, a in spread.items() for p, r in sorted(a.items())}
    return Proposal(
        current,
        proposed,
        uneven,
        targets,
        tuple(p for p, origin in origins.items() if origin is not None),
        tuple(p for p, origin in origins.items() if origin is None),
    )
