"""A real client reads a compacted topic: gaps between offsets, and batches without records, are nothing to stop at."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkatool.broker.server import Broker
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.test_server import config
from tests.waiting import eventually


@pytest.mark.slow
@pytest.mark.spec("BRK-167")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_librdkafka_reads_to_the_end(zk_connect: str, zk: ZooKeeper, tmp_path: Path, isolation: str) -> None:
    settings = config(zk_connect, tmp_path / "data", log_cleaner_backoff_ms="50")
    checkpoint = tmp_path / "data" / "cleaner-offset-checkpoint"
    with Broker(settings) as broker:
        bootstrap = f"127.0.0.1:{broker.port}"
        configs = {"cleanup.policy": "compact", "segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.01"}
        create_topic(zk, "t", {0: (1,)}, configs)
        for life in range(6):  # each producer's last batch stays, without its records
            producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
            for number in range(40):
                producer.produce("t", b"%d" % (life * 40 + number), b"k%d" % (number % 8))
                producer.flush(60)
            assert producer.flush(60) == 0
        eventually(lambda: checkpoint.exists() and int(checkpoint.read_text().split()[-1]) > 150, "the cleaning", 90)
        values = _read_to_end(bootstrap, isolation)
    assert len(values) < 200
    assert dict(values) == {b"k%d" % n: b"%d" % (232 + n) for n in range(8)}


def _read_to_end(bootstrap: str, isolation: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    found: list[tuple[bytes, bytes]] = []

    def at_end() -> bool:
        message = consumer.poll(1)
        if message is None:
            return False
        if (error := message.error()) is not None:
            assert error.name() == "_PARTITION_EOF", error
            return True
        found.append((message.key(), message.value()))
        return False

    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        eventually(at_end, "the end of the topic", 90)
    finally:
        consumer.close()
    return found
