"""Leadership of thousands of partitions on the move: brokers die or stop, operators elect and reassign.

The watches that tell when a partition has changed are set before anything happens: they say when, where polling would
say about when. Who dies is not the controller unless that is what is measured.
"""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final

import psutil

from benchmarks.clusters import DEADLINE_S, Cluster, wait_for
from benchmarks.figures import Figure, alternate
from benchmarks.producer import Producer
from benchmarks.topics import delete_topic, in_sync, make_topic, time_topic
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster, read_states
from kafkatool.core.zookeeper.session import WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, PartitionStateZnode, PreferredElectionZnode, ReassignmentZnode

REPLICATION_FACTOR: Final = 3
_POLL_S: Final = 0.2
_TOPIC: Final = "led"


def measure_big_topic(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Have a topic of that many partitions come up, and go again."""

    def run(cluster: Cluster, number: int) -> Sequence[float]:
        topic = f"big-{number}"
        times = time_topic(cluster, topic, partitions, REPLICATION_FACTOR)
        delete_topic(cluster, topic)
        return times

    led, known = alternate(rounds, ours, kafka, run)
    title = f"create {_size(partitions)}: node written until"
    return [Figure(f"{title} led and in sync", "s", *led), Figure(f"{title} known to all brokers, too", "s", *known)]


def measure_failover(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Kill a broker, then the controller's broker."""

    def run(cluster: Cluster, _: int) -> Sequence[float]:
        with ZooKeeper(cluster.connect) as zk:
            return _fail_over(cluster, zk, of_controller=False), _fail_over(cluster, zk, of_controller=True)

    broker, controller = _with_topic(ours, kafka, rounds, partitions, run)
    size = _size(partitions)
    return [
        Figure(f"broker killed, {size}: session expired until the last new leader", "s", *broker),
        Figure(f"controller killed, {size}: session expired until the last new leader", "s", *controller),
    ]


def measure_shutdown(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Ask a broker to stop while somebody produces to another; then give it its leaderships back."""

    def run(cluster: Cluster, _: int) -> Sequence[float]:
        with ZooKeeper(cluster.connect) as zk:
            stopped, waited = _stop(cluster, zk)
            return stopped, waited, _elect(cluster, zk)

    stopped, waited, elected = _with_topic(ours, kafka, rounds, partitions, run)
    size = _size(partitions)
    return [
        Figure(f"controlled shutdown, {size}: SIGTERM until the broker leads none", "s", *stopped),
        Figure(
            "the same: longest wait of a producer (acks=all, another broker leads) until it has ended", "ms", *waited
        ),
        Figure(f"preferred election, {size}: node written until the last leader is back", "s", *elected),
    ]


def measure_reassignment(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Move one replica of each of a topic's empty partitions to another broker."""

    def run(cluster: Cluster, number: int) -> Sequence[float]:
        topic = f"moved-{number}"
        make_topic(cluster, topic, partitions, 2)
        with ZooKeeper(cluster.connect) as zk:
            ids = sorted(cluster.ports)
            now = read_cluster(zk, [topic], states=False).topics[topic].assignment
            plan = {
                TopicPartition(topic, p): (*replicas[:1], next(b for b in ids if b not in replicas))
                for p, replicas in now.items()
            }
            gone = threading.Event()
            started = time.perf_counter()
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan))
            while zk.get(ReassignmentZnode.PATH, lambda _: gone.set()) is not None:
                if not gone.wait(DEADLINE_S):
                    raise RuntimeError(f"{cluster.name}: the reassignment does not end")
                gone.clear()
            took = time.perf_counter() - started
            after = read_cluster(zk, [topic], states=False).topics[topic].assignment
            if wrong := [tp for tp, replicas in plan.items() if after[tp.partition] != replicas]:
                raise RuntimeError(f"{cluster.name}: {wrong[0]} was not reassigned")
        delete_topic(cluster, topic)
        return [took]

    (took,) = alternate(rounds, ours, kafka, run)
    return [
        Figure(
            f"reassignment of {partitions:,} empty partitions, one replica each: node written until gone", "s", *took
        )
    ]


def _size(partitions: int) -> str:
    return f"{partitions:,} partitions x RF {REPLICATION_FACTOR}"


def _with_topic(
    ours: Cluster, kafka: Cluster, rounds: int, partitions: int, run: Callable[[Cluster, int], Sequence[float]]
) -> list[tuple[float, float]]:
    for cluster in (ours, kafka):
        make_topic(cluster, _TOPIC, partitions, REPLICATION_FACTOR)
    medians = alternate(rounds, ours, kafka, run)
    for cluster in (ours, kafka):
        delete_topic(cluster, _TOPIC)
    return medians


