"""Copies of a record that an idempotent client sent again under a new number, which no broker can know for repeats.

A broker knows a repeat by producer id, producer epoch and sequence (BRK-91). librdkafka gives all of it up when a
batch overtakes another one on the way to a partition's new leader and is refused there: what was answered stands, but
whatever still waits for an answer, on every partition, is numbered anew in a producer epoch one higher
(rd_kafka_idemp_drain_epoch_bump; the producer id stays). What an old leader had appended and could not acknowledge any
more is then there once in each epoch, on Kafka's brokers as on these. It takes a leader that stands still, or is cut
off, under load.

What this cannot tell is whether that refusal was right: of a wrong one the client makes the same. (Of one that hits
the oldest batch under way it makes a fatal error, which the load counts.) How many copies there were is printed.
"""

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import Consumer

from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import fetch
from kafkatool.core.protocol.records.batches import BatchHeader, iter_batches
from tests.access import OPEN, Access
from tests.waiting import eventually

_TIMEOUT_MS = 30_000

Place = tuple[int, int]
"""Partition and offset."""


class Copy(Protocol):
    """A record as found in a partition's log."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


def superseded(bootstrap: str, topic: str, records: Iterable[Sequence[Copy]], access: Access = OPEN) -> list[Copy]:
    """Return all but the newest of the copies of each of these records.

    Asserts that the client wrote it again: in one partition, by one producer, each time in a later epoch. That none of
    those was acknowledged is the caller's to see.
    """
    ordered = [sorted(copies, key=lambda copy: copy.offset) for copies in records]
    places = [(c.partition, c.offset) for copies in ordered for c in copies]
    headers = _batches_at(bootstrap, topic, places, access)
    for copies in ordered:
        told = [
            (c.partition, c.offset, h.producer_id, h.producer_epoch, h.base_sequence)
            for c in copies
            for h in [headers[c.partition, c.offset]]
        ]
        for before, after in itertools.pairwise(told):
            assert before[0] == after[0] and before[2] == after[2] and before[3] < after[3], (
                f"written twice (partition, offset, producer, epoch, sequence): {told}"
            )
    return [copy for copies in ordered for copy in copies[:-1]]


def _batches_at(bootstrap: str, topic: str, places: Sequence[Place], access: Access) -> Mapping[Place, BatchHeader]:
    """Return the header of the batch that holds each place; asked again where the leader changes meanwhile."""
    found: dict[Place, BatchHeader] = {}
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0, **access.librdkafka})

    def all_found() -> bool:
        view = client.list_topics(topic, _TIMEOUT_MS / 1000)
        with contextlib.ExitStack() as stack:
            connections: dict[int, Connection] = {}
            for place in places:
                leader = view.topics[topic].partitions[place[0]].leader
                if place in found or leader not in view.brokers:
                    continue
                if leader not in connections:
                    at = view.brokers[leader]
                    connection = Connection(
                        at.host, at.port, client_id="check", timeout_ms=_TIMEOUT_MS, security=access.brokers
                    )
                    connections[leader] = stack.enter_context(connection)
                if header := _batch_at(connections[leader], topic, place):
                    found[place] = header
        return len(found) == len(set(places))

    try:
        eventually(all_found, "the batches of records that are there twice", 60)
    finally:
        client.close()
    return found


def _batch_at(connection: Connection, topic: str, place: Place) -> BatchHeader | None:
    partition, offset = place
    wanted = fetch.FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=50,
        min_bytes=1,
        max_bytes=1,  # one batch comes all the same, whole
        isolation_level=0,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    (answer,) = connection.send(fetch.API, 4, request).topics[0].partitions
    data = bytes(answer.records or b"")  # type: ignore[arg-type]
    return next((header for _, header in iter_batches(data) if header.next_offset > offset), None)
