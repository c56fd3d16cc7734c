"""What thousands of partitions cost when nothing happens, and how long a killed broker needs to be back with them."""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import psutil

from benchmarks.clusters import Cluster, wait_for
from benchmarks.figures import Figure, alternate
from benchmarks.starting import resident_mb
from benchmarks.topics import delete_topic, in_sync, make_topic
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode

REPLICATION_FACTOR: Final = 3
IDLE_S: Final = 12
"""Of each round; both clusters are idle in the same seconds."""
SETTLE_S: Final = 10
"""Before that: what the new partitions caused is over, and the JVM has had a look at them."""
CONNECTIONS: Final = 500
_POLL_S: Final = 0.2


def measure(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Make a topic of two thirds of ``partitions`` and kill brokers under it; then another, and silence."""
    clusters = (ours, kafka)
    most = partitions * 2 // 3
    for cluster in clusters:
        make_topic(cluster, "many", most, REPLICATION_FACTOR)
    (back,) = alternate(rounds, ours, kafka, lambda cluster, _: [_restart(cluster, "many")])
    for cluster in clusters:
        make_topic(cluster, "more", partitions - most, REPLICATION_FACTOR)
    size = f"{partitions:,} partitions x RF {REPLICATION_FACTOR}"
    figures = [
        Figure(
            f"broker restarted after kill -9, {most:,} partitions x RF {REPLICATION_FACTOR}: "
            "process started until all in sync",
            "s",
            *back,
        ),
        Figure(f"idle, {size}: CPU of a broker", "ms per s", *_idle(ours, kafka, rounds)),
        Figure(f"idle, {size}: memory of a broker", "MB resident", resident_mb(ours), resident_mb(kafka)),
    ]
    with ExitStack() as connections:
        for cluster in clusters:
            _connect(cluster, connections)
        idle = _idle(ours, kafka, rounds)
        memory = resident_mb(ours), resident_mb(kafka)
    for cluster in clusters:
        for topic in ("many", "more"):
            delete_topic(cluster, topic)
    return [
        *figures,
        Figure(f"the same with {CONNECTIONS} idle connections: CPU of a broker", "ms per s", *idle),
        Figure(f"the same with {CONNECTIONS} idle connections: memory of a broker", "MB resident", *memory),
    ]


def _idle(ours: Cluster, kafka: Cluster, rounds: int) -> tuple[float, float]:
    """CPU that a broker takes, in ms a second, the mean of the cluster's; the median round of each."""
    time.sleep(SETTLE_S)
    spent: dict[int, float] = {}

    def run(cluster: Cluster, number: int) -> Sequence[float]:
        if cluster is ours:
            before = {id(c): _cpu_s(c) for c in (ours, kafka)}
            time.sleep(IDLE_S)
            spent.update((id(c), _cpu_s(c) - before[id(c)]) for c in (ours, kafka))
        return [spent[id(cluster)] * 1000 / IDLE_S / len(cluster.ports)]

    (medians,) = alternate(rounds, ours, kafka, run)
    return medians


def _cpu_s(cluster: Cluster) -> float:
    """User and system time of all brokers so far."""
    times = [psutil.Process(cluster.pid(broker)).cpu_times() for broker in cluster.ports]
    return float(sum(t.user + t.system for t in times))


def _connect(cluster: Cluster, connections: ExitStack) -> None:
    ports = list(cluster.ports.values())
    for number in range(CONNECTIONS):
        address = ("127.0.0.1", ports[number % len(ports)])
        connections.enter_context(socket.create_connection(address))


def _restart(cluster: Cluster, topic: str) -> float:
    """Kill a broker that is not the controller, wait for the end of its session, start it; seconds to be in sync."""
    with ZooKeeper(cluster.connect) as zk:
        view = read_cluster(zk, [topic], states=False)
        victim = min(set(view.brokers) - {view.controller_id})
        partitions = list(view.partitions())
        cluster.kill(victim)
        wait_for(lambda: zk.get(BrokerZnode.path(victim)) is None, f"{cluster.name}: session of {victim} over")
        wait_for(
            lambda: in_sync(zk, partitions, REPLICATION_FACTOR - 1),
            f"{cluster.name}: {victim} out of sync",
            poll_s=_POLL_S,
        )
        started = time.perf_counter()
        cluster.restart(victim)
        wait_for(
            lambda: in_sync(zk, partitions, REPLICATION_FACTOR), f"{cluster.name}: {victim} in sync", poll_s=_POLL_S
        )
        return time.perf_counter() - started
