"""Brokers killed -9: nothing acknowledged is lost, all replicas end equal, and what was deleted does not come back."""

import random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import Load, await_in_sync, check_records, check_replicas_equal, edges_of, make_topic
from tests.waiting import eventually

ROUNDS = 10
PARTITIONS = 4
TOPIC = "faults"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("BRK-48", "BRK-50", "BRK-53", "BRK-59", "BRK-66", "BRK-137", "CTL-37", "CTL-43")
def test_no_acknowledged_record_is_lost_over_ten_rounds_of_kill_nine() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    with EmbeddedCluster(brokers=3, options=options) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, TOPIC, PARTITIONS)
        await_in_sync(zk, [TOPIC])
        load = Load(cluster.bootstrap, TOPIC, idempotent=False)
        try:
            for _ in range(ROUNDS):
                load.goes_on(500)
                victim = chance.choice([1, 2, 3])
                cluster.kill_broker(victim)
                if chance.random() < 0.5:  # half of the time it is back before its session expired
                    eventually(
                        lambda v=victim: v not in read_cluster(zk, [], states=False).brokers,  # type: ignore[misc]
                        "the session to expire",
                        60,
                    )
                cluster.start_broker(victim)
                await_in_sync(zk, [TOPIC])
        finally:
            load.stop()
        assert len(load.acknowledged) > ROUNDS * 500
        check_records(cluster, TOPIC, PARTITIONS, load)
        check_replicas_equal(cluster)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("BRK-141", "HIS-29")
def test_deleted_records_stay_so_though_all_brokers_are_killed_right_after_the_answer() -> None:
    kept = {TopicPartition(TOPIC, partition): partition + 1 for partition in range(PARTITIONS)}
    with EmbeddedCluster(brokers=3) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, TOPIC, PARTITIONS)
        await_in_sync(zk, [TOPIC])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for topic, partition in kept:
            for number in range(PARTITIONS + 1):
                producer.produce(topic, str(number), partition=partition)
        assert producer.flush(60) == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for answer in admin.delete_records([Place(*place, offset) for place, offset in kept.items()]).values():
            answer.result(60)
        for broker in (1, 2, 3):
            cluster.kill_broker(broker)
        for broker in (1, 2, 3):
            assert read_offsets(cluster.files.data(broker) / LOG_START_OFFSETS) == kept, f"broker {broker}"
        for broker in (1, 2, 3):
            cluster.start_broker(broker)
        await_in_sync(zk, [TOPIC])
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
        try:
            for place, offset in kept.items():
                start, _ = edges_of(consumer, Place(*place))
                assert start == offset
        finally:
            consumer.close()
