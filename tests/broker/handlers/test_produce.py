"""Produce over a socket: layouts, codes by version, acks 0."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.produce import API, ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch
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


@pytest.mark.spec("BRK-85")
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("version", range(3, 9))
def test_records_without_a_key_on_a_compacted_topic_are_refused_for_good_and_named(
    broker: World, client: Client, version: int, codec: int
) -> None:
    """As Kafka 2.8.2 answers in these versions: clients repeat a batch that is called corrupt until their time is up."""
    broker.logs.update_topic_config("t", {"cleanup.policy": "compact"})
    records = encode_batch([Record(i, 1000, key, b"v") for i, key in enumerate([b"a", None, b"b", None])], codec=codec)
    answer = client.call(API, version, request(records)).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [e.batch_index for e in answer.record_errors] == ([1, 3] if version == 8 else [])
    assert ("without a key" in answer.error_message) if version == 8 else answer.error_message is None


@pytest.mark.spec("BRK-85")
def test_records_of_a_wrong_time_are_named_and_decide_the_code(broker: World, client: Client) -> None:
    limit = {"message.timestamp.difference.max.ms": "60000", "cleanup.policy": "compact"}
    broker.logs.update_topic_config("t", limit)
    now_ms = int(time.time() * 1000)
    records = encode_batch([Record(0, now_ms, b"k", b""), Record(1, now_ms, None, b""), Record(2, 5, b"k", b"")])
    answer = client.call(API, 8, request(records)).topics[0].partitions[0]
    assert (answer.error_code, [e.batch_index for e in answer.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1, 2])


@pytest.mark.spec("BRK-85")
def test_an_answer_names_no_more_records_than_a_client_needs(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"cleanup.policy": "compact"})
    records = encode_batch([Record(i, 1000, None, b"") for i in range(20_000)], codec=1)
    answer = client.call(API, 8, request(records)).topics[0].partitions[0]
    assert (answer.error_code, len(answer.record_errors)) == (ErrorCode.INVALID_RECORD, 1000)


@pytest.mark.spec("TXN-73")
@pytest.mark.parametrize("transactional_id", [None, "mine"])
@pytest.mark.parametrize("version", range(3, 9))
def test_a_transactional_batch_is_refused_at_once_and_nothing_is_written(
    broker: World, client: Client, version: int, transactional_id: str | None
) -> None:
    for producer in [(7, 0, 0), (-1, -1, -1)]:
        message = request(batch(attributes=TRANSACTIONAL, producer=producer))
        message = replace(message, transactional_id=transactional_id)
        assert codes(client, version, message) == [ErrorCode.INVALID_TXN_STATE]
    log = broker.partition().log
    assert (log.log_end_offset, log.last_stable_offset, log.open_transactions()) == (0, 0, [])
    assert codes(client, version, request(batch())) == [0]


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


@pytest.mark.spec("BRK-84", "BRK-86")
def test_of_two_batches_for_one_partition_none_is_taken(broker: World, client: Client) -> None:
    """Kafka appends the last one and acknowledges both."""
    once = request(batch())
    for topics in (once.topics * 2, once.topics * 3, [*once.topics, *request(None).topics]):
        answers = client.call(API, 8, replace(once, topics=topics)).topics
        assert {p.error_code for t in answers for p in t.partitions} == {ErrorCode.INVALID_REQUEST}
    assert broker.partition().log.log_end_offset == 0
