"""Brokers that keep their sessions and stay in sync while a busy machine lets them stand still for seconds.

For tests that compare leaders, in-sync replicas or members: what a broker loses that way comes back, but not to where it
was.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final, Protocol

from kafkatool.core.errors import NoNodeError
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ControllerZnode
from tests.waiting import eventually

STEADY: Final = {
    "zookeeper.session.timeout.ms": "18000",  # a ping may be a third of it old; 20 ticks are all that a real one grants
    "replica.lag.time.max.ms": "60000",
}
LASTING: Final = {**STEADY, "zookeeper.session.timeout.ms": "60000"}
"""Where no test waits for a session to end: so long a broker may stand still."""
LASTING_KRAFT: Final = {
    "broker.session.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "30000",
    "replica.lag.time.max.ms": "60000",
}
"""The same for Kafka without ZooKeeper."""
ONE_BATCH_A_FETCH: Final = {"replica.fetch.max.bytes": "1000"}
"""So a throttled replica gets one batch, and then none for ten seconds: a move stands still while it is looked at."""


class Killable(Protocol):
    """A cluster, of ours or of Kafka's."""

    def kill_broker(self, broker: int, /) -> None: ...


def crash(cluster: Killable, zk: ZooKeeper, broker: int) -> None:
    """kill -9; its nodes go at once, as when its session ends: that takes longer than clients are to wait."""
    cluster.kill_broker(broker)
    ephemeral = [BrokerZnode.path(broker)]
    if read_cluster(zk, [], states=False).controller_id == broker:
        ephemeral.append(ControllerZnode.PATH)
    for path in ephemeral:
        with contextlib.suppress(NoNodeError):  # its session has ended meanwhile
            zk.delete(path)


def stand_still(pid: int) -> None:
    """Send SIGSTOP; returns when nothing of the process goes on: on a busy machine some threads do for half a second."""

    def stands_still() -> bool:
        states = set()
        for status in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # a thread that has ended
                states.add(status.read_text().rpartition(") ")[2][0])
        return states == {"T"}

    os.kill(pid, signal.SIGSTOP)
    eventually(stands_still, f"process {pid} to stand still")
