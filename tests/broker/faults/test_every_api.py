"""Every API that is served can be answered with an error, late, never, or by closing; driven by the table of handlers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkatool import EmbeddedCluster
from kafkatool.broker.faults.rules import says
from kafkatool.broker.handlers.call import Served, load_handlers
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Array, Blob, Struct, Text, WireType, fields_of
from kafkatool.core.protocol.codec.types import NO_UUID, Fixed
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import Client
from tests.steady import STEADY

ERROR = ErrorCode.POLICY_VIOLATION  # no handler gives it unasked
every_api = pytest.mark.parametrize("served", load_handlers().values(), ids=lambda served: served.api.name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, options=STEADY) as cluster:
        cluster.create_topic("orders")
        yield cluster


@contextmanager
def client_of(cluster: EmbeddedCluster) -> Iterator[Client]:
    client = Client(int(cluster.bootstrap.rpartition(":")[2]))
    with client.socket:
        yield client


def smallest(cls: type[Any], version: int) -> Any:
    """Make a request that names one of each thing it can name."""
    if cls is TopicPartition:
        return TopicPartition("t", 0)
    given = {"replica_id": -1, "acks": 1}  # of a client, which waits for its answer
    return cls(**{f.name: given.get(f.name, _value(f.type, version)) for f in fields_of(cls) if f.exists(version)})


def _value(wire: WireType, version: int) -> Any:
    match wire:
        case Text():
            return "t"
        case Blob():
            return b""
        case Fixed(code="16s"):
            return NO_UUID
        case Array(element=element):
            return [_value(element, version)]
        case Struct(type=cls):
            return smallest(cls, version)
    return 0


@every_api
def test_with_an_error_in_every_version(cluster: EmbeddedCluster, served: Served) -> None:
    first, last = served.versions
    with cluster.faults.answer(served.api.name, ERROR) as fault:
        for version in range(first, last + 1):
            with client_of(cluster) as client:
                assert says(client.call(served.api, version, smallest(served.api.request, version)), ERROR), version
        assert fault.hits == last + 1 - first


@every_api
def test_with_an_error_after_it_was_carried_out(cluster: EmbeddedCluster, served: Served) -> None:
    version = served.versions[1]
    with cluster.faults.answer(served.api.key, ERROR, carried_out=True), client_of(cluster) as client:
        assert says(client.call(served.api, version, smallest(served.api.request, version)), ERROR)


@every_api
def test_late(cluster: EmbeddedCluster, served: Served) -> None:
    version = served.versions[1]
    with cluster.faults.delay(served.api.name, 150) as fault, client_of(cluster) as client:
        started = time.monotonic()
        answer = client.call(served.api, version, smallest(served.api.request, version))
        assert time.monotonic() - started >= 0.149 and fault.hits == 1
    assert isinstance(answer, served.api.response) and not says(answer, ERROR)


@every_api
@pytest.mark.parametrize("carried_out", [False, True])
def test_never(cluster: EmbeddedCluster, served: Served, carried_out: bool) -> None:
    version = served.versions[1]
    fault = cluster.faults.silence(served.api.name, carried_out=carried_out)
    with client_of(cluster) as client:
        client.send_request(served.api, version, smallest(served.api.request, version))
        fault.await_hits()
        client.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        client.socket.settimeout(60)
        fault.end()
        assert client.socket.recv(1) == b"", "who waits in vain is let go at the end"
    with client_of(cluster) as client:
        client.call(served.api, version, smallest(served.api.request, version))


@every_api
def test_by_closing(cluster: EmbeddedCluster, served: Served) -> None:
    version = served.versions[1]
    with cluster.faults.disconnect(served.api.name), client_of(cluster) as client:
        client.send_request(served.api, version, smallest(served.api.request, version))
        assert client.socket.recv(1) == b""


def test_all_of_them_at_once(cluster: EmbeddedCluster) -> None:
    with cluster.faults.disconnect("*"):
        for served in load_handlers().values():
            with client_of(cluster) as client:
                client.send_request(served.api, served.versions[1], smallest(served.api.request, served.versions[1]))
                assert client.socket.recv(1) == b"", served.api.name


def test_an_answer_without_a_place_for_the_error_is_none(cluster: EmbeddedCluster) -> None:
    with cluster.faults.answer("Metadata", ERROR), client_of(cluster) as client:
        client.send_request(metadata.API, 5, metadata.MetadataRequest(topics=None))
        assert client.socket.recv(1) == b""


@pytest.mark.parametrize(
    ("api", "error", "conditions", "words"),
    [
        ("Produse", ERROR, {}, "no API Produse is served: did you mean Produce?"),
        ("Produce", "NOT_LEADER_FOR_PARTITON", {}, "did you mean NOT_LEADER_FOR_PARTITION?"),
        ("Heartbeat", ERROR, {"topic": "orders"}, "Heartbeat does not say what topic"),
        ("Produce", ERROR, {"topic": "order"}, "no topic order in this cluster: did you mean orders?; of"),
        ("Produce", ERROR, {"topic": "else"}, "no topic else in this cluster; of one that comes later: to_come=True"),
        ("Produce", ERROR, {"topic": "orders", "partition": 1}, "no partition 1 of topic orders: it has 1, from 0 on"),
        ("Produce", ERROR, {"times": 0}, "times=0: a number is wanted, 1 or more"),
        ("Produce", ERROR, {"times": -1}, "times=-1: a number is wanted, 1 or more"),
        ("Produce", ERROR, {"times": "2"}, "times='2': a number is wanted, 1 or more"),
        ("Produce", ERROR, {"skip": -1}, "skip=-1: a number is wanted, 0 or more"),
        ("Produce", 9999, {}, "no error 9999"),
        ("Produce", ERROR, {"broker": "1"}, "no broker '1' in this cluster; it has 1"),
        ("Produce", ERROR, {"partition": 1}, "needs its topic"),
        ("Produce", ERROR, {"broker": 7}, "no broker 7 in this cluster; it has 1"),
    ],
)
def test_a_fault_that_can_never_be_met_is_refused(
    cluster: EmbeddedCluster, api: str, error: str | int, conditions: Any, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        cluster.faults.answer(api, error, **conditions)
    assert words in str(refused.value)


def test_a_fault_of_a_topic_that_is_made_later_meets_it(cluster: EmbeddedCluster) -> None:
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic="later")], allow_auto_topic_creation=False
    )
    with cluster.faults.answer("Metadata", ERROR, topic="later", to_come=True) as fault, client_of(cluster) as client:
        assert says(client.call(metadata.API, 5, asked), ERROR)
        assert fault.hits == 1


def test_a_delay_that_is_none_and_a_leader_of_an_unknown_topic_are_refused(cluster: EmbeddedCluster) -> None:
    for delay in (cluster.faults.delay, cluster.faults.slow_disk):
        with pytest.raises(RefusedError, match="delay_ms=-1: a number is wanted"):
            delay(1, -1)
    with pytest.raises(RefusedError, match=r"no topic order in this cluster: did you mean orders\?$"):
        cluster.faults.move_leader("order")
