"""Faults of a cluster of several brokers: conditions, counts over all of them, what outlives a broker and what a test."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from kafkatool import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, RefusedError
from kafkatool.core.protocol.messages import fetch, list_offsets, metadata, offset_fetch
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.waiting import eventually

ERROR = ErrorCode.POLICY_VIOLATION
Topic = Callable[..., str]


def connect(cluster: EmbeddedCluster, broker: int, client_id: str = "test") -> Connection:
    port = cluster.status().brokers[broker - 1].port
    return Connection("127.0.0.1", port, client_id=client_id, timeout_ms=60_000, security=None)


def codes(connection: Connection, *topics: str) -> list[int]:
    """Return the codes of the topics in the broker's metadata, and see that its answer is of use besides."""
    named = [metadata.MetadataRequestTopic(topic=t) for t in topics]
    answer = connection.send(metadata.API, 5, metadata.MetadataRequest(topics=named, allow_auto_topic_creation=False))
    assert len(answer.brokers) == 3, "a client that learns of no broker is lost"
    found = {t.topic: t.error_code for t in answer.topics}
    return [found[t] for t in topics]


def test_what_a_request_names_besides_is_answered_as_ever(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    one, other = kafka_topic(partitions=2), kafka_topic()
    leader = kafka_cluster.leader(one)
    assert leader is not None
    with kafka_cluster.faults.answer("Metadata", ERROR, topic=one), connect(kafka_cluster, leader) as connection:
        assert codes(connection, one, other) == [ERROR, 0]
    wanted = list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsRequestTopic(
                topic=one,
                partitions=[list_offsets.ListOffsetsRequestPartition(partition=p, timestamp=-1) for p in (0, 1)],
            )
        ]
    )
    with connect(kafka_cluster, leader) as connection:
        before = connection.send(list_offsets.API, 5, wanted)
        with kafka_cluster.faults.answer("ListOffsets", ERROR, topic=one, partition=1):
            after = connection.send(list_offsets.API, 5, wanted)
        with kafka_cluster.faults.answer("ListOffsets", ERROR, topic=one, partition=1, carried_out=True):
            overlaid = connection.send(list_offsets.API, 5, wanted)
    said = {p.partition: p.error_code for t in before.topics for p in t.partitions}
    for answer in (after, overlaid):
        assert {p.partition: p.error_code for t in answer.topics for p in t.partitions} == {**said, 1: ERROR}


