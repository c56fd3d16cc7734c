"""Two clusters with one face: ours and Kafka's, three brokers each, both on loopback and up at the same time."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import psutil

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat.real_kafka import RealKafka

KAFKA_VERSION = "2.8.2"
SESSION_TIMEOUT_MS = 6000
OPTIONS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    "num.partitions": "1",
    "log.segment.bytes": "1073741824",
}


class Cluster(Protocol):
    """What a measurement needs of a cluster."""

    name: str
    bootstrap: str
    zookeeper: str

    def pid(self, broker_id: int) -> int: ...
    def kill(self, broker_id: int) -> None: ...
    def start(self, broker_id: int) -> None: ...
    def tool(self, *arguments: str) -> list[str]: ...


class Ours:
    """The embedded cluster, driven by kt."""

    name = "kafkatool"

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.bootstrap, self.zookeeper = cluster.bootstrap, cluster.zookeeper

    def pid(self, broker_id: int) -> int:
        pid = next(b.pid for b in self._cluster.status().brokers if b.id == broker_id)
        assert pid is not None
        return pid

    def kill(self, broker_id: int) -> None:
        self._cluster.kill_broker(broker_id)

    def start(self, broker_id: int) -> None:
        self._cluster.start_broker(broker_id)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table: medians of what was measured, ``unit`` as printed, whether more is better."""

    title: str
    unit: str
    ours: float
    kafka: float
    more_is_better: bool

    def __str__(self) -> str:
        ratio = self.ours / self.kafka if self.kafka else float("nan")
        better = "more" if self.more_is_better else "less"
        return (
            f"| {self.title} ({self.unit}, {better} is better) | {self.ours:,.6g} | {self.kafka:,.6g} | {ratio:.2f} |"
        )


def alternate(rounds: int, ours: Callable[[], float], kafka: Callable[[], float]) -> tuple[float, float]:
    """Medians over rounds that take turns, so that a drift of the machine's speed meets both."""
    measured: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        measured[0].append(ours())
        measured[1].append(kafka())
    return statistics.median(measured[0]), statistics.median(measured[1])


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6
