"""The snapshot of a cluster that operations work on, read from brokers (ADM-16, ADM-18)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.uuids import uuid_text
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.topic_reading import read_topics
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.zookeeper.view import ClusterView
from kafkatool.core.zookeeper.znodes import TopicZnode

NOT_TOLD = -1  # of epochs and versions, which brokers do not tell


def read_cluster(
    client: ClusterClient, topics: Iterable[str] | None = None, *, moves: bool = True, states: bool = True
) -> ClusterView:
    """Read brokers, the named topics (all when None) and, if wanted, their states and what moves in the whole cluster.

    ``reassignment`` holds the targets of what moves, whoever began it; None: nothing does.
    """
    found = read_topics(client, None if topics is None else sorted(set(topics)))
    led = {
        TopicPartition(topic.name, p.partition): PartitionState(
            LeaderAndIsr(p.leader_id if p.leader_id >= 0 else None, p.leader_epoch, tuple(p.isr_nodes), NOT_TOLD),
            NOT_TOLD,
        )
        for topic in (found.values() if states else ())
        for p in topic.partitions
    }
    moving = {p: m.target for p, m in read_moves(client).items()} if moves else {}
    return ClusterView(
        brokers=dict(client.brokers),
        controller_id=client.controller_id,
        cluster_id=client.cluster_id,
        topics={name: TopicZnode(topic.assignment) for name, topic in found.items()},
        states=led,
        configs={},
        marked_for_deletion=frozenset(),
        reassignment=moving or None,
        election=None,
        topic_ids={name: uuid_text(topic.topic_id) for name, topic in found.items() if topic.topic_id != NO_UUID},
    )


def with_moves(view: ClusterView, moving: Mapping[TopicPartition, Moving]) -> ClusterView:
    """Return the view with those moves in its topics, as the nodes of topics tell of them where there is ZooKeeper."""
    by_topic: dict[str, dict[int, StoredMove]] = {}
    for (topic, number), m in moving.items():
        by_topic.setdefault(topic, {})[number] = StoredMove(m.replicas, m.adding, m.removing)
    noted = {t: view.topics[t].with_moves(moves) for t, moves in by_topic.items() if t in view.topics}
    return replace(view, topics={**view.topics, **noted})
