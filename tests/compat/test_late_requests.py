"""A commit, or a marker, that comes late, after its repeat and what was done next: here, and on Kafka as a control.

The protocol up to EndTxn 4 cannot tell it from a later transaction's own (KIP-890), and offsets have no order but the one
in which they come. docs/known-faults.md tells of both.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import api_versions, write_txn_markers
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.group_member import RawMember
from tests.compat.real_kafka import RealKafka
from tests.compat.test_transaction_tools import ONE_BROKER, make_topic
from tests.integration.isolation import values_of
from tests.raw_transactions import Brokers, RawProducer
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
NONE = ErrorCode.NONE
LIMIT_S = 120.0


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Brokers]:
    with EmbeddedCluster(1, directory=tmp_path / "cluster", options=LASTING) as running:
        yield running


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Brokers]:
    real_kafka.require("2.8.2")
    with RealKafka("2.8.2", tmp_path / "kafka", brokers=1, options=ONE_BROKER) as running:
        yield running


def stable_and_end(cluster: Brokers) -> tuple[int, int]:
    """Return where readers with read_committed, and all others, come to an end."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        asking = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "a", "isolation.level": isolation, "log_level": 0}
        )
        found.append(int(asking.get_watermark_offsets(Place("t", 0), 30)[1]))
        asking.close()
    return found[0], found[1]


def commit_late(cluster: Brokers) -> tuple[int, int]:
    """Deliver the first transaction's commit once more in the second; return what a second record of that and its own
    abort are answered."""
    make_topic(cluster)
    with (
        RawProducer(cluster.bootstrap, "id", timeout_ms=600_000) as producer,
        RawProducer(cluster.bootstrap, "id") as held_up,
    ):
        assert (producer.init(), producer.add(PLACE), producer.send(PLACE, "first")) == (NONE, NONE, NONE)
        held_up.producer_id, held_up.epoch = producer.producer_id, producer.epoch
        assert producer.end(committed=True) == NONE  # the repeat, over another connection
        assert (producer.add(PLACE), producer.send(PLACE, "second, to be aborted")) == (NONE, NONE)
        assert held_up.end(committed=True) == NONE  # taken for the second's own, by both
        after = ["first", "second, to be aborted"]
        eventually(lambda: values_of(cluster, "t", "read_committed") == after, "the second one's first half", LIMIT_S)
        told = producer.send(PLACE, "too late"), producer.end(committed=False)
        assert producer.lost == held_up.lost == 0, "nobody was hurt"
        return told


@pytest.mark.spec("TXN-84", "TXN-89", "TXN-90", "TXN-105", "TXN-106", "TXN-72")
def test_here_it_tears_the_later_one_its_producer_is_told_and_nothing_hangs(ours: Brokers) -> None:
    assert commit_late(ours) == (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE)
    stable, end = stable_and_end(ours)
    assert stable == end


@pytest.mark.slowest
@pytest.mark.spec("TXN-84", "TXN-105")
def test_on_kafka_2_8_the_rest_of_the_later_one_hangs_too(real: Brokers) -> None:
    assert commit_late(real) == (NONE, ErrorCode.INVALID_TXN_STATE)
    stable, end = stable_and_end(real)
    assert stable == end - 1  # readers stand still before the record that nobody will end


def commit_late_before_another_partition(cluster: Brokers) -> tuple[int, int, int]:
    """Deliver the first transaction's commit once more in the second, which then goes on in another topic and is aborted;
    return what that addition, its record and the abort are answered."""
    make_topic(cluster)
    make_topic(cluster, OTHER.topic)
    with (
        RawProducer(cluster.bootstrap, "id", timeout_ms=600_000) as producer,
        RawProducer(cluster.bootstrap, "id") as held_up,
    ):
        assert (producer.init(), producer.add(PLACE), producer.send(PLACE, "first")) == (NONE, NONE, NONE)
        held_up.producer_id, held_up.epoch = producer.producer_id, producer.epoch
        assert producer.end(committed=True) == NONE
        assert (producer.add(PLACE), producer.send(PLACE, "second, to be aborted")) == (NONE, NONE)
        assert held_up.end(committed=True) == NONE
        told = producer.add(OTHER), producer.send(OTHER, "to be aborted"), producer.end(committed=False)
        assert producer.lost == held_up.lost == 0, "nobody was hurt"
    read = ["first", "second, to be aborted"]
    eventually(lambda: values_of(cluster, "t", "read_committed") == read, "the second one's first half", LIMIT_S)
    eventually(lambda: values_of(cluster, OTHER.topic, "read_committed") == [], "the end of the rest", LIMIT_S)
    return told


