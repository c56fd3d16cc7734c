"""Topics for the measurements: made and known everywhere, deleted and gone. Both return the seconds it took."""

import time
from typing import Final

from benchmarks.clusters import DEADLINE_S, Cluster, ask_metadata, wait_for
from kafkatool.core.operations.topic_deletion import wait_until_gone
from kafkatool.core.operations.topics import create_topic, mark_for_deletion, plan_spread
from kafkatool.core.zookeeper import ZooKeeper

_POLL_S: Final = 0.1
"""Between questions about a whole topic: answering them is work for the machine that is measured."""


def make_topic(cluster: Cluster, topic: str, partitions: int, replication_factor: int) -> float:
    """Seconds from the written node until every broker tells clients of a leader and all replicas in sync."""
    with ZooKeeper(cluster.connect) as zk:
        assignment = plan_spread(zk, partitions, replication_factor, start_index=0)
        started = time.perf_counter()
        create_topic(zk, topic, assignment)
        for broker_id in cluster.ports:
            wait_for(
                lambda b=broker_id: _serves(cluster, b, topic, partitions, replication_factor),  # type: ignore[misc]
                f"{cluster.name}: {topic} known to broker {broker_id}",
                poll_s=_POLL_S,
            )
        return time.perf_counter() - started


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
