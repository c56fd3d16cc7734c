"""Produce and fetch throughput with librdkafka, the same client with the same settings for both clusters.

Client and brokers share the machine's cores, as they do on a laptop: what the client costs is in both columns.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clusters import Cluster, wait_for
from benchmarks.figures import Figure, alternate
from benchmarks.topics import delete_topic, make_topic

PARTITIONS: Final = 6
_TIMEOUT_S: Final = 180


class Load(NamedTuple):
    """One topic's worth of records."""

    replication_factor: int
    acks: str
    size_bytes: int
    records: int

    @property
    def title(self) -> str:
        size = "1 KB" if self.size_bytes == 1000 else f"{self.size_bytes} B"
        return f"{size}, RF {self.replication_factor}"


LOADS: Final = (
    Load(1, "1", 100, 500_000),
    Load(3, "all", 100, 500_000),
    Load(1, "1", 1000, 100_000),
    Load(3, "all", 1000, 100_000),
)
WARM_UP_ROUNDS: Final = 3
"""Of the replicated load of small records, not measured: the JVM compiles what it will need."""


def measure(ours: Cluster, kafka: Cluster, rounds: int, share: float) -> list[Figure]:
    """``share`` of each load's records, on a topic made for the round and deleted after it."""
    loads = [load._replace(records=int(load.records * share)) for load in LOADS]
    alternate(WARM_UP_ROUNDS, ours, kafka, lambda cluster, _: _run(cluster, loads[1], "warm-up"))
    figures = []
    for load in loads:
        produced, consumed = alternate(
            rounds,
            ours,
            kafka,
            lambda cluster, number, load=load: _run(cluster, load, f"load-{number}"),  # type: ignore[misc]
        )
        figures.append(Figure(f"produce {load.title}, acks={load.acks}", "records/s", *produced, more_is_better=True))
        figures.append(Figure(f"fetch {load.title}", "records/s", *consumed, more_is_better=True))
    return figures


def _run(cluster: Cluster, load: Load, prefix: str) -> Sequence[float]:
    topic = f"{prefix}-{load.replication_factor}-{load.size_bytes}"
    make_topic(cluster, topic, PARTITIONS, load.replication_factor)
    try:
        return produce(cluster, topic, load), consume(cluster, topic, load.records)
    finally:
        delete_topic(cluster, topic)


def produce(cluster: Cluster, topic: str, load: Load, client: Mapping[str, str] | None = None) -> float:
    """Records a second until the last acknowledgement. Raises RuntimeError when one failed.

    ``client``: how it gets in, where that is not by the cluster's bootstrap.
    """
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": load.acks,
            "linger.ms": 5,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
            **(client or {}),
        }
    )
    value = os.urandom(load.size_bytes)
    for partition in range(PARTITIONS):  # connections, and the followers' first fetch, are not part of the rate
        producer.produce(topic, value, partition=partition)
    left = producer.flush(_TIMEOUT_S)
    started = time.perf_counter()
    for number in range(load.records - PARTITIONS):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    left += producer.flush(_TIMEOUT_S)
    elapsed = time.perf_counter() - started
    if left or failed:
        raise RuntimeError(f"{cluster.name}: {left} records not sent, {len(failed)} failed: {failed[:1]}")
    return (load.records - PARTITIONS) / elapsed


def consume(cluster: Cluster, topic: str, records: int, client: Mapping[str, str] | None = None) -> float:
    """Records a second from the assignment of all partitions to the last record. Raises RuntimeError."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,  # else it idles for a second whenever its own queue has been full
            **(client or {}),
        }
    )
    try:
        consumer.list_topics(topic, timeout=30)
        got = 0

        def all_there() -> bool:
            nonlocal got
            messages = consumer.consume(10_000, 0.5)
            if error := next((e for m in messages if (e := m.error()) is not None), None):
                raise RuntimeError(f"{cluster.name}: {error}")
            got += len(messages)
            return got >= records

        started = time.perf_counter()
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        wait_for(all_there, f"{cluster.name}: all {records} records fetched", poll_s=0)
        return records / (time.perf_counter() - started)
    finally:
        consumer.close()
