"""Transactions by librdkafka with its defaults: committed ones a second, one after the other and many open at once."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Producer

from benchmarks.clusters import DEADLINE_S, Cluster
from benchmarks.figures import Figure, alternate
from benchmarks.topics import delete_topic, make_topic

TRANSACTIONS: Final = {1: 300, 10: 300, 1000: 30}
"""Records of one transaction -> how many transactions a round has."""
OPEN: Final = 200
"""Transactional ids that have a transaction open at once."""
_TOPIC: Final = "in-transactions"
_PARTITIONS: Final = 3
_VALUE: Final = b"x" * 100


def measure(ours: Cluster, kafka: Cluster, rounds: int, share: float) -> list[Figure]:
    """Measure each size, with ``share`` of the transactions; a producer of its own for each cluster, warmed up."""
    producers: dict[str, Producer] = {}
    for cluster in (ours, kafka):
        make_topic(cluster, _TOPIC, _PARTITIONS, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "benchmark"})
        producer.init_transactions(DEADLINE_S)
        producers[cluster.name] = producer
        for records in TRANSACTIONS:
            _per_second(producer, records, max(1, int(TRANSACTIONS[records] * share)))
    found = alternate(
        rounds,
        ours,
        kafka,
        lambda cluster, _: [
            _per_second(producers[cluster.name], records, max(1, int(count * share)))
            for records, count in TRANSACTIONS.items()
        ],
    )
    producers.clear()
    (at_once,) = _open_at_once(ours, kafka, rounds, max(2, int(OPEN * share)))
    for cluster in (ours, kafka):
        delete_topic(cluster, _TOPIC)
    return [
        Figure(f"transactions of {records:,} records of 100 B, RF 3", "a second", *values, more_is_better=True)
        for records, values in zip(TRANSACTIONS, found, strict=True)
    ] + [at_once]


def _open_at_once(ours: Cluster, kafka: Cluster, rounds: int, count: int) -> list[Figure]:
    """Have as many producers begin and write before the first commits; each round all of them, one after the other."""
    producers: dict[str, list[Producer]] = {}
    for cluster in (ours, kafka):
        producers[cluster.name] = [
            Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"benchmark-{number}"})
            for number in range(count)
        ]
        for producer in producers[cluster.name]:
            producer.init_transactions(DEADLINE_S)
        _round(producers[cluster.name])
    found = alternate(rounds, ours, kafka, lambda cluster, _: [_round(producers[cluster.name])])
    return [
        Figure(
            f"transactions of 1 record of 100 B, {count} open at once, RF 3", "a second", *values, more_is_better=True
        )
        for values in found
    ]


def _round(producers: Sequence[Producer]) -> float:
    started = time.perf_counter()
    for number, producer in enumerate(producers):
        producer.begin_transaction()
        producer.produce(_TOPIC, _VALUE, partition=number % _PARTITIONS)
        producer.poll(0)
    for producer in producers:
        producer.commit_transaction(DEADLINE_S)
    return len(producers) / (time.perf_counter() - started)


def _per_second(producer: Producer, records: int, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        producer.begin_transaction()
        for number in range(records):
            producer.produce(_TOPIC, _VALUE, partition=number % _PARTITIONS)
        producer.commit_transaction(DEADLINE_S)
    return count / (time.perf_counter() - started)
