"""kt beside Kafka's own tools on one cluster: the whole process, from exec to exit, and how it grows with partitions.

    scripts/benchmark tools [--rounds 5] [--partitions 100 3000 10000]

Both tools talk to the same three brokers of ours and their ZooKeeper, in turns. Kafka's start script (bash) is left out
of its time. kt waits until the controller has tried every partition of an election; Kafka's tool does not, so kt is
measured with ``--no-wait`` too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clusters import Cluster, Kafka, Ours, wait_for, wait_ready
from benchmarks.figures import Figure, alternate, table
from benchmarks.report import machine
from benchmarks.topics import make_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode, TopicZnode

_TIMEOUT_S: Final = 60
_FACTOR: Final = 3
_GROWTH: Final = (100, 3000, 10_000)
_TOPIC: Final = "kafka.admin.TopicCommand"
_REASSIGN: Final = "kafka.admin.ReassignPartitionsCommand"
_ELECT: Final = "kafka.admin.PreferredReplicaLeaderElectionCommand"


@dataclass(frozen=True, slots=True)
class Task:
    """The same for both: arguments of kt, and Kafka's class with its own. ``said`` must stand in what is printed."""

    title: str
    kt: Sequence[str]
    main: str
    arguments: Sequence[str]
    said: str


def measure(cluster: Cluster, kafka: Kafka, directory: Path, rounds: int, sizes: Sequence[int]) -> list[Figure]:
    """Start-up, list and create; then describe, verify and elect for topics of each of those sizes, which stay."""
    topics = [f"sized-{size}" for size in sizes]
    for topic, size in zip(topics, sizes, strict=True):
        make_topic(cluster, topic, size, _FACTOR)
    tasks = [_start(), _list(cluster, topics[0])]
    for topic, size in zip(topics, sizes, strict=True):
        tasks += _sized(cluster, directory, topic, size)
    tools: tuple[Tool, Tool] = (lambda task, _: _kt(task), lambda task, _: kafka.command(task.main, *task.arguments))

    def run(tool: Tool, number: int) -> Sequence[float]:
        created = _create(cluster, f"created-{int(tool is tools[1])}-{number}")
        return [_run(cluster, tool(task, number), task.said) for task in (*tasks, created)]

    medians = alternate(rounds, *tools, run)
    titles = [*(task.title for task in tasks), "`topics create`"]
    return [Figure(title, "s", *both) for title, both in zip(titles, medians, strict=True)]


Tool = Callable[[Task, int], list[str]]
"""(task, round) -> command line."""


def _start() -> Task:
    return Task("start-up alone: `--version`", ["--version"], _TOPIC, ["--version"], "")


def _list(cluster: Cluster, topic: str) -> Task:
    where = ("--zookeeper", cluster.connect)
    return Task("`topics list`", ["topics", "list", *where], _TOPIC, ["--list", *where], topic)


def _create(cluster: Cluster, topic: str) -> Task:
    flags = ("--zookeeper", cluster.connect, "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    return Task("`topics create`", ["topics", "create", *flags], _TOPIC, ["--create", *flags], "Created topic")


def _sized(cluster: Cluster, directory: Path, topic: str, size: int) -> list[Task]:
    """Time the tools' own work: the plan is what is there already, and every leader is the preferred one."""
    plan, election = directory / f"{topic}.plan.json", directory / f"{topic}.election.json"
    with ZooKeeper(cluster.connect) as zk:
        node = zk.get(TopicZnode.path(topic))
    assert node is not None
    assignment = TopicZnode.decode(topic, node.data).assignment
    rows = [{"topic": topic, "partition": p, "replicas": list(r)} for p, r in sorted(assignment.items())]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    chosen = [{"topic": topic, "partition": p} for p in sorted(assignment)]
    election.write_text(json.dumps({"partitions": chosen}))
    where = ("--zookeeper", cluster.connect)
    describe, verify = ("--topic", topic), ("--verify", "--reassignment-json-file", str(plan))
    elect = ("--path-to-json-file", str(election))
    return [
        Task(
            f"`topics describe`, {size:,} partitions",
            ["topics", "describe", *where, *describe],
            *(_TOPIC, ["--describe", *where, *describe], f"Partition: {size - 1}\t"),
        ),
        Task(
            f"`reassign --verify`, {size:,} partitions",
            ["reassign", *where, *verify],
            *(_REASSIGN, [*where, *verify], f"{topic}"),
        ),
        Task(
            f"`elect`, {size:,} partitions",
            ["elect", *where, *elect],
            *(_ELECT, [*where, *elect], "Successfully started preferred replica election"),
        ),
        Task(
            f"`elect --no-wait`, {size:,} partitions",
            ["elect", *where, *elect, "--no-wait"],
            *(_ELECT, [*where, *elect], "Successfully started preferred replica election"),
        ),
    ]


def _kt(task: Task) -> list[str]:
    return [str(Path(sys.executable).with_name("kt")), *task.kt]


def _run(cluster: Cluster, command: Sequence[str], said: str) -> float:
    """Seconds of the whole process. Raises RuntimeError when it did not do its work."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    elapsed = time.perf_counter() - started
    if done.returncode != 0 or said not in done.stdout:
        raise RuntimeError(f"{' '.join(command[-6:])} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr}")
    with ZooKeeper(cluster.connect) as zk:  # the next election is refused while one is running
        wait_for(lambda: zk.get(PreferredElectionZnode.PATH) is None, "the election")
    return elapsed


def main() -> None:
    """Parse, measure on a cluster of its own, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark tools", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured (default 5)")
    parser.add_argument("--partitions", type=int, nargs="+", default=_GROWTH, metavar="N", help="sizes of the topics")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        ours, kafka = Ours(directory / "ours"), Kafka(directory / "kafka")
        (directory / "kafka").mkdir()
        try:
            ours.launch()
            wait_ready(ours)
            figures = measure(ours, kafka, directory, options.rounds, options.partitions)
        finally:
            ours.stop()
    print(f"{machine()}\n\n{table(figures)}")


if __name__ == "__main__":
    main()