def test_the_nth_request_over_all_brokers(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    fault = kafka_cluster.faults.answer("Metadata", ERROR, topic=topic, skip=1, times=2)
    met = []
    for broker in (1, 2, 3, 1, 2, 3):
        with connect(kafka_cluster, broker) as connection:
            met += codes(connection, topic)
    assert met == [0, ERROR, ERROR, 0, 0, 0] and fault.hits == 2
    fault.end()
    assert fault.hits == 2


def test_one_client_and_one_broker(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    with kafka_cluster.faults.answer("Metadata", ERROR, topic=topic, client_id="unlucky", broker=2):
        for broker, client_id, code in ((2, "unlucky", ERROR), (2, "lucky", 0), (1, "unlucky", 0)):
            with connect(kafka_cluster, broker, client_id) as connection:
                assert codes(connection, topic) == [code]


def test_the_first_of_two_faults_has_what_both_meet(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    with connect(kafka_cluster, 1) as connection:
        first = kafka_cluster.faults.answer("Metadata", ERROR, topic=topic)
        second = kafka_cluster.faults.answer("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, topic=topic)
        assert codes(connection, topic) == [ERROR] and second.hits == 0
        first.end()
        assert codes(connection, topic) == [ErrorCode.LEADER_NOT_AVAILABLE] and second.hits == 1
        kafka_cluster.faults.clear()
        assert codes(connection, topic) == [0]


def test_a_fetch_of_a_session_is_met_by_its_topic(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    """A later fetch of a session names no topic, where nothing has changed."""
    topic = kafka_topic()
    leader = kafka_cluster.leader(topic)
    assert leader is not None

    def ask(session_id: int, session_epoch: int, partitions: list[int]) -> fetch.FetchResponse:
        wanted = [fetch.FetchRequestPartition(partition=p, fetch_offset=0, partition_max_bytes=99) for p in partitions]
        topics = [fetch.FetchRequestTopic(topic=topic, partitions=wanted)] if wanted else []
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=99, session_id=session_id, session_epoch=session_epoch, topics=topics
        )
        return connection.send(fetch.API, 11, request)

    with connect(kafka_cluster, leader) as connection:
        session = ask(0, 0, [0]).session_id
        assert session
        with kafka_cluster.faults.answer("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic):
            assert ask(session, 1, []).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            answer = ask(0, 0, [0])
        assert answer.error_code == answer.session_id == 0
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_FOR_PARTITION


@pytest.mark.slow
def test_a_broker_that_starts_is_told_of_what_stands(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    kafka_cluster.faults.answer("Metadata", ERROR, topic=topic)
    kafka_cluster.kill_broker(2)
    kafka_cluster.faults.disconnect("OffsetFetch")
    kafka_cluster.start_broker(2)
    with connect(kafka_cluster, 2) as connection:
        assert codes(connection, topic) == [ERROR]
        with pytest.raises(BrokerUnreachableError):
            connection.send(offset_fetch.API, 5, offset_fetch.OffsetFetchRequest(group_id="g", topics=None))


def test_faults_end_with_the_process_that_asked_for_them(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    asks = f"""
import os, kafkatool
cluster = kafkatool.EmbeddedCluster(directory={str(kafka_cluster.files.directory)!r})
fault = cluster.faults.answer("Metadata", {int(ERROR)}, topic={topic!r})
print("asked", flush=True)
input()
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", asks], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"asked\n"
        with connect(kafka_cluster, 1) as connection:
            assert codes(connection, topic) == [ERROR]
            other.stdin.write(b"\n")
            other.stdin.close()
            other.wait()
            eventually(lambda: codes(connection, topic) == [0], "the fault to end")


def test_a_frozen_broker_loses_its_faults_with_the_test_and_keeps_those_that_stand(
    kafka_cluster: EmbeddedCluster, kafka_topic: Topic
) -> None:
    topic = kafka_topic()
    ended = kafka_cluster.faults.answer("Metadata", ERROR, topic=topic)
    kafka_cluster.faults.answer("OffsetFetch", ERROR)
    frozen = kafka_cluster.faults.freeze(3)
    ended.end()
    with pytest.raises(RefusedError, match="broker 3 is frozen"):
        kafka_cluster.faults.silence("Heartbeat", broker=3)
    frozen.end()
    kafka_cluster.faults.silence("Heartbeat", broker=3)
    with connect(kafka_cluster, 3) as connection:
        eventually(lambda: codes(connection, topic) == [0], "the fault to end")
        request = offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
        assert connection.send(offset_fetch.API, 5, request).error_code == ERROR


@pytest.mark.slow
def test_a_broker_is_cut_off_in_both_directions(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    """Its registration goes, nobody hears it or is heard; when that ends, it comes back by itself."""
    with kafka_cluster.faults.cut_off(2):
        with connect(kafka_cluster, 1) as connection:
            eventually(lambda: len(live(connection)) == 2, "the others to miss it", 60)
        for at, sender in ((2, "test"), (1, "2"), (1, "broker-2-fetcher-0")):
            port = kafka_cluster.status().brokers[at - 1].port
            silent = Connection("127.0.0.1", port, client_id=sender, timeout_ms=300, security=None)
            with pytest.raises(BrokerUnreachableError), silent:
                live(silent)
    with connect(kafka_cluster, 2) as connection:
        eventually(lambda: len(live(connection)) == 3, "it to come back", 60)


@pytest.mark.parametrize("security", ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"])
def test_who_comes_to_a_broker_that_is_cut_off_hears_nothing(
    kafka_cluster_factory: Callable[..., EmbeddedCluster], security: str
) -> None:
    """Not even the first bytes of a handshake or a login, now or later; when that ends, others are served as ever."""
    cluster = kafka_cluster_factory(1, security=security)
    port = cluster.status().brokers[0].port
    with contextlib.ExitStack() as outside:
        with cluster.faults.cut_off(1, zookeeper=False):
            came = [outside.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(3)]
            for one in came:
                one.sendall(first_words(security))
        for one in came:
            with contextlib.suppress(ConnectionResetError):  # what it said was not even read
                assert one.recv(1) == b""
    with socket.create_connection(("127.0.0.1", port), 60) as again:
        again.sendall(first_words(security))
        assert again.recv(1)


def first_words(security: str) -> bytes:
    """Return what a client begins with: of TLS the ClientHello, else a request that needs no login."""
    if security.endswith("ssl"):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
        return outgoing.read()
    return b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"  # ApiVersions 0


@pytest.mark.slow
def test_a_broker_cut_off_from_its_kind_still_hears_clients(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    with kafka_cluster.faults.cut_off(2, clients=False), connect(kafka_cluster, 1) as connection:
        eventually(lambda: len(live(connection)) == 2, "the others to miss it", 60)
        with connect(kafka_cluster, 2) as zombie:
            assert len(live(zombie)) == 3, "it knows of nothing"


@pytest.mark.slow
def test_a_topic_waits_for_a_broker_that_comes_back(kafka_cluster: EmbeddedCluster) -> None:
    """The controller refuses it while it knows of two brokers; all three run, so it is asked again."""
    faults = kafka_cluster.faults
    with ThreadPoolExecutor() as thread:
        with faults.cut_off(2), faults.delay("CreateTopics", 1, client_id="kt-cluster") as asked:
            for other in (1, 3):
                with connect(kafka_cluster, other) as connection:
                    eventually(lambda c=connection: len(live(c)) == 2, "the others to miss it", 60)  # type: ignore[misc]
            making = thread.submit(kafka_cluster.create_topic, "waits", replication_factor=3)
            asked.await_hits(2)
        assert making.result(60) == "waits"
    with pytest.raises(RefusedError, match="larger than available brokers: 3") as refused:
        kafka_cluster.create_topic("too-wide", replication_factor=4)
    assert refused.type is RefusedError, "what a test suite is shown has a name it can import"


def live(connection: Connection) -> list[metadata.MetadataResponseBroker]:
    return connection.send(metadata.API, 5, metadata.MetadataRequest(topics=[])).brokers


def test_a_leader_is_moved_to_whom_it_is_said(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    for broker in (1, 2, 3, 3):
        assert kafka_cluster.faults.move_leader(topic, to=broker) == broker == kafka_cluster.leader(topic)
    with pytest.raises(RefusedError, match="cannot be led by broker 9: in sync are"):
        kafka_cluster.faults.move_leader(topic, to=9)
    with pytest.raises(RefusedError, match=r"^no topic nowhere in this cluster$"):
        kafka_cluster.faults.move_leader("nowhere")


def test_late_answers_come_at_the_end_of_the_fault(kafka_broker: EmbeddedCluster) -> None:
    with connect(kafka_broker, 1, "late") as connection:
        fault = kafka_broker.faults.delay("Metadata", 50_000, client_id="late")
        threading.Timer(1, fault.end).start()
        begin = time.monotonic()
        connection.send(metadata.API, 5, metadata.MetadataRequest(topics=[]))
        assert time.monotonic() - begin < 45


def test_a_full_broker_that_the_test_started_again_is_not_waited_for(
    kafka_cluster: EmbeddedCluster, kafka_topic: Topic
) -> None:
    topic = kafka_topic()
    leader = kafka_cluster.leader(topic)
    assert leader is not None
    fault = kafka_cluster.faults.fill_disk(leader)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"x")
    producer.flush()
    eventually(lambda: kafka_cluster.status().brokers[leader - 1].pid is None, "the broker to end")
    fault.end()
    kafka_cluster.start_broker(leader)
    begin = time.monotonic()
    kafka_cluster.restore()
    assert time.monotonic() - begin < 55


@pytest.mark.slow
def test_a_broker_that_was_killed_as_it_stood_still_can_be_told_again(kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.faults.freeze(2)
    kafka_cluster.kill_broker(2)
    kafka_cluster.start_broker(2)
    with kafka_cluster.faults.answer("Metadata", ERROR, broker=2, client_id="nobody"):
        pass


def test_who_may_ask_for_faults(kafka_broker: EmbeddedCluster) -> None:
    assert kafka_broker.files.fault_socket(1).stat().st_mode & 0o077 == 0
