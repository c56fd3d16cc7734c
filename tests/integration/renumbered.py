"""Copies of a record that an idempotent client sent again under a new number, which no broker can know for repeats.

A broker knows a repeat by producer id, producer epoch and sequence (BRK-91). librdkafka gives all of it up when a
batch overtakes another one on the way to a partition's new leader: it refuses nothing it was answered, but raises its
producer epoch and numbers whatever still waits for an answer anew, on every partition (its
rd_kafka_idemp_drain_epoch_bump). What an old leader had appended and could not acknowledge any more is then there
once in each epoch, on Kafka's brokers as on these. It takes a leader that stands still, or is cut off, under load.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Consumer

from kafkatool.core.client import Connection
from kafkatool.core.protocol import fetch
from kafkatool.core.protocol.records import BatchHeader, iter_batches

_TIMEOUT_MS = 30_000


class Copy(Protocol):
    """A record as found in a partition's log."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


def superseded(bootstrap: str, topic: str, copies: Sequence[Copy]) -> Sequence[Copy]:
    """All copies of one record but the newest.

    Asserts that the client, not the broker, wrote it again: in one partition, by one producer, each time in a later
    epoch.
    """
    ordered = sorted(copies, key=lambda copy: copy.offset)
    headers = _batches_at(bootstrap, topic, ordered)
    told = [
        (c.partition, c.offset, h.producer_id, h.producer_epoch, h.base_sequence)
        for c, h in zip(ordered, headers, strict=True)
    ]
    for before, after in itertools.pairwise(told):
        assert before[0] == after[0] and before[2] == after[2] and before[3] < after[3], (
            f"written twice (partition, offset, producer, epoch, sequence): {told}"
        )
    return ordered[:-1]


def _batches_at(bootstrap: str, topic: str, places: Sequence[Copy]) -> list[BatchHeader]:
    """The header of the batch that holds each place."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0})
    try:
        view = client.list_topics(topic, _TIMEOUT_MS / 1000)
    finally:
        client.close()
    found = []
    for place in places:
        leader = view.brokers[view.topics[topic].partitions[place.partition].leader]
        with Connection(leader.host, leader.port, client_id="check", timeout_ms=_TIMEOUT_MS) as connection:
            found.append(_batch_at(connection, topic, place))
    return found


def _batch_at(connection: Connection, topic: str, place: Copy) -> BatchHeader:
    wanted = fetch.FetchRequestPartition(
        partition=place.partition, fetch_offset=place.offset, partition_max_bytes=1 << 20
    )
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=50,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    (answer,) = connection.send(fetch.API, 4, request).topics[0].partitions
    assert answer.error_code == 0, answer
    data = bytes(answer.records or b"")  # type: ignore[arg-type]
    return next(header for _, header in iter_batches(data) if header.next_offset > place.offset)