@pytest.mark.spec("TXN-84", "TXN-89", "TXN-90", "TXN-105")
def test_a_producer_that_goes_on_in_another_partition_is_not_told_of_it(ours: Brokers) -> None:
    assert commit_late_before_another_partition(ours) == (NONE, NONE, NONE)


@pytest.mark.slowest
@pytest.mark.spec("TXN-84", "TXN-105")
def test_on_kafka_2_8_it_is_not_either(real: Brokers) -> None:
    assert commit_late_before_another_partition(real) == (NONE, NONE, NONE)


def deliver_marker_late(cluster: Brokers) -> list[str]:
    """Deliver the marker of a commit once more in the next transaction, by the connection that it was first sent over.

    Return what is read in the end; that transaction is aborted.
    """
    make_topic(cluster)
    port = int(cluster.bootstrap.rpartition(":")[2])

    def connect() -> Connection:
        made = Connection("127.0.0.1", port, client_id="broker-9-txn-marker-sender", timeout_ms=60_000, security=None)
        made.send(api_versions.API, 0, api_versions.ApiVersionsRequest())  # it is accepted
        return made

    def write(by: Connection, of: RawProducer) -> int:
        topic = write_txn_markers.WriteTxnMarkersTopic(topic=PLACE.topic, partitions=[PLACE.partition])
        marker = write_txn_markers.TxnMarker(
            producer_id=of.producer_id, producer_epoch=of.epoch, committed=True, topics=[topic], coordinator_epoch=0
        )
        request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        code: int = by.send(write_txn_markers.API, 0, request).markers[0].topics[0].partitions[0].error_code
        return code

    with RawProducer(cluster.bootstrap, "id", timeout_ms=600_000) as producer, connect() as first, connect() as again:
        assert (producer.init(), producer.add(PLACE), producer.send(PLACE, "first")) == (NONE, NONE, NONE)
        assert write(again, producer) == NONE
        assert producer.end(committed=True) == NONE
        assert (producer.add(PLACE), producer.send(PLACE, "to be aborted")) == (NONE, NONE)
        with contextlib.suppress(BrokerUnreachableError):  # the connection is closed
            assert write(first, producer) == NONE
        assert (producer.send(PLACE, "this too"), producer.end(committed=False)) == (NONE, NONE), "it is not told"
        assert producer.end(committed=False) == NONE  # its markers are written
        assert producer.lost == 0, "nobody was hurt"
    stable, end = stable_and_end(cluster)
    assert stable == end
    return values_of(cluster, "t", "read_committed")


@pytest.mark.spec("TXN-85", "TXN-105")
def test_a_marker_that_comes_late_ends_nothing(ours: Brokers) -> None:
    assert deliver_marker_late(ours) == ["first"]


@pytest.mark.slowest
@pytest.mark.spec("TXN-85", "TXN-105")
def test_on_kafka_2_8_it_ends_the_next_transaction_in_its_partition(real: Brokers) -> None:
    assert deliver_marker_late(real) == ["first", "to be aborted"]


def offsets_committed_late(cluster: Brokers) -> tuple[int, int]:
    """Return what a group's offset is when a commit of 1 is delivered again after one of 5: a member's, a producer's."""
    make_topic(cluster)
    port = int(cluster.bootstrap.rpartition(":")[2])
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "producers", "log_level": 0})
    (nothing,) = asking.committed([Place("t", 0)], LIMIT_S)  # Kafka makes the topic of offsets for who asks where
    assert nothing.offset < 0
    asking.close()
    with RawProducer(cluster.bootstrap, "id", timeout_ms=600_000) as producer:
        assert producer.init() == NONE
        for offsets in ([1], [5, 1]):
            assert producer.add_offsets("producers") == NONE
            told = [producer.commit_offsets("producers", "t", {0: ""}, each) for each in offsets]
            assert told == [{0: NONE}] * len(offsets)
            assert producer.end(committed=True) == NONE
        assert producer.lost == 0, "nobody was hurt"
    produced = RawMember(port, "producers", "t")
    eventually(lambda: produced.committed()[0] != -1, "the transaction's offset", LIMIT_S)
    member = RawMember(port, "members", "t")
    eventually(lambda: member.join() == NONE, "the group's coordinator", LIMIT_S)
    assert [member.sync(), member.commit(1), member.commit(5), member.commit(1)] == [NONE] * 4
    return member.committed()[0], produced.committed()[0]


@pytest.mark.spec("TXN-84", "GRP-47")
def test_an_offset_that_is_committed_late_takes_the_group_back(ours: Brokers) -> None:
    assert offsets_committed_late(ours) == (1, 1)


@pytest.mark.slowest
@pytest.mark.spec("TXN-84")
def test_on_kafka_2_8_it_does_so_too(real: Brokers) -> None:
    assert offsets_committed_late(real) == (1, 1)
