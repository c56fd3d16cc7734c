"""Transactions on whole brokers, in this process: what their coordinator is given, what it follows, how it goes."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkatool.broker.registration import controlled_stop
from kafkatool.broker.server import Broker
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    metadata,
    write_txn_markers,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ConfigChangeZnode, ConfigZnode, ProducerIdBlockZnode
from tests.broker.network.raw_client import wait_until
from tests.broker.test_dynamic_defaults import change
from tests.broker.test_server import client_of, config, create, describe
from tests.integration.isolation import values_of
from tests.raw_transactions import RawProducer

NONE = ErrorCode.NONE
PLACE = TopicPartition("t", 0)
LIMIT_S = 120.0
VERIFICATION = "transaction.partition.verification.enable"


def of_transactions(factor: int) -> dict[str, Any]:
    """Return settings of one partition of transactional ids, on so many brokers."""
    return {
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_replication_factor": str(factor),
        "transaction_state_log_min_isr": "1",
    }


def bootstrap(*brokers: Broker) -> str:
    return ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


@pytest.fixture
def broker(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> Iterator[Broker]:
    with Broker(config(zk_connect, tmp_path / "data", **of_transactions(1))) as made:
        with client_of(made) as client:
            wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        yield made


@pytest.mark.spec("TXN-30", "BRK-163")
def test_producers_with_a_transactional_id_get_theirs_from_the_same_blocks_as_those_without(
    broker: Broker, zk: ZooKeeper
) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    given: list[int] = []
    with client_of(broker) as client:
        for number in range(3):
            given.append(client.send(init_producer_id.API, 1, request).producer_id)
            with RawProducer(bootstrap(broker), f"id-{number}") as by:
                assert by.init() == NONE
                given.append(by.producer_id)
    node = zk.get(ProducerIdBlockZnode.PATH)
    assert node is not None and ProducerIdBlockZnode.decode(node.data) == (1, 0, 999)
    assert given == sorted(set(given)) and 0 <= given[0] < given[-1] <= 999


@pytest.mark.spec("TXN-80")
def test_verification_follows_the_requests_and_the_nodes_that_switch_it(broker: Broker, zk: ZooKeeper) -> None:
    names = iter(range(10_000))

    def not_added() -> int:
        """Write a batch into a partition that no transaction was given; return its code."""
        with RawProducer(bootstrap(broker), f"id-{next(names)}") as by:
            assert by.init() == NONE
            return by.send(PLACE, "not added")

    refused = ErrorCode.INVALID_TXN_STATE
    with client_of(broker) as client:
        assert create(client, PLACE.topic, 1, 1) == 0
        assert not_added() == refused, "by default it asks"
        for name in ("1", ""):  # of this broker, of all
            change(client, name, VERIFICATION, "false")
            wait_until(lambda: not_added() == NONE)
            change(client, name, VERIFICATION, None)
            wait_until(lambda: not_added() == refused)
        for value, told in (("false", NONE), ("true", refused)):  # as tools write that go by ZooKeeper
            zk.set(ConfigZnode.path("brokers", "1"), ConfigZnode.encode({VERIFICATION: value}), -1)
            zk.create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode("brokers/1"), sequential=True)
            wait_until(lambda told=told: not_added() == told)  # type: ignore[misc]


@pytest.mark.spec("TXN-16", "BRK-126")
def test_transactions_are_coordinated_elsewhere_before_the_sockets_of_a_controlled_stop_close(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = {
        number: Broker(
            config(zk_connect, tmp_path / str(number) / "data", number, **of_transactions(2)), log_prefix=str(number)
        )
        for number in (1, 2)
    }
    with brokers[1], brokers[2], client_of(brokers[1]) as first, client_of(brokers[2]) as second:
        clients = {1: first, 2: second}
        for client in clients.values():
            wait_until(lambda c=client: len(c.send(metadata.API, 1, MetadataRequest(topics=[])).brokers) == 2)  # type: ignore[misc]
        assert create(first, PLACE.topic, 1, 2) == 0
        both = bootstrap(*brokers.values())
        with RawProducer(both, "raw") as by:
            assert (by.init(), by.add(PLACE), by.send(PLACE, "raw")) == (NONE, NONE, NONE)
            library = Producer({"bootstrap.servers": both, "transactional.id": "library", "log_level": 0})
            library.init_transactions(LIMIT_S)
            library.begin_transaction()
            library.produce(PLACE.topic, "library", partition=0)
            assert library.flush(LIMIT_S) == 0
            old = by.coordinator
            for topic in (PLACE.topic, TRANSACTION_TOPIC):
                wait_until(lambda t=topic: len(describe(first, t).partitions[0].isr_nodes) == 2)  # type: ignore[misc]
            ask_to_move, seen = controlled_stop.ask_to_move_leaders, list[object]()

            def look_afterwards(*given: Any) -> None:
                ask_to_move(*given)
                wait_until(lambda: state_at(clients[3 - old]) == (NONE, "Ongoing"))
                wait_until(lambda: state_at(clients[old]) == (ErrorCode.NOT_COORDINATOR, ""))  # told by another request
                seen.append(codes_at(clients[old], by))
                seen.append(by.end(committed=True))

            monkeypatch.setattr(controlled_stop, "ask_to_move_leaders", look_afterwards)
            brokers[old].stop()
            monkeypatch.undo()
            assert seen == [{ErrorCode.NOT_COORDINATOR}, NONE], "its sockets were open"
            library.commit_transaction(LIMIT_S)
        heir = SimpleNamespace(bootstrap=bootstrap(brokers[3 - old]))
        wait_until(lambda: values_of(heir, PLACE.topic, "read_committed") == ["raw", "library"])


def state_at(client: Connection) -> tuple[int, str]:
    """Return what that broker says of the transactional id "raw"."""
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["raw"])
    (told,) = client.send(describe_transactions.API, 0, request).transactions
    return told.error_code, told.state


def codes_at(client: Connection, by: RawProducer) -> set[int]:
    """Ask that broker to renew, add to and end the producer's transaction."""
    who: Any = {"transactional_id": by.transactional_id, "producer_id": by.producer_id, "producer_epoch": by.epoch}
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic=PLACE.topic, partitions=[PLACE.partition])]
    added = client.send(
        add_partitions_to_txn.API, 3, add_partitions_to_txn.AddPartitionsToTxnRequest(**who, topics=topics)
    )
    ended = client.send(end_txn.API, 3, end_txn.EndTxnRequest(**who, committed=True))
    asked = init_producer_id.InitProducerIdRequest(**who, transaction_timeout_ms=60_000)
    renewed = client.send(init_producer_id.API, 4, asked)
    return {added.topics[0].partitions[0].error_code, ended.error_code, renewed.error_code}


