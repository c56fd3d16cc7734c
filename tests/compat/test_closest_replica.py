"""librdkafka reads from the replica of its rack, and from the leader again when that one is gone (KIP-392)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkatool.broker.settings.config import RACK_AWARE
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.mixed import WAIT_S, OurBroker
from tests.integration.load import await_in_sync
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OPTIONS = {**LASTING, "replica.selector.class": RACK_AWARE, "unclean.leader.election.enable": "false"}


@pytest.fixture
def brokers(zk_connect: str, tmp_path: Path) -> Iterator[list[OurBroker]]:
    """Broker 1 in rack a, 2 in rack b."""
    with (
        OurBroker(tmp_path / "1", zk_connect, {**OPTIONS, "broker.rack": "a"}, 1) as one,
        OurBroker(tmp_path / "2", zk_connect, {**OPTIONS, "broker.rack": "b"}, 2) as two,
    ):
        yield [one, two]


@pytest.mark.spec("BRK-92")
def test_a_consumer_reads_where_it_is_near(brokers: list[OurBroker], zk_connect: str) -> None:
    bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    told: dict[str, Any] = {}
    with ZooKeeper(zk_connect) as zk:
        create_topic(zk, "near", {0: (1, 2)}, {})
        await_in_sync(zk, ["near"], WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "client.rack": "b",
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: told.update(json.loads(text)["topics"].get("near", {})),
        }
    )

    def read_from() -> tuple[int, int] | None:
        """Return the broker it fetches from, and the one it counts as the leader."""
        consumer.poll(0.05)
        partition = told.get("partitions", {}).get("0")
        return None if partition is None else (partition["broker"], partition["leader"])

    def reads(count: int) -> None:
        for number in range(count):
            producer.produce("near", str(number).encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        found: list[bytes] = []

        def has_all() -> bool:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
            return len(found) == count

        eventually(has_all, "all to be read", WAIT_S)
        assert found == [str(number).encode() for number in range(count)]

    try:
        consumer.assign([TopicPartition("near", 0, 0)])
        reads(100)
        eventually(lambda: read_from() == (2, 1), "it to fetch from its rack's", WAIT_S)
        reads(100)
        brokers[1].stop()
        reads(100)
        eventually(lambda: read_from() == (1, 1), "it to fetch from the leader again", WAIT_S)
    finally:
        consumer.close()
