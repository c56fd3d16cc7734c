"""How a failover grows with the number of partitions: time and memory of the controller's own code, nothing else.

    python -m benchmarks.simulation [--partitions 1000 10000 100000]

The real controller on the simulation's ZooKeeper: no network, no disk, no Java, so what is left is Python's work for
the context, the decisions and the requests. Two live brokers, RF 3, topics of 100 partitions; each size in a process
of its own. The third broker is gone with the old controller, so a third of the partitions is led anew.
"""

import argparse
import multiprocessing
import time
from typing import Final

import psutil

from benchmarks.filled import BROKERS, topics
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Create
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode
from tests.simulation.cluster import Cluster
from tests.simulation.server import OPERATOR
from tests.simulation.world import World

_GONE: Final = BROKERS[0]
_LIVE: Final = BROKERS[1:]


def _cluster(partitions: int) -> Cluster:
    """Brokers that follow controller 1, which is gone but for its node, and topics all replicas of which are in sync."""
    world = World(1)
    cluster = Cluster(world, _LIVE)
    server = cluster.server
    server.on_write = lambda *_: None  # the invariants' time is not what is measured
    cluster.invariants.on_send = lambda *_: None  # type: ignore[method-assign]
    server.write(Create(ControllerZnode.PATH, ControllerZnode.encode(_GONE, 0)), OPERATOR)
    server.write(Create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(1)), OPERATOR)
    for broker in _LIVE:
        cluster.start(broker)
    world.run_for(2000)
    for made in topics(partitions):
        for create in made:
            server.write(create, OPERATOR)
    return cluster


def measure(partitions: int) -> tuple[float, float]:
    """CPU seconds of the failover, and MiB by which the process has grown in it."""
    cluster = _cluster(partitions)
    process, spent = psutil.Process(), 0.0
    before = process.memory_info().rss
    cluster.delete_controller()
    while not any(p.worker.term for p in cluster.alive()):
        started = time.process_time()
        cluster.world.step()  # one of them is the failover
        spent = time.process_time() - started
    grown = process.memory_info().rss - before
    cluster.world.run_for(1000)
    leaders = {cluster.invariants.state(TopicPartition("topic-0", n)) for n in range(3)}
    assert all(s is not None and s.leader in _LIVE for s in leaders), leaders
    return spent, grown / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000, 100_000])
    sizes = parser.parse_args().partitions
    print("| partitions | failover, CPU s | µs a partition | memory, MiB | KiB a partition |")
    print("|---|---|---|---|---|")
    for partitions in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, held = pool.apply(measure, (partitions,))
        print(
            f"| {partitions:,} | {seconds:.3f} | {seconds / partitions * 1e6:.0f} | {held:.1f} "
            f"| {held * 1024 / partitions:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