@pytest.mark.spec("TXN-99", "TXN-92")
def test_markers_are_taken_in_both_versions_on_every_listener(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> None:
    """Coordinators use that of the brokers, an administrator who ends what hangs one of the clients'."""
    listeners: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
    }
    marker = write_txn_markers.TxnMarker(
        producer_id=7,
        producer_epoch=0,
        committed=False,
        topics=[write_txn_markers.WriteTxnMarkersTopic(topic=PLACE.topic, partitions=[PLACE.partition])],
        coordinator_epoch=0,
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    with Broker(config(zk_connect, tmp_path / "data", **listeners)) as broker:
        with client_of(broker) as client:
            wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
            assert create(client, PLACE.topic, 1, 1) == 0
            wait_until(lambda: describe(client, PLACE.topic).partitions[0].leader_id == 1)
        node = zk.get(BrokerZnode.path(1))
        assert node is not None
        endpoints = BrokerZnode.decode(1, node.data).endpoints
        assert {e.listener for e in endpoints} == {"PLAINTEXT", "CLIENTS"}
        for endpoint in endpoints:
            with Connection(
                endpoint.host, endpoint.port, client_id="test", timeout_ms=60_000, security=None
            ) as connection:
                for version in (0, 1):
                    (answer,) = connection.send(write_txn_markers.API, version, request).markers
                    assert answer.topics[0].partitions[0].error_code == NONE, (endpoint, version)
