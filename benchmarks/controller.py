"""What the controller's speed decides: a big topic coming up, its leaders after a broker's death, its deletion."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.clusters import DEADLINE_S, Cluster, wait_for
from benchmarks.figures import Figure, alternate
from benchmarks.topics import delete_topic, make_topic
from kafkatool.core.zookeeper.cluster_view import read_cluster, read_states
from kafkatool.core.zookeeper.session import WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, PartitionStateZnode

REPLICATION_FACTOR: Final = 3
_POLL_S: Final = 0.5


def measure(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Make one topic of ``partitions`` a round, kill one of its brokers, delete it."""

    def run(cluster: Cluster, number: int) -> Sequence[float]:
        topic = f"wide-{number}"
        made = make_topic(cluster, topic, partitions, REPLICATION_FACTOR)
        led = _fail_over(cluster, topic)
        return made, led, delete_topic(cluster, topic)

    made, led, deleted = alternate(rounds, ours, kafka, run)
    size = f"{partitions:,} partitions x RF {REPLICATION_FACTOR}"
    return [
        Figure(f"create {size}: node written until led, in sync and known to all brokers", "s", *made),
        Figure(f"broker killed, {size}: session expired until the last new leader", "s", *led),
        Figure(f"delete {size}: marked until its nodes are gone", "s", *deleted),
    ]


def _fail_over(cluster: Cluster, topic: str) -> float:
    """Seconds from the end of a killed broker's session until the last partition it led has another leader.

    The broker is not the controller. Told by watches, which say when, where polling would say about when.
    """
    with ZooKeeper(cluster.connect) as zk:
        view = read_cluster(zk, [topic])
        victim = min(set(view.brokers) - {view.controller_id})
        led = [tp for tp, state in view.states.items() if state.leader_and_isr.leader == victim]
        all_changed, left = threading.Event(), len(led)
        expired_at = last_at = 0.0

        def on_expiry(_: WatchEvent) -> None:
            nonlocal expired_at
            expired_at = time.perf_counter()

        def on_change(_: WatchEvent) -> None:  # on ZooKeeper's one callback thread
            nonlocal left, last_at
            left, last_at = left - 1, time.perf_counter()
            if left == 0:
                all_changed.set()

        zk.get(BrokerZnode.path(victim), on_expiry)
        zk.get_many([PartitionStateZnode.path(tp) for tp in led], on_change)
        cluster.kill(victim)
        if not all_changed.wait(DEADLINE_S):
            raise RuntimeError(f"{cluster.name}: {left} of {len(led)} partitions have no new leader")
        if wrong := [tp for tp, s in read_states(zk, led).items() if s.leader_and_isr.leader in (None, victim)]:
            raise RuntimeError(f"{cluster.name}: {wrong[0]} changed but has no new leader")
        cluster.restart(victim)
        wait_for(
            lambda: all(
                len(s.leader_and_isr.isr) == REPLICATION_FACTOR for s in read_states(zk, view.partitions()).values()
            ),
            f"{cluster.name}: broker {victim} in sync again",
            poll_s=_POLL_S,
        )
        return last_at - expired_at
