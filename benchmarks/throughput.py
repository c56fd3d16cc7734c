"""Produce and consume throughput with librdkafka, the same client for both clusters."""

import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clusters import Cluster

PARTITIONS = 6


def produce(cluster: Cluster, topic: str, records: int, size_bytes: int, acks: str) -> float:
    """Records a second until the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    value = uuid.uuid4().bytes * (size_bytes // 16 + 1)
    value = value[:size_bytes]
    producer.list_topics(topic, timeout=30)
    started = time.perf_counter()
    for i in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=i % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if left or failed:
        raise RuntimeError(f"{cluster.name}: {left} records not sent, {len(failed)} failed: {failed[:1]}")
    return records / elapsed


def consume(cluster: Cluster, topic: str, records: int) -> float:
    """Records a second from the first fetch to the last record, partitions assigned by hand."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.list_topics(topic, timeout=30)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        got = 0
        deadline = time.monotonic() + 120
        started = time.perf_counter()
        while got < records:
            got += len(consumer.consume(10_000, 0.5))
            if time.monotonic() > deadline:
                raise RuntimeError(f"{cluster.name}: only {got} of {records} records came in 120 s")
        return records / (time.perf_counter() - started)
    finally:
        consumer.close()
