"""kt's topic tool against Kafka's own, each on its own cluster: the whole process, from exec to exit."""

import subprocess
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.clusters import Cluster
from benchmarks.figures import Figure, alternate
from benchmarks.topics import delete_topic, make_topic

_TIMEOUT_S: Final = 60
_TOPIC: Final = "described"


def measure(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """List all topics; describe one topic of ``partitions``. Kafka's start script (bash) is left out of its time."""

    def run(cluster: Cluster, _round: int) -> Sequence[float]:
        return _run(cluster, "list"), _run(cluster, "describe", "--topic", _TOPIC)

    for cluster in (ours, kafka):
        make_topic(cluster, _TOPIC, partitions, 3)
    listed, described = alternate(rounds, ours, kafka, run)
    for cluster in (ours, kafka):
        delete_topic(cluster, _TOPIC)
    return [
        Figure("`topics list`, whole process", "s", *listed),
        Figure(f"`topics describe` of {partitions:,} partitions, whole process", "s", *described),
    ]


def _run(cluster: Cluster, verb: str, *arguments: str) -> float:
    command = cluster.topics_command(verb, *arguments)
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    elapsed = time.perf_counter() - started
    if done.returncode != 0 or _TOPIC not in done.stdout:
        raise RuntimeError(f"{cluster.name}: {' '.join(command[-4:])} ended with {done.returncode}: {done.stderr}")
    return elapsed
