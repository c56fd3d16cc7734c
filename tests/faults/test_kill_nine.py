"""Brokers killed -9 at random under load: nothing acknowledged is lost, and all replicas end equal."""

import random

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import Load, await_in_sync, check_records, check_replicas_equal, make_topic
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
