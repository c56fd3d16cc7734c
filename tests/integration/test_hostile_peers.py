"""Peers that are slow, silent, or too many: each harms itself alone, and goes in the end."""

import contextlib
import resource
import socket
import threading
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages import fetch, metadata
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.network.raw_client import RawClient
from tests.faults.proxy import Proxy
from tests.integration.load import Load, await_in_sync, check_records, make_topic
from tests.steady import STEADY
from tests.waiting import eventually

_IDLE_MS = 20_000  # so that an honest client, which stands still with a busy machine, is not taken for idle
_MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    options = {"connections.max.idle.ms": str(_IDLE_MS), "num.io.threads": "2", "num.network.threads": "1"}
    with EmbeddedCluster(brokers=1, options=options | STEADY) as made:
        with ZooKeeper(made.zookeeper) as zk:
            for topic in ("big", "quiet"):
                make_topic(zk, topic, 1, 1)
            # A client that names a group has the offsets topic made: its files are not to come while others count files.
            first = Consumer({"bootstrap.servers": made.bootstrap, "group.id": "first"})
            first.committed([TopicPartition("big", 0)], timeout=60)
            first.close()
            await_in_sync(zk)
        load = Load(made.bootstrap, "big", records_per_step=500)
        load.goes_on(30_000)
        load.stop()
        yield made


@pytest.fixture
def port(cluster: EmbeddedCluster) -> int:
    return cluster.status().brokers[0].port


@pytest.fixture
def process(cluster: EmbeddedCluster) -> psutil.Process:
    return psutil.Process(cluster.status().brokers[0].pid)


def ask(connection: Connection) -> int:
    return len(connection.send(metadata.API, 5, metadata.MetadataRequest(topics=None)).topics)


def fetching(topic: str, correlation_id: int, *, max_wait_ms: int = 0, max_bytes: int = 10 * _MEGABYTE) -> bytes:
    wanted = fetch.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    return encode_request(fetch.API, 4, correlation_id, "hostile", request)


def peers_of(process: psutil.Process, port: int) -> set[int]:
    """Return the ports its clients have."""
    taken = process.net_connections("tcp")
    return {c.raddr.port for c in taken if c.laddr.port == port and c.status != psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.spec("BRK-13", "BRK-16", "BRK-18")
def test_clients_that_ask_for_much_and_read_nothing_cost_little_and_are_closed_as_idle(
    port: int, process: psutil.Process
) -> None:
    with (
        Connection("127.0.0.1", port, client_id="honest", timeout_ms=60_000, security=None) as honest,
        contextlib.ExitStack() as held,
    ):
        before, deaf_ports = process.memory_info().rss, set[int]()
        deaf = [RawClient(port, receive_buffer_bytes=4096) for _ in range(20)]
        for client in deaf:
            held.callback(client.close)
            deaf_ports.add(client.socket.getsockname()[1])
            client.socket.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                client.socket.sendall(b"".join(fetching("big", i) for i in range(1000)))
            ask(honest)
        assert process.memory_info().rss - before < 50 * _MEGABYTE

        def are_gone() -> bool:
            ask(honest)
            return not deaf_ports & peers_of(process, port)

        eventually(are_gone, "the deaf to be closed", 150)


@pytest.mark.slow
@pytest.mark.spec("BRK-18")
def test_a_peer_that_vanished_without_a_word_is_closed_as_idle(port: int, process: psutil.Process) -> None:
    others = peers_of(process, port)
    with (
        Proxy(port) as proxy,
        Connection("127.0.0.1", proxy.port, client_id="gone", timeout_ms=60_000, security=None) as gone,
    ):
        ask(gone)
        came = peers_of(process, port) - others
        assert came
        proxy.silence()
        eventually(lambda: not came & peers_of(process, port), "it to be closed", 150)


@pytest.mark.spec("BRK-13", "BRK-16")
def test_parked_requests_of_many_leave_the_handlers_free_and_keep_the_order_of_each(port: int) -> None:
    with (
        Connection("127.0.0.1", port, client_id="honest", timeout_ms=60_000, security=None) as honest,
        contextlib.ExitStack() as held,
    ):
        waiting = [RawClient(port) for _ in range(20)]
        for client in waiting:
            held.callback(client.close)
            client.socket.settimeout(60)
            # The second waits behind the first, though it could be answered at once.
            client.socket.sendall(
                fetching("quiet", 1, max_wait_ms=1000) + fetching("big", 2, max_bytes=1) + fetching("quiet", 3)
            )
        for _ in range(20):
            assert ask(honest) >= 2
        for client in waiting:
            answered = [decode_response(fetch.API, 4, client.receive())[0] for _ in range(3)]
            assert answered == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.spec("BRK-18", "BRK-97")
def test_a_fetch_of_a_client_that_is_gone_is_not_parked_for_weeks(port: int, process: psutil.Process) -> None:
    descriptors = process.num_fds()
    for number in range(300):
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(fetching("quiet", number, max_wait_ms=2**31 - 1))
    with contextlib.closing(RawClient(port)) as patient:
        patient.socket.settimeout(60)
        patient.socket.sendall(fetching("quiet", 1, max_wait_ms=2**31 - 1))
        assert decode_response(fetch.API, 4, patient.receive())[0] == 1, "an answer in time, not a closed connection"
    eventually(lambda: process.num_fds() <= descriptors, "the descriptors to come back", 150)


@pytest.mark.slow
@pytest.mark.spec("BRK-7")
def test_a_flood_of_connections_leaves_descriptors_to_the_logs_and_is_over_when_it_is_over(
    cluster: EmbeddedCluster, port: int, process: psutil.Process
) -> None:
    limits = process.rlimit(resource.RLIMIT_NOFILE)
    with ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, "flood", 1, 1)
        await_in_sync(zk, ["flood"])
    load = Load(cluster.bootstrap, "flood", idempotent=True, records_per_step=2)
    try:
        load.goes_on(50)
        with contextlib.ExitStack() as held:
            process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 60, limits[1]))
            held.callback(process.rlimit, resource.RLIMIT_NOFILE, limits)
            for _ in range(200):
                held.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            load.goes_on(100)
            with ZooKeeper(cluster.zookeeper) as zk:  # logs are opened meanwhile
                make_topic(zk, "new", 2, 1)
                await_in_sync(zk, ["new"])
        with Connection("127.0.0.1", port, client_id="honest", timeout_ms=60_000, security=None) as honest:
            assert ask(honest) >= 3
        load.goes_on(50)
    finally:
        load.stop()
    check_records(cluster, "flood", 1, load, once=True)


@pytest.mark.spec("BRK-7", "BRK-20")
def test_clients_that_come_and_go_at_once_leave_nothing(port: int, process: psutil.Process) -> None:
    with Connection("127.0.0.1", port, client_id="honest", timeout_ms=60_000, security=None) as honest:
        ask(honest)
        descriptors, threads = process.num_fds(), process.num_threads()

        def come_and_go() -> None:
            for number in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as client:
                    client.sendall(fetching("big", number)[: number % 80])

        crowd = [threading.Thread(target=come_and_go) for _ in range(4)]
        for one in crowd:
            one.start()
        while any(one.is_alive() for one in crowd):
            ask(honest)
        for one in crowd:
            one.join()
        eventually(lambda: process.num_fds() <= descriptors, "the descriptors to come back", 60)
        # The broker itself has a thread more for a moment, while it writes its gauges.
        eventually(lambda: process.num_threads() <= threads, "the threads to be as many as before")
