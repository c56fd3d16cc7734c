"""Bytes no client should send, and clients that stand still: the broker goes on, the others notice nothing.

KAFKATOOL_WILD_FRAMES=100000 makes the long form longer.
"""

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.network.raw_client import frame, serving
from tests.core.protocol.apis import APIS
from tests.integration.load import Load, await_in_sync, check_records, make_topic
from tests.integration.random_requests import CONTROL_KEYS, RandomRequests
from tests.steady import STEADY
from tests.waiting import eventually

TOPIC, OTHER = "faults", "other"
_PATIENCE_S = 0.02  # for an answer to a wild request; many are never answered
_MEGABYTE = 1_000_000
_PARTITION_BYTES = 20_000
"""More than one takes: a wild request may be a right one, by which a topic gets 32,767."""
_MANY_FRAMES = int(os.environ.get("KAFKATOOL_WILD_FRAMES", "20000"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, options=STEADY) as made:
        with ZooKeeper(made.zookeeper) as zk:
            for topic in (TOPIC, OTHER):
                make_topic(zk, topic, 1, 1)
            await_in_sync(zk)
        yield made


@pytest.fixture
def unharmed() -> Iterator[EmbeddedCluster]:
    """Give a cluster of the test's own: of what others sent nothing is under way, as a topic whose files are opened."""
    with EmbeddedCluster(brokers=1, options=STEADY) as made:
        made.create_topic(TOPIC)
        yield made


@pytest.fixture
def port(cluster: EmbeddedCluster) -> int:
    return cluster.status().brokers[0].port


@pytest.fixture
def process(cluster: EmbeddedCluster) -> psutil.Process:
    return psutil.Process(cluster.status().brokers[0].pid)


def ask(port: int) -> int:
    """Have an honest request answered; the number of topics."""
    with Connection("127.0.0.1", port, client_id="honest", timeout_ms=60_000, security=None) as connection:
        return len(connection.send(metadata.API, 5, metadata.MetadataRequest(topics=None)).topics)


def partitions_of(cluster: EmbeddedCluster) -> int:
    with ZooKeeper(cluster.zookeeper) as zk:
        return sum(len(topic.assignment) for topic in read_cluster(zk).topics.values())


def ask_from_many(port: int, clients: int = 20) -> None:
    """More honest requests at once than there are handlers: none of those is stuck."""
    with ThreadPoolExecutor(clients) as pool:
        assert all(pool.map(ask, [port] * clients))


class Hostile:
    """Keeps its connection for as long as it is let."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), 60)
                self._socket.settimeout(_PATIENCE_S)
            self._socket.sendall(data)
            if not self._socket.recv(65_536):
                self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def wild(requests: RandomRequests, count: int, chance: random.Random) -> Iterator[bytes]:
    for _ in range(count):
        yield chance.choice([requests.frame, requests.frame, requests.mutated, requests.rubbish])()


def bombard(port: int, frames: Iterable[bytes]) -> None:
    hostile = Hostile(port)
    for data in frames:
        hostile.send(data)
    hostile.close()


@pytest.mark.spec("BRK-7", "BRK-8", "BRK-10", "BRK-17", "BRK-84")
@pytest.mark.parametrize(
    "count", [1000, pytest.param(_MANY_FRAMES, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_wild_requests_crash_nothing_leak_nothing_and_disturb_nobody(
    cluster: EmbeddedCluster, port: int, process: psutil.Process, count: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    requests = RandomRequests(chance, [OTHER], [key for key in APIS if key not in CONTROL_KEYS])
    with ZooKeeper(cluster.zookeeper) as zk:
        topic = f"load-{count}"
        make_topic(zk, topic, 1, 1)
        await_in_sync(zk, [topic])
    load = Load(cluster.bootstrap, topic, idempotent=True, records_per_step=2)
    try:
        load.goes_on(100)
        bombard(port, requests.each())
        bombard(port, wild(requests, count // 10, chance))  # whatever is loaded and cached on first use is there now
        before, partitions, meanwhile = process.memory_info().rss, partitions_of(cluster), 0

        def served_meanwhile() -> bool:
            """Once will do, unless the other client itself stands still so long."""
            nonlocal meanwhile
            acknowledged = len(load.acknowledged)
            bombard(port, wild(requests, count, chance))
            meanwhile += len(load.acknowledged) - acknowledged
            return meanwhile > count // 100

        eventually(served_meanwhile, "the other client to be served all the while")
        load.goes_on(100)
        ask_from_many(port)
        grown = process.memory_info().rss - before
    finally:
        load.stop()
    check_records(cluster, topic, 1, load, once=True)
    made = partitions_of(cluster) - partitions
    assert grown < 60 * _MEGABYTE + made * _PARTITION_BYTES, f"seed {seed}: {grown} bytes more, {made} partitions made"
    _, traceback, text = cluster.files.output(1).read_text().partition("Traceback")
    assert not traceback, f"seed {seed}: {text[:3000]}"


@pytest.mark.spec("BRK-7", "BRK-24", "BRK-25", "BRK-33")
def test_wild_requests_in_the_controllers_name_leave_the_broker_up() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with EmbeddedCluster(brokers=1, options=STEADY) as cluster:
        port = cluster.status().brokers[0].port
        requests = RandomRequests(chance, ["t"], sorted(CONTROL_KEYS))
        bombard(port, requests.each())
        bombard(port, wild(requests, 800, chance))
        ask(port)
        outside = {p.name for p in cluster.files.data(1).parent.iterdir()}
        assert outside <= {"data", "logs", "server.properties", "server.log", "faults.socket"}


@pytest.mark.spec("BRK-8")
def test_a_length_alone_costs_no_memory(port: int, process: psutil.Process) -> None:
    before = process.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(100):
            client = held.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            client.sendall(struct.pack(">i", 100 * 1024 * 1024) + b"x")
        assert ask(port) >= 2
        assert process.memory_info().rss - before < 100 * _MEGABYTE


@pytest.mark.spec("BRK-8")
@pytest.mark.parametrize("size_bytes", [128 << 10, (128 << 10) + 1, 3_000_001])
def test_a_large_frame_arrives_whole(size_bytes: int) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    with serving() as server, socket.create_connection(("127.0.0.1", server.endpoints[0].port), 60) as client:
        client.sendall(frame(body))
        answer = b""
        while len(answer) < size_bytes + 4:
            answer += client.recv(1 << 20)
    assert answer == frame(body)


@pytest.mark.spec("BRK-7", "BRK-16", "BRK-18", "BRK-20")
def test_five_hundred_idle_and_fifty_slow_connections_are_in_nobodys_way(unharmed: EmbeddedCluster) -> None:
    broker = unharmed.status().brokers[0]
    port, process = broker.port, psutil.Process(broker.pid)
    ask(port)
    descriptors, threads = process.num_fds(), process.num_threads()
    request = frame(struct.pack(">hhi", 3, 0, 1) + b"\xff\xff" + struct.pack(">i", 0))
    with contextlib.ExitStack() as held:
        for _ in range(500):
            held.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        slow = [held.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(50)]
        half = [held.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(50)]
        for client in half:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)  # what was sent before counts (BRK-19)
        for i in range(len(request)):
            for client in slow:
                client.sendall(request[i : i + 1])
            ask(port)  # answered within the client's own time-out
        for client in slow + half:
            client.settimeout(60)
            assert len(client.recv(4)) == 4
        # The broker itself has a thread more for a moment, while it writes its gauges.
        eventually(lambda: process.num_threads() <= threads, "the threads to be as many as before")
    eventually(lambda: process.num_fds() <= descriptors, "the descriptors to come back")
