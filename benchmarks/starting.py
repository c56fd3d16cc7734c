"""A cluster's start, and the memory of its brokers."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from benchmarks.clusters import Cluster, Kafka, Ours, wait_ready
from benchmarks.figures import Figure, alternate

SETTLE_S = 5
"""After the start, before idle memory is read: what only the start needed may be given back by then."""


def measure(directory: Path, rounds: int) -> list[Figure]:
    """Start each cluster alone, on an empty directory, and end it again."""
    ours: Callable[[Path], Cluster] = Ours
    kafka: Callable[[Path], Cluster] = Kafka

    def run(make: Callable[[Path], Cluster], number: int) -> Sequence[float]:
        return _start(make(Path(tempfile.mkdtemp(prefix=f"start-{number}-", dir=directory))))

    (start_ours, start_kafka), (idle_ours, idle_kafka) = alternate(rounds, ours, kafka, run)
    return [
        Figure("start: ZooKeeper and 3 brokers until ready", "s", start_ours, start_kafka),
        Figure("memory of a broker, idle after start", "MB resident", idle_ours, idle_kafka),
    ]


def _start(cluster: Cluster) -> Sequence[float]:
    started = time.perf_counter()
    try:
        cluster.launch()
        wait_ready(cluster)
        elapsed = time.perf_counter() - started
        time.sleep(SETTLE_S)
        return elapsed, resident_mb(cluster)
    finally:
        cluster.stop()


def resident_mb(cluster: Cluster) -> float:
    """Resident memory of a broker process in MB (10^6 bytes), the median of the cluster's."""
    return statistics.median(
        float(psutil.Process(cluster.pid(broker)).memory_info().rss) / 1e6 for broker in cluster.ports
    )
