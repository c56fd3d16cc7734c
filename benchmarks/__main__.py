"""``scripts/benchmark``: measure kafkatool beside Kafka 2.8.2 in one run and print one table. It asserts no times.

A full run also writes the table into docs/performance.md; a quick or partial one does not.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    controller,
    latency,
    leadership,
    many_partitions,
    report,
    starting,
    throughput,
    tls,
    tools,
    transactions,
)
from benchmarks.clusters import KAFKA_VERSION, Cluster, Kafka, Ours, wait_ready
from benchmarks.figures import Figure, table
from tests.compat.real_kafka import libraries

PARTS = (
    *("start", "throughput", "latency", "transactions", "controller", "tools", "big-topic", "failover", "shutdown"),
    *("reassignment", "many", "control-requests", "tls"),
)
PARTITIONS, QUICK_PARTITIONS = 1000, 100
MANY_PARTITIONS, QUICK_MANY_PARTITIONS = 3000, 300
BIG_PARTITIONS, QUICK_BIG_PARTITIONS = 10_000, 1000
TOLD_PARTITIONS, QUICK_TOLD_PARTITIONS = 10_000, 1000
QUICK_SHARE = 0.1
"""Of the records of each load."""


def main() -> None:
    """Parse, measure, print, and write the page."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark", description=__doc__)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"measure only these of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the load")
    parser.add_argument("--only", metavar="PART", nargs="+", default=[], help="the same")
    options = parser.parse_args()
    parts = {*options.part, *options.only} or set(PARTS)
    rounds = 1 if options.quick else options.rounds
    if unknown := parts - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    load_before = os.getloadavg()[0]
    try:
        libraries(KAFKA_VERSION)  # fetched before anything is measured
    except FileNotFoundError:
        sys.exit("scripts/benchmark: needs Maven (mvn) to fetch Kafka's jars, or KAFKA_PEER_HOME to have them")
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as directory:
        figures = _measure(Path(directory), parts, rounds, quick=options.quick)
    print(table(figures))
    if options.quick or parts != set(PARTS):
        print("a quick or partial run: docs/performance.md is left as it is", file=sys.stderr)
    else:
        report.write(figures, rounds, load_before)


def _measure(directory: Path, parts: set[str], rounds: int, *, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    partitions = QUICK_PARTITIONS if quick else PARTITIONS

    def part(name: str, measure: Callable[[], list[Figure]]) -> None:
        if name in parts:
            print(f"{name} (load average {os.getloadavg()[0]:.1f})", file=sys.stderr)
            figures.extend(measure())

    part("start", lambda: starting.measure(directory, rounds))
    part("tls", lambda: tls.measure(directory, rounds, QUICK_SHARE if quick else 1))
    if parts <= {"start", "tls"}:
        return figures
    ours, kafka = Ours(directory / "ours"), Kafka(directory / "kafka")
    try:
        for cluster in (ours, kafka):
            cluster.launch()
            wait_ready(cluster)
        part("throughput", lambda: _throughput(ours, kafka, rounds, QUICK_SHARE if quick else 1))
        part("latency", lambda: latency.measure(ours, kafka, rounds, QUICK_SHARE if quick else 1))
        part("transactions", lambda: transactions.measure(ours, kafka, rounds, QUICK_SHARE if quick else 1))
        part("controller", lambda: controller.measure(ours, kafka, rounds, partitions))
        many = QUICK_MANY_PARTITIONS if quick else MANY_PARTITIONS
        big = QUICK_BIG_PARTITIONS if quick else BIG_PARTITIONS
        part("big-topic", lambda: leadership.measure_big_topic(ours, kafka, rounds, big))
        part("failover", lambda: leadership.measure_failover(ours, kafka, rounds, many))
        part("shutdown", lambda: leadership.measure_shutdown(ours, kafka, rounds, many))
        part("reassignment", lambda: leadership.measure_reassignment(ours, kafka, rounds, partitions))
        part("many", lambda: many_partitions.measure(ours, kafka, rounds, many))
        told = QUICK_TOLD_PARTITIONS if quick else TOLD_PARTITIONS
        part(
            "control-requests", lambda: latency.measure_under_control(ours, kafka, rounds, told)
        )  # the last that measures brokers: see there
        part("tools", lambda: tools.measure(ours, kafka, directory, rounds, [many]))
    finally:
        ours.stop()
        kafka.stop()
    return figures


def _throughput(ours: Cluster, kafka: Cluster, rounds: int, share: float) -> list[Figure]:
    figures = throughput.measure(ours, kafka, rounds, share)
    memory = Figure(
        "memory of a broker, after all produce and fetch rounds",
        "MB resident",
        starting.resident_mb(ours),
        starting.resident_mb(kafka),
    )
    return [*figures, memory]


if __name__ == "__main__":
    main()
