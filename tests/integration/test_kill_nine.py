"""Brokers killed -9 at random under load: nothing acknowledged is lost, and all replicas end equal."""

import random
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.assignment import assign_replicas
from kafkatool.core.cluster_view import ClusterView, read_cluster
from kafkatool.core.operations.topics import create_topic
from kafkatool.core.zookeeper import ZooKeeper
from tests.waiting import eventually

ROUNDS = 10
PARTITIONS = 4
TOPIC = "faults"


class Load:
    """A plain acks=all producer that numbers its records and notes the acknowledged ones, until stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": False,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                key = number

                def delivered(error: object, message: object, key: int = key) -> None:
                    if error is None:
                        self.acknowledged[key] = (message.partition(), message.offset())  # type: ignore[attr-defined]

                self._producer.produce(TOPIC, b"value-%d" % key, str(key), on_delivery=delivered)
                number += 1
            self._producer.poll(0)
            time.sleep(0.005)  # a bounded load: at most 4,000 records a second

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def read_all(bootstrap: str) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    try:
        seen: dict[int, bytes] = {}
        ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(PARTITIONS)]
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        reached = [0] * PARTITIONS

        def done() -> bool:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                reached[message.partition()] = message.offset() + 1
                seen[int(message.key())] = message.value()
            return all(r >= e for r, e in zip(reached, ends, strict=True))

        eventually(done, "all records to be read", 120)
        return seen
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-48", "BRK-50", "BRK-53", "BRK-59", "BRK-66", "BRK-137", "CTL-37", "CTL-43")
def test_no_acknowledged_record_is_lost_over_ten_rounds_of_kill_nine() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    with EmbeddedCluster(brokers=3, options=options) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        brokers = list(read_cluster(zk, [], states=False).brokers.values())
        create_topic(zk, TOPIC, assign_replicas(brokers, PARTITIONS, 3, start_index=0, replica_shift=0), {})

        def view() -> ClusterView:
            return read_cluster(zk, [TOPIC])

        def all_in_sync() -> bool:
            now = view()
            return len(now.states) == PARTITIONS and all(
                len(s.leader_and_isr.isr) == 3 and s.leader_and_isr.leader is not None for s in now.states.values()
            )

        eventually(all_in_sync, "the topic to be in sync", 60)
        load = Load(cluster.bootstrap)
        try:
            for _ in range(ROUNDS):
                at = len(load.acknowledged)
                eventually(lambda n=at: len(load.acknowledged) > n + 500, "the load to go on", 60)  # type: ignore[misc]
                victim = chance.choice([1, 2, 3])
                cluster.kill_broker(victim)
                if chance.random() < 0.5:  # half of the time it is back before its session expired
                    eventually(lambda v=victim: v not in view().brokers, "the session to expire")  # type: ignore[misc]
                cluster.start_broker(victim)
                eventually(all_in_sync, "all replicas to be in sync again", 60)
        finally:
            load.stop()
        acknowledged = load.acknowledged
        assert len(acknowledged) > ROUNDS * 500
        seen = read_all(cluster.bootstrap)
        lost = sorted(set(acknowledged) - set(seen))
        assert not lost, f"seed {seed}: {len(lost)} acknowledged records lost, the first {lost[:5]}"
        assert all(value == b"value-%d" % key for key, value in seen.items())
