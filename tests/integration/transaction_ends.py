"""Where a partition ends for readers: less for read_committed, while a transaction is open."""

from confluent_kafka import Consumer, TopicPartition

from tests.raw_transactions import Brokers

LIMIT_S = 120.0


def end_of(cluster: Brokers, topic: str, partition: int, isolation: str) -> int:
    """Return where a reader of that isolation comes to an end."""
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "a", "isolation.level": isolation})
    try:
        return int(asking.get_watermark_offsets(TopicPartition(topic, partition), LIMIT_S)[1])
    finally:
        asking.close()
