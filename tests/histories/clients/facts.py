"""Facts that no record tells, asked by clients made for the question: ends, committed offsets, batches."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import fetch
from kafkatool.core.protocol.records.batches import iter_batches
from tests.access import OPEN
from tests.histories.clients.values import key_of, partition_of, topic_of

_TIMEOUT_S: Final = 15.0
_CONTROL, _TRANSACTIONAL = 1 << 5, 1 << 4
_CHUNK_BYTES: Final = 1 << 20

Batch = tuple[int, int, int, int, int, bool, bool]  # first, last, producer id, epoch, sequence, transactional, control


def _partitions(keys: Sequence[int]) -> list[TopicPartition]:
    return [TopicPartition(topic_of(key), partition_of(key)) for key in keys]


def ask_ends(bootstrap: str, keys: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return start and end of each key, as read_uncommitted sees them: else a transaction that hangs hides behind itself.

    Raises KafkaException, RuntimeError.
    """
    found: list[dict[int, int]] = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        asked = client.list_offsets(
            dict.fromkeys(_partitions(keys), spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        found.append({key_of(p.topic, p.partition): future.result().offset for p, future in asked.items()})
    if untold := [key for key in keys if found[0][key] < 0 or found[1][key] < 0]:
        raise RuntimeError(f"keys {untold} have no offsets, and no error")  # librdkafka does so while a leader is away
    return {key: (found[0][key], found[1][key]) for key in keys}


def ask_committed(bootstrap: str, group: str, keys: Sequence[int]) -> dict[int, int | None]:
    """Return the group's next offset of each key, None where it has none. Raises KafkaException."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        told = client.committed(_partitions(keys), _TIMEOUT_S)
    finally:
        client.close()
    for partition in told:
        if partition.error is not None:
            raise RuntimeError(f"{partition}: {partition.error}")
    return {key_of(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in told}


def read_batches(bootstrap: str, keys: Sequence[int], ends: Mapping[int, tuple[int, int]]) -> dict[int, list[Batch]]:
    """Read the headers of all batches of each key, raw, from its leader.

    Raises KafkaException, KafkatoolError, and RuntimeError where a key has no leader, or cannot be read to its end.
    """
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    view = client.list_topics(timeout=_TIMEOUT_S)
    found: dict[int, list[Batch]] = {}
    with contextlib.ExitStack() as stack:
        connections: dict[int, Connection] = {}
        for key in keys:
            leader = view.topics[topic_of(key)].partitions[partition_of(key)].leader
            if leader not in view.brokers:
                raise RuntimeError(f"key {key} has no leader")
            if leader not in connections:
                at = view.brokers[leader]
                connection = Connection(
                    at.host, at.port, client_id="batches", timeout_ms=int(_TIMEOUT_S * 1000), security=OPEN.brokers
                )
                connections[leader] = stack.enter_context(connection)
            found[key] = list(_batches(connections[leader], key, *ends[key]))
    return found


def _batches(connection: Connection, key: int, start: int, end: int) -> Iterator[Batch]:
    position = start
    while position < end:
        wanted = fetch.FetchRequestPartition(
            partition=partition_of(key), fetch_offset=position, partition_max_bytes=_CHUNK_BYTES
        )
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=_CHUNK_BYTES,
            isolation_level=0,
            topics=[fetch.FetchRequestTopic(topic=topic_of(key), partitions=[wanted])],
        )
        (answer,) = connection.send(fetch.API, 4, request).topics[0].partitions
        before = position
        for _, h in iter_batches(bytes(answer.records or b"")):  # type: ignore[arg-type]
            position = h.next_offset
            kinds = bool(h.attributes & _TRANSACTIONAL), bool(h.attributes & _CONTROL)
            yield h.base_offset, h.next_offset - 1, h.producer_id, h.producer_epoch, h.base_sequence, *kinds
        if position == before:  # what was read so far is no answer: a copy among the rest would have no label
            raise RuntimeError(f"key {key} cannot be read from {position} to {end}: {answer.error_code}")