class _Changes:
    """When the last of these partitions got another leader. Set before what gives it to them.

    Kafka may write a partition twice, without a leader first, so what has changed is read and watched again.
    """

    def __init__(self, cluster: Cluster, zk: ZooKeeper, leaders: Mapping[TopicPartition, int]) -> None:
        """``leaders``: of each partition now."""
        self._cluster = cluster
        self._zk = zk
        self._old = {PartitionStateZnode.path(tp): (tp, leader) for tp, leader in leaders.items()}
        self._fired: SimpleQueue[tuple[str, float]] = SimpleQueue()
        zk.get_many(list(self._old), self._on_change)

    def _on_change(self, event: WatchEvent) -> None:  # on ZooKeeper's one callback thread
        self._fired.put((event.path, time.perf_counter()))

    def wait(self) -> float:
        """Wait, and return when it was, by ``time.perf_counter``."""
        waiting = dict(self._old)
        last_at = 0.0
        while waiting:
            try:
                fired = [self._fired.get(timeout=DEADLINE_S)]
            except Empty:
                raise RuntimeError(f"{self._cluster.name}: {len(waiting)} partitions have no new leader") from None
            while not self._fired.empty():
                fired.append(self._fired.get())
            for (path, at), node in zip(fired, self._zk.get_many([p for p, _ in fired], self._on_change), strict=True):
                if path not in waiting or node is None:
                    continue
                tp, old = waiting[path]
                if PartitionStateZnode.decode(tp, node.data).leader not in (None, old):
                    del waiting[path]
                    last_at = max(last_at, at)
        return last_at


def _led_by(view: ClusterView, broker: int) -> dict[TopicPartition, int]:
    return {tp: broker for tp, state in view.states.items() if state.leader_and_isr.leader == broker}


def _fail_over(cluster: Cluster, zk: ZooKeeper, *, of_controller: bool) -> float:
    view = read_cluster(zk, [_TOPIC], states=False)
    victim = view.controller_id if of_controller else min(set(view.brokers) - {view.controller_id})
    assert victim is not None
    expired, led = fail_over(cluster, zk, victim)
    return led - expired


def fail_over(cluster: Cluster, zk: ZooKeeper, victim: int) -> tuple[float, float]:
    """Return when the killed broker's session ended, and when the last partition it led had another leader.

    By ``time.perf_counter``. Afterwards it is back, in sync, and leads what it led.
    """
    view = read_cluster(zk, [_TOPIC])
    led = _led_by(view, victim)
    expired: list[float] = []
    zk.get(BrokerZnode.path(victim), lambda _: expired.append(time.perf_counter()))
    changes = _Changes(cluster, zk, led)
    cluster.kill(victim)
    led_at = changes.wait()
    cluster.restart(victim)
    _wait_in_sync(cluster, zk, view)
    _elect(cluster, zk)
    return expired[0], led_at


def _stop(cluster: Cluster, zk: ZooKeeper) -> tuple[float, float]:
    """Seconds until the broker leads nothing, and the milliseconds that one produce request waited at most meanwhile."""
    view = read_cluster(zk, [_TOPIC])
    assert view.controller_id is not None
    victim = min(set(view.brokers) - {view.controller_id})
    other = max(set(view.brokers) - {victim})
    topic = f"beside-{time.monotonic_ns()}"
    create_topic(zk, topic, {0: (other, *(b for b in sorted(view.brokers) if b != other))})
    wait_for(lambda: in_sync(zk, [TopicPartition(topic, 0)], len(view.brokers)), f"{cluster.name}: {topic}")
    led = _led_by(view, victim)
    process = psutil.Process(cluster.pid(victim))
    with Producer(cluster, topic, other) as producer:
        producer.send_many(500)
        changes = _Changes(cluster, zk, led)
        started = time.perf_counter()
        with producer.sending() as samples:
            process.send_signal(signal.SIGTERM)
            took = changes.wait() - started
            wait_for(lambda: not _runs(process), f"{cluster.name}: broker {victim} gone")
    cluster.restart(victim)
    _wait_in_sync(cluster, zk, view)
    delete_topic(cluster, topic)
    return took, max(s.waited_ms for s in samples)


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _wait_in_sync(cluster: Cluster, zk: ZooKeeper, view: ClusterView) -> None:
    partitions = list(view.partitions())
    wait_for(lambda: in_sync(zk, partitions, REPLICATION_FACTOR), f"{cluster.name}: in sync again", poll_s=_POLL_S)


def _elect(cluster: Cluster, zk: ZooKeeper) -> float:
    """Seconds from the operator's request until the last partition is led by its preferred replica."""
    view = read_cluster(zk, [_TOPIC])
    partitions = list(view.partitions())
    preferred = {tp: view.topics[_TOPIC].assignment[tp.partition][0] for tp in partitions}
    leaders = {tp: view.states[tp].leader_and_isr.leader for tp in partitions}
    moving = {tp: old for tp, old in leaders.items() if old is not None and old != preferred[tp]}
    changes = _Changes(cluster, zk, moving)
    started = time.perf_counter()
    zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode(partitions))
    took = changes.wait() - started
    if wrong := [tp for tp, s in read_states(zk, moving).items() if s.leader_and_isr.leader != preferred[tp]]:
        raise RuntimeError(f"{cluster.name}: {wrong[0]} is not led by its preferred replica")
    wait_for(lambda: zk.get(PreferredElectionZnode.PATH) is None, f"{cluster.name}: the election is over")
    return took
