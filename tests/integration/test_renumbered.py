"""What counts as a copy that the client left behind, shown on a broker that takes what it is sent."""

import time
import uuid
from collections.abc import Iterator

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import list_offsets, produce
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import Found, await_in_sync, make_topic
from tests.integration.renumbered import superseded
from tests.waiting import eventually

_PRODUCER = 4711


@pytest.fixture
def connection_to_topic(kafka_cluster: EmbeddedCluster) -> Iterator[tuple[Connection, str]]:
    """Connect to the leader of an empty partition, which has heard of it; return its topic, too."""
    topic = f"renumbered-{uuid.uuid4().hex[:8]}"
    with ZooKeeper(kafka_cluster.zookeeper) as zk:
        make_topic(zk, topic, 1, 1)
        await_in_sync(zk, [topic])
        leader = read_cluster(zk, [topic]).states[TopicPartition(topic, 0)].leader_and_isr.leader
    port = next(b.port for b in kafka_cluster.status().brokers if b.id == leader)
    with Connection("127.0.0.1", port, client_id="test", timeout_ms=60_000, security=None) as connection:
        eventually(lambda: leads(connection, topic), "the leader to know that it is", 90)
        yield connection, topic


def leads(connection: Connection, topic: str) -> bool:
    """Tell whether the broker answers for the partition: ZooKeeper says who leads before that broker is told."""
    asked = list_offsets.ListOffsetsRequestPartition(partition=0, timestamp=-1)
    topics = [list_offsets.ListOffsetsRequestTopic(topic=topic, partitions=[asked])]
    (answer,) = (
        connection.send(list_offsets.API, 1, list_offsets.ListOffsetsRequest(topics=topics)).topics[0].partitions
    )
    return answer.error_code == ErrorCode.NONE


def write(connection: Connection, topic: str, epoch: int, sequence: int) -> tuple[int, ErrorCode]:
    """Append the same record under that number; return its offset."""
    now_ms = int(time.time() * 1000)  # retention takes what is of 1970
    batch = encode_batch(
        [Record(0, now_ms, b"7", b"value-7")], producer_id=_PRODUCER, producer_epoch=epoch, base_sequence=sequence
    )
    partition = produce.ProduceRequestPartition(partition=0, records=batch)
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=60_000, topics=[produce.ProduceRequestTopic(topic=topic, partitions=[partition])]
    )
    (answer,) = connection.send(produce.API, 5, request).topics[0].partitions
    return answer.base_offset, ErrorCode(answer.error_code)


@pytest.mark.spec("BRK-91")
def test_a_record_under_two_producer_epochs_was_renumbered_and_under_one_it_is_the_brokers_fault(
    kafka_cluster: EmbeddedCluster, connection_to_topic: tuple[Connection, str]
) -> None:
    connection, topic = connection_to_topic
    assert write(connection, topic, epoch=0, sequence=0) == (0, ErrorCode.NONE)
    assert write(connection, topic, epoch=0, sequence=0) == (0, ErrorCode.NONE)  # a repeat: it is there already
    assert write(connection, topic, epoch=0, sequence=2)[1] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(connection, topic, epoch=1, sequence=0) == (1, ErrorCode.NONE)
    assert write(connection, topic, epoch=1, sequence=1) == (2, ErrorCode.NONE)
    first, second, third = (Found(0, offset, 7, b"value-7") for offset in range(3))
    assert superseded(kafka_cluster.bootstrap, topic, [[second, first]]) == [first]
    with pytest.raises(AssertionError, match="written twice"):
        superseded(kafka_cluster.bootstrap, topic, [[second, third]])
