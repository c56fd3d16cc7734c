"""Produce over a socket: layouts, codes by version, acks 0."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.handlers.served import load_handlers
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.produce import API, ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import Clock, World, world
from tests.broker.storage.batch_builders import batch

ZSTD = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock()) as made:
        made.lead()
        yield made


@pytest.fixture
def client(broker: World) -> Iterator[Client]:
    handlers = {key: s for key, s in load_handlers().items() if key == 0}
    context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
    with broker_of(handlers, context) as made:
        yield made


def request(records: bytearray | None, *, acks: int = 1, topic: str = "t") -> ProduceRequest:
    partition = ProduceRequestPartition(partition=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceRequestTopic(topic=topic, partitions=[partition])])


def codes(client: Client, version: int, message: ProduceRequest) -> list[int]:
    response = client.call(API, version, message)
    return [p.error_code for t in response.topics for p in t.partitions]


@pytest.mark.spec("BRK-86", "BRK-87", "BRK-162")
@pytest.mark.parametrize("version", range(3, 9))
def test_offsets_come_back_in_every_version(client: Client, version: int) -> None:
    client.call(API, version, request(batch(2)))
    answer = client.call(API, version, request(batch(2))).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2, -1)
    assert answer.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.spec("BRK-155")
@pytest.mark.parametrize("version", range(3))
def test_the_announced_old_versions_are_refused_per_partition(client: Client, version: int) -> None:
    assert codes(client, version, request(batch())) == [35]


@pytest.mark.spec("BRK-84")
def test_no_batch_and_unknown_codecs_are_refused(client: Client) -> None:
    assert codes(client, 7, request(None)) == [2]
    assert codes(client, 6, request(batch(attributes=ZSTD))) == [76]


@pytest.mark.spec("BRK-158")
def test_a_failed_disk_is_told_in_words_the_client_knows(broker: World, client: Client) -> None:
    tp = TopicPartition("t", 0)
    broker.logs.take_offline(broker.partition(tp).log.directory.parent, OSError("gone"))
    broker.scheduler.run()
    assert codes(client, 3, request(batch())) == [6]
    assert codes(client, 4, request(batch())) == [56]


@pytest.mark.spec("BRK-87", "BRK-82")
def test_acks_0_is_not_answered_and_a_failure_ends_the_connection(broker: World, client: Client) -> None:
    client.send_request(API, 5, request(batch(3), acks=0))
    assert client.call(API, 5, request(batch())).topics[0].partitions[0].base_offset == 3
    client.send_request(API, 5, request(batch(), acks=0, topic="unknown"))
    assert client.socket.recv(1) == b""


@pytest.mark.spec("BRK-82")
def test_invalid_acks(client: Client) -> None:
    assert codes(client, 5, request(batch(), acks=3)) == [21]
