"""What the controller's speed decides: topics coming up, leaders after a broker's death."""

import time
from collections.abc import Callable

from benchmarks.clusters import Cluster
from kafkatool.core.assignment import assign_replicas
from kafkatool.core.cluster_view import read_cluster, read_states
from kafkatool.core.model import TopicPartition
from kafkatool.core.operations.topics import create_topic
from kafkatool.core.zookeeper import ZooKeeper

_DEADLINE_S = 180


def make_topic(cluster: Cluster, topic: str, partitions: int, replication_factor: int) -> float:
    """Seconds from the written znode until every partition has a leader and all its replicas in sync."""
    with ZooKeeper(cluster.zookeeper) as zk:
        brokers = list(read_cluster(zk, [], states=False).brokers.values())
        assignment = assign_replicas(brokers, partitions, replication_factor, start_index=0, replica_shift=0)
        started = time.perf_counter()
        create_topic(zk, topic, assignment, {})
        wanted = [TopicPartition(topic, p) for p in range(partitions)]

        def in_sync() -> bool:
            states = read_states(zk, wanted)
            return len(states) == partitions and all(
                s.leader_and_isr.leader is not None and len(s.leader_and_isr.isr) == replication_factor
                for s in states.values()
            )

        _wait(in_sync, f"{cluster.name}: {topic} in sync")
        return time.perf_counter() - started


def fail_over(cluster: Cluster, topic: str, partitions: int, victim: int) -> float:
    """Seconds from the victim's node vanishing until no partition is led by it; it is started again afterwards."""
    wanted = [TopicPartition(topic, p) for p in range(partitions)]
    with ZooKeeper(cluster.zookeeper) as zk:
        cluster.kill(victim)
        _wait(lambda: victim not in read_cluster(zk, [], states=False).brokers, f"{cluster.name}: session expiry")
        started = time.perf_counter()
        _wait(
            lambda: all(s.leader_and_isr.leader not in (None, victim) for s in read_states(zk, wanted).values()),
            f"{cluster.name}: new leaders",
        )
        elapsed = time.perf_counter() - started
        cluster.start(victim)
        _wait(
            lambda: all(victim in s.leader_and_isr.isr for s in read_states(zk, wanted).values()),
            f"{cluster.name}: broker {victim} in sync again",
        )
        return elapsed


def _wait(what: Callable[[], bool], title: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not what():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{title}: not within {_DEADLINE_S} s")
        time.sleep(0.01)
