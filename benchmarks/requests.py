"""kt beside Kafka's own tools by ``--bootstrap-server``, on a real Kafka without ZooKeeper: whole processes (ADM-60).

    scripts/benchmark requests [--kafka 4.1.0] [--rounds 5] [--partitions 100 10000] [--only WORD]

Both talk to the same three nodes in turns. Kafka's start script (bash) is left out of its time. What a command does is the
tools' own work, and little of the brokers': a plan is carried out by another order of the same replicas, a growing topic has
three partitions, and what is verified, listed and elected is as it is wanted already. Each begins when the brokers are idle.
Some rounds go before those that are counted: brokers that have just started answer twice as late, as their JVM has compiled
little yet, and those of a cluster in use have been up for long.

``kt brokers`` and ``kt health`` have no like among Kafka's tools; beside them stand those that read a part of the same. Both
replica verifications are timed to their first report, of topics without records, by which neither ends.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.clusters import BROKERS, Kraft, wait_for
from benchmarks.figures import alternate
from benchmarks.report import machine

_TIMEOUT_S: Final = 180
_FACTOR: Final = 2
_FEW: Final = 3
_SIZES: Final = (100, 10_000)
_ALLOWED: Final = 0.25
_WARM_UP_ROUNDS: Final = 3
_LOOK_S: Final = 1.0
_IDLE: Final = 0.7  # of a processor, all brokers together: 10,000 partitions take 0.4 of one by being there
_AT_ONCE: Final = 5000
"""Partitions made by one request: KRaft refuses one that needs over 10,000 records."""
_PATIENCE: Final = {"operation_timeout": 60, "request_timeout": 60}
_TOPIC: Final = "org.apache.kafka.tools.TopicCommand"
_CONFIG: Final = "kafka.admin.ConfigCommand"
_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"
_VERIFY: Final = "org.apache.kafka.tools.ReplicaVerificationTool"
_LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"


@dataclass(frozen=True, slots=True)
class Task:
    """The same for both: arguments of kt, and Kafka's class with its own. ``{n}`` in an argument becomes a new number.

    ``said`` must stand in what is printed. ``until``: the tool goes on for ever, and is ended when it has printed this.
    ``ready`` is waited for before its time begins.
    """

    title: str
    kt: Sequence[str]
    main: str
    arguments: Sequence[str]
    said: str = ""
    until: str = ""
    codes: Sequence[int] = field(default=(0,))
    ready: Callable[[], bool] = lambda: True


Tool = Callable[[Task, str], list[str]]
"""(task, number) -> command line."""


def measure(
    kafka: Kraft, directory: Path, rounds: int, sizes: Sequence[int], *, only: str = "", warm_up: int = _WARM_UP_ROUNDS
) -> list[tuple[str, float, float]]:
    """Return (title, kt's median seconds, Kafka's) of each task, with topics of those sizes in the cluster.

    ``only``: of those whose title has that word. ``warm_up``: so many rounds before are not counted.
    """
    topics = {size: f"sized-{size}" for size in sizes}
    for size, topic in topics.items():
        _make(kafka, topic, size)
    tasks = _small(kafka)
    for size, topic in topics.items():
        tasks += _sized(kafka, directory, topic, size)
    tasks = [task for task in tasks if only in task.title]
    where = ("--bootstrap-server", kafka.bootstrap)

    def by_kt(task: Task, number: str) -> list[str]:
        return [str(Path(sys.executable).with_name("kt")), *(_numbered(task.kt, number)), *where]

    def by_kafka(task: Task, number: str) -> list[str]:
        bootstrap = ("--broker-list", kafka.bootstrap) if task.main == _VERIFY else where
        return kafka.command(task.main, *_numbered(task.arguments, number), *bootstrap)

    tools: tuple[Tool, Tool] = (by_kt, by_kafka)

    def run(tool: Tool, number: int) -> Sequence[float]:
        name = f"{int(tool is by_kafka)}{number}"
        return [_timed(kafka, task, tool(task, name)) for task in tasks]

    for number in range(rounds + warm_up):  # for what alters one: a broker may learn of a topic after its maker
        for own in range(len(tools)):
            _make(kafka, f"altered-{own}{number}", _FEW)
    for number in range(rounds, rounds + warm_up):
        for tool in tools:
            run(tool, number)
    medians = alternate(rounds, *tools, run)
    return [(task.title, *both) for task, both in zip(tasks, medians, strict=True)]


def _small(kafka: Kraft) -> list[Task]:
    """Return what looks at one small topic, whatever else there is."""
    new = ("--topic", "made-{n}", "--partitions", str(_FEW), "--replication-factor", str(_FACTOR))
    grown = ("--topic", "altered-{n}", "--partitions", str(_FEW + 1))
    config = "segment.ms=3600000"
    entity = ("--entity-type", "topics", "--entity-name", "altered-{n}", "--add-config", config)
    broker_log_dirs = ("--describe", "--broker-list", ",".join(map(str, kafka.ports)))
    return [
        Task("`topics list`", ["topics", "list"], _TOPIC, ["--list"], "sized-"),
        Task("`topics create`", ["topics", "create", *new], _TOPIC, ["--create", *new], "Created topic"),
        Task("`topics alter --partitions`", ["topics", "alter", *grown], _TOPIC, ["--alter", *grown]),
        Task(
            "`topics alter --config`, beside kafka-configs",
            ["topics", "alter", "--topic", "altered-{n}", "--config", config],
            *(_CONFIG, ["--alter", *entity], "config for topic"),
        ),
        Task("`reassign --list`", ["reassign", "--list"], _REASSIGN, ["--list"], "No partition reassignments found"),
        Task("`brokers`, beside kafka-log-dirs", ["brokers"], _LOG_DIRS, broker_log_dirs),
        # Those checks that look twice, ten seconds apart, do so only where something was found.
        Task(
            "`health`, beside kafka-topics --under-replicated-partitions",
            ["health"],
            *(_TOPIC, ["--describe", "--under-replicated-partitions"]),
        ),
    ]


def _sized(kafka: Kraft, directory: Path, topic: str, size: int) -> list[Task]:
    replicas = {p.id: p.replicas for p in _admin(kafka).list_topics(topic).topics[topic].partitions.values()}
    paths = {name: directory / f"{topic}.{name}.json" for name in ("as-is", "turned", "wanted", "election")}
    turned = {p: [*r[1:], r[0]] for p, r in replicas.items()}
    for name, plan in (("as-is", replicas), ("turned", turned)):
        rows = [{"topic": topic, "partition": p, "replicas": r} for p, r in sorted(plan.items())]
        paths[name].write_text(json.dumps({"version": 1, "partitions": rows}))
    paths["wanted"].write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    chosen = [{"topic": topic, "partition": p} for p in sorted(replicas)]
    paths["election"].write_text(json.dumps({"partitions": chosen}))

    def reassign(title: str, said: str, *flags: str, ready: Callable[[], bool] = lambda: True) -> Task:
        words = f"`reassign {title}`, {size:,} partitions"
        return Task(words, ["reassign", *flags], _REASSIGN, flags, said, ready=ready)

    def all_know() -> bool:
        """Tell whether each broker has learnt that replicas are as they were: a while after they are."""
        asked = (
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}) for port in kafka.ports.values()
        )
        told = (one.list_topics(topic, timeout=60).topics[topic].partitions.values() for one in asked)
        return all(p.replicas == replicas[p.id] for partitions in told for p in partitions)

    def with_plan(name: str) -> tuple[str, str]:
        return "--reassignment-json-file", str(paths[name])

    brokers = ",".join(str(broker) for broker in range(1, BROKERS + 1))
    started = "Successfully started partition reassignment"
    generate = ("--generate", "--topics-to-move-json-file", str(paths["wanted"]), "--broker-list", brokers)
    at_once = ("--report-interval-ms", "100", "--max-wait-ms", "10")  # by default both wait a second for records
    elect = ("--election-type", "preferred", "--path-to-json-file", str(paths["election"]))
    return [
        Task(
            f"`topics describe`, {size:,} partitions",
            ["topics", "describe", "--topic", topic],
            *(_TOPIC, ["--describe", "--topic", topic], f"Partition: {size - 1}\t"),
        ),
        reassign("--generate", "Proposed partition reassignment", *generate),
        reassign("--execute", started, "--execute", *with_plan("turned")),
        reassign("--execute` back, `--additional", started, "--execute", "--additional", *with_plan("as-is")),
        reassign("--verify", "is complete", "--verify", *with_plan("as-is"), ready=all_know),
        Task(f"`elect`, {size:,} partitions", ["elect", *elect], _ELECT, elect, topic),
        Task(
            f"`replica-verify`, {size:,} partitions, to the first report",
            ["replica-verify", "--topic-white-list", topic, *at_once],
            _VERIFY,
            ["--topics-include", topic, *at_once],
            until="max lag is",
        ),
    ]


def _numbered(arguments: Sequence[str], number: str) -> list[str]:
    return [argument.replace("{n}", number) for argument in arguments]


def _admin(kafka: Kraft) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


def _make(kafka: Kraft, topic: str, size: int) -> None:
    admin = _admin(kafka)
    each = [AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}) for port in kafka.ports.values()]
    for made in range(0, size, _AT_ONCE):
        so_far = min(size, made + _AT_ONCE)
        if made == 0:
            admin.create_topics([NewTopic(topic, so_far, _FACTOR)], **_PATIENCE)[topic].result()
        else:
            admin.create_partitions([NewPartitions(topic, so_far)], **_PATIENCE)[topic].result()

    def in_sync(one: AdminClient) -> bool:
        found = one.list_topics(topic, timeout=60).topics[topic].partitions.values()
        return len(found) == size and all(len(p.isrs) == _FACTOR and p.leader >= 0 for p in found)

    for one in each:
        wait_for(lambda one=one: in_sync(one), f"{topic} in sync", poll_s=0.5)  # type: ignore[misc]


def _timed(kafka: Kraft, task: Task, command: Sequence[str]) -> float:
    wait_for(task.ready, f"ready for {task.title}")
    wait_for(lambda: _idle(kafka), f"brokers idle before {task.title}")
    return _run(task, command)


def _idle(kafka: Kraft) -> bool:
    """Tell whether the brokers do little more than ask one another: they go on for a while after what a command did."""
    nodes = [psutil.Process(kafka.pid(broker)) for broker in kafka.ports]

    def spent_s() -> float:
        return float(sum(sum(node.cpu_times()[:2]) for node in nodes))

    before_s = spent_s()
    time.sleep(_LOOK_S)
    return spent_s() - before_s < _IDLE * _LOOK_S


def _run(task: Task, command: Sequence[str]) -> float:
    """Seconds of the whole process, or to its first report. Raises RuntimeError when it did not do its work."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        with process:
            if task.until:
                text = _read_until(process, task.until)
            else:
                text = process.communicate(timeout=_TIMEOUT_S)[0]
            elapsed = time.perf_counter() - started
        errors.seek(0)
        if not task.until and (process.returncode not in task.codes or task.said not in text):
            raise RuntimeError(f"{' '.join(command[-9:])}: {process.returncode}: {text[-500:]}{errors.read()[-2000:]}")
    return elapsed


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    """Read lines until one has the words, end the process. Raises RuntimeError where it ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            process.send_signal(signal.SIGKILL)
            process.stdout.close()
            return line
    raise RuntimeError(f"it ended without a line with {words!r}")


def _table(figures: Sequence[tuple[str, float, float]], version: str) -> str:
    """Markdown, with a mark where kt takes more than it may."""
    lines = [f"| s | kt | Kafka {version} | ratio |", "|---|---:|---:|---:|"]
    for title, ours, kafka in figures:
        over = " (over)" if ours > kafka * _ALLOWED else ""
        lines.append(f"| {title} | {ours:.2f} | {kafka:.2f} | {ours / kafka:.2f}{over} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure on a cluster of its own, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark requests", description=__doc__)
    parser.add_argument(
        "--kafka", default="4.1.0", metavar="VERSION", help="without ZooKeeper: 3.9.1 or 4.1.0 (default)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured (default 5)")
    parser.add_argument("--partitions", type=int, nargs="+", default=_SIZES, metavar="N", help="sizes of the topics")
    parser.add_argument("--only", default="", metavar="WORD", help="measure only what has this word in its title")
    parser.add_argument("--warm-up", type=int, default=_WARM_UP_ROUNDS, metavar="N", help="rounds before (default 3)")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with Kraft(options.kafka, directory / "kafka") as kafka:
            figures = measure(
                kafka, directory, options.rounds, options.partitions, only=options.only, warm_up=options.warm_up
            )
    print(f"{machine()}\n\n{_table(figures, options.kafka)}")


if __name__ == "__main__":
    main()
