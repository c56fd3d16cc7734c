"""What readers of either isolation see of a topic; for read_committed it ends before what is open."""

from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.integration import load
from tests.raw_transactions import Brokers
from tests.waiting import eventually

ISOLATIONS: Final = ("read_committed", "read_uncommitted")
LIMIT_S: Final = 120.0


def values_of(cluster: Brokers, topic: str, isolation: str, partitions: int = 1) -> list[str]:
    """Read to the end of each partition, as that isolation sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[str] = []
    ended = 0

    def read() -> bool:
        nonlocal ended
        message = consumer.poll(1)
        if message is None:
            return False
        if message.error() is None:
            found.append(message.value().decode())
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
        return ended == partitions

    try:
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        eventually(read, "the end of the topic", LIMIT_S)
    finally:
        consumer.close()
    return found


def end_of(cluster: Brokers, topic: str, partition: int, isolation: str) -> int:
    """Return where a reader of that isolation comes to an end."""
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "a", "isolation.level": isolation})
    try:
        return load.end_of(asking, TopicPartition(topic, partition))
    finally:
        asking.close()
