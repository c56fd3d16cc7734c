"""Topics for the measurements: made and known everywhere, deleted and gone, with the seconds it took; in sync."""

import time
from collections.abc import Sequence
from typing import Final

from benchmarks.clusters import DEADLINE_S, Cluster, ask_metadata, wait_for
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic, plan_spread
from kafkatool.core.operations.topics.deletion import mark_for_deletion, wait_until_gone
from kafkatool.core.zookeeper.cluster_view import read_states
from kafkatool.core.zookeeper.session import ZooKeeper

_POLL_S: Final = 0.1
"""Between questions about a whole topic: answering them is work for the machine that is measured."""
_AT_ONCE: Final = 500


def make_topic(cluster: Cluster, topic: str, partitions: int, replication_factor: int) -> float:
    """Seconds from the written node until every broker tells clients of a leader and all replicas in sync."""
    return time_topic(cluster, topic, partitions, replication_factor)[1]


def time_topic(cluster: Cluster, topic: str, partitions: int, replication_factor: int) -> tuple[float, float]:
    """Seconds until ZooKeeper names leaders and all replicas in sync, and until every broker tells clients so."""
    with ZooKeeper(cluster.connect) as zk:
        assignment = plan_spread(zk, partitions, replication_factor, start_index=0)
        made = [TopicPartition(topic, partition) for partition in assignment]
        started = time.perf_counter()
        create_topic(zk, topic, assignment)
        wait_for(lambda: in_sync(zk, made, replication_factor), f"{cluster.name}: {topic} led", poll_s=_POLL_S)
        led = time.perf_counter()
        for broker_id in cluster.ports:
            wait_for(
                lambda b=broker_id: _serves(cluster, b, topic, partitions, replication_factor),  # type: ignore[misc]
                f"{cluster.name}: {topic} known to broker {broker_id}",
                poll_s=_POLL_S,
            )
        return led - started, time.perf_counter() - started


def in_sync(zk: ZooKeeper, partitions: Sequence[TopicPartition], replicas: int) -> bool:
    """Tell whether each is led with so many in its ISR. Asks a few at a time: cheap while many are not."""
    for start in range(0, len(partitions), _AT_ONCE):
        some = partitions[start : start + _AT_ONCE]
        states = [state.leader_and_isr for state in read_states(zk, some).values()]
        if len(states) < len(some) or any(s.leader is None or len(s.isr) != replicas for s in states):
            return False
    return True


def delete_topic(cluster: Cluster, topic: str) -> float:
    """Seconds from the mark until the topic's node is gone."""
    with ZooKeeper(cluster.connect) as zk:
        started = time.perf_counter()
        mark_for_deletion(zk, topic)
        if left := wait_until_gone(zk, [topic], DEADLINE_S, lambda _gone, _all: None):
            raise RuntimeError(f"{cluster.name}: {left[0]}")
        return time.perf_counter() - started


def _serves(cluster: Cluster, broker_id: int, topic: str, partitions: int, replication_factor: int) -> bool:
    found = ask_metadata(cluster, broker_id, [topic]).topics[0].partitions
    return len(found) == partitions and all(
        p.leader_id >= 0 and p.error_code == 0 and len(p.isr_nodes) == replication_factor for p in found
    )
