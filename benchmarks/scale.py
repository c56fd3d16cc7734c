"""How a controller grows with the number of partitions: on a real ZooKeeper, with brokers that only say yes.

    scripts/benchmark scale [--partitions 1000 10000 100000]

Three registered brokers, RF 3, topics of 100 partitions that are led and in sync. The controller is a process of its
own (``kt controller start``); a second one waits. First the ruling one is killed with -9: from the moment its successor
is in /controller until the last request of its failover is answered. Then a broker dies: from the end of its session
until the last request is answered. ``python -m benchmarks.simulation`` measures the controller's own CPU alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil

from benchmarks.clusters import wait_for
from benchmarks.filled import BROKERS, topics
from benchmarks.report import machine
from kafkatool.broker.embedded.ports import free_ports
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode, PartitionStateZnode
from tests.stub_broker import StubBroker, register

_SESSION_MS: Final = 6000
_QUIET_S: Final = 5.0
_QUIET_S_PER_PARTITION: Final = 0.0002
"""Once no request has come for so long, no more will."""


def measure(directory: Path, partitions: int) -> tuple[float, float, float]:
    """Seconds of the failover, seconds after a broker's death, MB resident of the new controller."""
    server = ZooKeeperProcess(directory / "zookeeper", next(free_ports(1))).start().wait_ready()
    controllers: list[subprocess.Popen[bytes]] = []
    quiet_s = max(_QUIET_S, partitions * _QUIET_S_PER_PARTITION)
    with ExitStack() as stack:
        stack.callback(server.stop, gentle=False)
        zk = stack.enter_context(ZooKeeper(server.connect))
        _fill(zk, partitions)
        brokers, sessions = [], []
        for number in BROKERS:
            brokers.append(StubBroker(reads=False))
            stack.callback(brokers[-1].close)
            sessions.append(stack.enter_context(ZooKeeper(server.connect)))
            register(sessions[-1], number, brokers[-1].port)
        for number in (101, 102):
            controllers.append(_start_controller(directory, server.connect, number))
            stack.callback(_end, controllers[-1])
            wait_for(lambda: zk.get(ControllerZnode.PATH) is not None, "a controller")
        _wait_quiet(brokers, 0, quiet_s)
        killed = time.time()
        _end(controllers[0])
        wait_for(lambda: _ruling(zk) == 102, "the second controller")
        node = zk.get(ControllerZnode.PATH)
        assert node is not None
        failover = _wait_quiet(brokers, killed, quiet_s) - node.ctime_ms / 1000
        died = time.time()
        sessions[0].close()
        brokers[0].close()
        led_anew = _wait_quiet(brokers[1:], died, quiet_s) - died
        state = zk.get(PartitionStateZnode.path(TopicPartition("topic-0", 0)))
        assert state is not None
        assert PartitionStateZnode.decode(TopicPartition("topic-0", 0), state.data).leader == 2
        return failover, led_anew, psutil.Process(controllers[1].pid).memory_info().rss / 1e6


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _fill(zk: ZooKeeper, partitions: int) -> None:
    make_base_paths(zk)
    zk.create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(1), make_parents=True)
    for made in topics(partitions):
        zk.commit(made)


def _start_controller(directory: Path, connect: str, number: int) -> subprocess.Popen[bytes]:
    kt = str(Path(sys.executable).with_name("kt"))
    command = [kt, "controller", "start", "--zookeeper", connect, "--broker-id", str(number)]
    settings = [
        "-o",
        f"zookeeper.session.timeout.ms={_SESSION_MS}",
        "-o",
        "unclean.leader.election.enable=false",  # these brokers cannot be asked
        "--log-dir",
        str(directory / f"controller-{number}"),
    ]
    with (directory / f"controller-{number}.out").open("wb") as output:
        return subprocess.Popen([*command, *settings], stdout=output, stderr=output)


def _ruling(zk: ZooKeeper) -> int | None:
    node = zk.get(ControllerZnode.PATH)
    return ControllerZnode.decode(node.data) if node else None


def _wait_quiet(brokers: Sequence[StubBroker], since: float, quiet_s: float) -> float:
    """Return when the last request was answered, by ``time.time()``; at least one is, after ``since``."""

    def last() -> float:
        return max(b.answered_at for b in brokers)

    wait_for(lambda: last() > since, "a request")
    wait_for(lambda: time.time() - last() > quiet_s, "the last request")
    return last()


def main() -> None:
    """Parse, measure each size on a ZooKeeper of its own, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark scale", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 10_000, 100_000], metavar="N")
    sizes = parser.parse_args().partitions
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}\n")
    print("| partitions | failover, s | ms per 1,000 | a broker's death, s | ms per 1,000 | memory, MB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for partitions in sizes:
        with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as name:
            failover, death, memory = measure(Path(name), partitions)
        per_thousand = [f"{seconds / partitions * 1e6:.0f}" for seconds in (failover, death)]
        row = (f"{partitions:,}", f"{failover:.2f}", per_thousand[0], f"{death:.2f}", per_thousand[1], f"{memory:.0f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
