"""A plan compared with what brokers tell: what became of moves that the controller carries out (ADM-36, ADM-43)."""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.topic_reading import Topic, read_topics, replicas_in

SETTLE_S: Final = 10.0
SETTLE_PAUSE_S: Final = 0.2
LATE_S: Final = 1.0

Targets = Mapping[TopicPartition, tuple[int, ...]]


class Look(NamedTuple):
    """What moves in the whole cluster, and then all its topics: read once for who needs both."""

    moving: Mapping[TopicPartition, Moving]
    topics: Mapping[str, Topic]


def look(client: ClusterClient, plan: Targets) -> Look:
    """Read both, and the plan's topics by their names where brokers leave them out: then they say why."""
    moving = read_moves(client, needed=True)
    topics = read_topics(client)
    if lacking := sorted({p.topic for p in plan}.difference(topics)):
        topics |= read_topics(client, lacking)
    return Look(moving, topics)


def compare(
    client: ClusterClient,
    plan: Targets,
    moving: Mapping[TopicPartition, Moving] | None = None,
    topics: Mapping[str, Topic] | None = None,
) -> list[Move]:
    """Compare a plan with the cluster; ``moving`` and ``topics`` are what was read just now, None: they are read."""
    moving = read_moves(client, plan, needed=True) if moving is None else moving
    topics = read_topics(client, sorted({p.topic for p in plan})) if topics is None else topics
    current = replicas_in(topics, plan)
    # Looked up once: up to Python 3.11 the name of an enum's member takes as long as all the rest of the loop.
    in_progress, completed, failed = Status.IN_PROGRESS, Status.COMPLETED, Status.FAILED
    found = []
    for p, to in sorted(plan.items()):
        now = current.get(p, ())
        found.append(Move(p, now, to, in_progress if p in moving else completed if now == to else failed))
    return found


def compare_settled(client: ClusterClient, plan: Targets) -> list[Move]:
    """Compare what has ended: brokers learn of that a while after the controller has forgotten the move."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        client.begin_anew()
        found = compare(client, plan)
        if all(m.status is Status.COMPLETED for m in found) or time.monotonic() >= deadline:
            return found
        time.sleep(SETTLE_PAUSE_S)


def compare_again(client: ClusterClient, plan: Targets, found: list[Move]) -> list[Move]:
    """Look again where nothing moves a partition and its replicas are not the plan's, until two looks find the same.

    It may have ended so shortly before that the broker asked has not learnt of it, or of all of it.
    """
    deadline, failed = time.monotonic() + SETTLE_S, Status.FAILED
    while any(m.status is failed and m.current for m in found) and time.monotonic() < deadline:
        time.sleep(LATE_S)
        client.begin_anew()
        before, found = found, compare(client, plan)
        if found == before:
            break
    return found
