"""What a failover of thousands of partitions costs the broker that the controller lives in: thread beside process.

    scripts/benchmark neighbour [--rounds 3] [--partitions 3000]

A producer of single records (acks=all, a topic of one replica, on the controller's broker) goes on while another broker
is killed and a third of the partitions is led anew. First the controller is a thread of that broker, as it always is;
then ``kt controller start --take-over`` rules from a process of its own, and the same broker only serves.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.clusters import Cluster, Ours, wait_for, wait_ready
from benchmarks.leadership import fail_over
from benchmarks.producer import Producer
from benchmarks.report import machine
from benchmarks.topics import make_topic
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerZnode

_SINGLE: Final = "single"
_OWN_ID: Final = 1001
_SILENT_REQUESTS: Final = 2000
_AFTER_S: Final = 0.5
"""So long after the last new leader is in ZooKeeper the brokers may still be at work on what they were told."""


class _Round(NamedTuple):
    """Milliseconds that each request waited: in the failover itself, until all is as before, and before it."""

    failover_s: float
    at_once: list[float]
    until_back: list[float]
    silent: list[float]


def main() -> None:
    """Parse, measure both ways on one cluster, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark neighbour", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=3000)
    options = parser.parse_args()
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as name:
        cluster = Ours(Path(name) / "ours")
        try:
            cluster.launch()
            wait_ready(cluster)
            _measure(cluster, Path(name), options.rounds, options.partitions)
        finally:
            cluster.stop()


def _measure(cluster: Cluster, directory: Path, rounds: int, partitions: int) -> None:
    with ZooKeeper(cluster.connect) as zk:
        host = _ruling(zk)
        assert host is not None
        victim = min(set(cluster.ports) - {host})
        create_topic(zk, _SINGLE, {0: (host,)})
        make_topic(cluster, "led", partitions, 3)
        print("| controller | failover, s | produce p50, p99, longest during it, ms | until all is back | in silence |")
        print("|---|---:|---:|---:|---:|")
        with Producer(cluster, _SINGLE, host) as producer:
            _report("thread of the broker", [_round(cluster, zk, producer, victim) for _ in range(rounds)])
            command = [str(Path(sys.executable).with_name("kt")), "controller", "start", "--take-over"]
            where = ["--zookeeper", cluster.connect, "--broker-id", str(_OWN_ID), "--log-dir", str(directory / "own")]
            with (directory / "own.out").open("wb") as output:
                own = subprocess.Popen([*command, *where], stdout=output, stderr=output)
            try:
                wait_for(lambda: _ruling(zk) == _OWN_ID, "the controller in a process of its own")
                _report("process of its own", [_round(cluster, zk, producer, victim) for _ in range(rounds)])
            finally:
                own.terminate()
                own.wait()


def _ruling(zk: ZooKeeper) -> int | None:
    node = zk.get(ControllerZnode.PATH)
    return ControllerZnode.decode(node.data) if node else None


def _round(cluster: Cluster, zk: ZooKeeper, producer: Producer, victim: int) -> _Round:
    silent = producer.send_many(_SILENT_REQUESTS)
    with producer.sending() as samples:
        expired, led = fail_over(cluster, zk, victim)
    at_once = [
        s.waited_ms for s in samples if expired <= s.sent_at + s.waited_ms / 1000 and s.sent_at <= led + _AFTER_S
    ]
    return _Round(led - expired, at_once, [s.waited_ms for s in samples], [s.waited_ms for s in silent])


def _report(title: str, rounds: Sequence[_Round]) -> None:
    columns = [f"{median(r.failover_s for r in rounds):.2f}"]
    for kind in ("at_once", "until_back", "silent"):
        pooled = sorted(ms for r in rounds for ms in getattr(r, kind))
        columns.append(", ".join(f"{_at(pooled, share):.1f}" for share in (0.5, 0.99, 1)))
    print(f"| {title} | {' | '.join(columns)} |", flush=True)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


if __name__ == "__main__":
    main()
