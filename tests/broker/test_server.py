"""A whole broker: its start, its stop, and what is left when the start fails."""

import logging
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker import server
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.network.client_quotas import ClientQuotas, Entity, parse_entity
from kafkatool.broker.registration import controlled_stop
from kafkatool.broker.registration import registration as health
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager
from kafkatool.broker.replication.leading.delayed_fetch import DelayedFetch
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.server import Broker
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import ConfigError, KafkatoolError, StartGivenUpError, StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages import (
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from kafkatool.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsTopic
from kafkatool.core.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkatool.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkatool.core.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from kafkatool.core.zookeeper import session
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    PERSISTENT_PATHS,
    BrokersZnode,
    BrokerZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    TopicZnode,
)
from tests.broker.network.raw_client import wait_until
from tests.broker.registration.test_registration import tree
from tests.core.zookeeper.sessions import end_session
from tests.ports import free_port


def config(zk_connect: str, data: Path, broker_id: int = 1, **more: str) -> BrokerConfig:
    given = {
        "zookeeper.connect": zk_connect,
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": str(broker_id),
        "num.network.threads": "1",
        "num.io.threads": "2",
        "controlled.shutdown.retry.backoff.ms": "200",
        "unclean.leader.election.enable": "false",
        "delete.topic.enable": "true",
        # A machine that is busy with others must neither end its session nor take a follower out of the ISR.
        "zookeeper.session.timeout.ms": "60000",
        "replica.lag.time.max.ms": "60000",
    }
    return BrokerConfig.from_properties(given | {k.replace("_", "."): v for k, v in more.items()})


@pytest.fixture
def unhurried_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a broker in this process wait for a ZooKeeper that stands still, which it would leave after some seconds."""
    monkeypatch.setattr(controlled_stop, "LONGEST_WITHOUT_ZOOKEEPER_MS", 120_000)
    monkeypatch.setattr(session, "_CLOSE_S", 120.0)


@pytest.mark.spec("CTL-111", "BRK-126", "BRK-127")
@pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
def test_a_broker_stops_soon_though_zookeeper_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    """It waited three times as long as a session may last, and its supervisor killed it long before, uncleanly."""
    monkeypatch.setattr(controlled_stop, "LONGEST_WITHOUT_ZOOKEEPER_MS", 1000)
    server = ZooKeeperProcess(tmp_path / "zookeeper", free_port()).start().wait_ready(100_000)
    try:
        broker = Broker(config(server.connect, tmp_path / "data", zookeeper_connection_timeout_ms="3600000"))
        broker.start()
        running = server.process()
        assert running is not None
        (running.suspend if hangs else running.kill)()
        stopping = threading.Thread(target=broker.stop, daemon=True)
        stopping.start()
        stopping.join(120)
        assert not stopping.is_alive()
        assert "broker 1 goes down though it may still lead partitions" in caplog.messages
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    finally:
        server.stop(gentle=False)


@pytest.mark.spec("CTL-111", "CTL-116", "BRK-126")
def test_a_broker_that_still_leads_after_the_last_try_goes_down_all_the_same(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone = PartitionStateZnode.path(TopicPartition("t", 0))
    with Broker(config(zk_connect, tmp_path / "data")) as broker:
        zk.create(TopicZnode.path("t"), TopicZnode({0: (1, 2)}).encode())  # there is no broker 2
        wait_until(lambda: zk.get(alone) is not None)
        broker.stop()
        wait_until(
            lambda: not zk.children(BrokersZnode.PATH)
        )  # who stops does not wait long for ZooKeeper's last answer
    said = [message for message in caplog.messages if message.startswith("controlled shutdown of broker 1, ")]
    left = "1 partitions are still led here"
    assert said == [f"controlled shutdown of broker 1, try {n} of 3: {left}" for n in (1, 2, 3)]
    assert "broker 1 goes down though it may still lead partitions" in caplog.messages
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@contextmanager
def client_of(broker: Broker) -> Iterator[Connection]:
    connection = Connection("127.0.0.1", broker.port, client_id="test", timeout_ms=90_000, security=None)
    try:
        yield connection
    finally:
        connection.close()


def create(connection: Connection, name: str, partitions: int, factor: int) -> int:
    topic = CreateTopicsTopic(name=name, num_partitions=partitions, replication_factor=factor)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    return connection.send(create_topics.API, 3, request).topics[0].error_code


def describe(connection: Connection, name: str) -> metadata.MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic=name)], allow_auto_topic_creation=False)
    return connection.send(metadata.API, 8, request).topics[0]


def append(connection: Connection, topic: str, *values: bytes, acks: int = -1) -> produce.ProduceResponsePartition:
    now_ms = int(time.time() * 1000)  # older ones would be gone with the first round of retention, 30 s after the start
    records = [Record(i, now_ms, None, value, ()) for i, value in enumerate(values)]
    partition = produce.ProduceRequestPartition(partition=0, records=bytes(encode_batch(records)))
    request = produce.ProduceRequest(
        acks=acks, timeout_ms=60_000, topics=[produce.ProduceRequestTopic(topic=topic, partitions=[partition])]
    )
    return connection.send(produce.API, 7, request).topics[0].partitions[0]


def read(connection: Connection, topic: str) -> list[bytes | None]:
    wanted = fetch.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    (partition,) = connection.send(fetch.API, 4, request).topics[0].partitions
    batches = partition.records
    assert not isinstance(batches, FileRegion)
    if not batches:
        return []
    return [
        record.value
        for position, header in iter_batches(batches)
        for record in decode_records(batches[position : position + header.size_bytes])
    ]


def coordinator(connection: Connection) -> int:
    return connection.send(find_coordinator.API, 2, FindCoordinatorRequest(key="g")).node_id


def commit(connection: Connection, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(topic="t", partitions=[partition])])
    return connection.send(offset_commit.API, 7, request).topics[0].partitions[0].error_code


def committed(connection: Connection) -> tuple[int, list[int]]:
    answer = connection.send(offset_fetch.API, 5, OffsetFetchRequest(group_id="g", topics=None))
    return answer.error_code, [p.committed_offset for t in answer.topics for p in t.partitions]


@pytest.mark.spec("BRK-119", "BRK-123", "BRK-128")
def test_one_broker_creates_a_topic_takes_records_and_has_them_after_a_clean_restart(
    zk_connect: str, tmp_path: Path
) -> None:
    settings = config(zk_connect, tmp_path / "data")
    with Broker(settings) as broker, client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        assert append(client, "t", b"a", b"b").error_code == 0
        assert read(client, "t") == [b"a", b"b"]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "broker.id=1" in (tmp_path / "data" / "meta.properties").read_text()
    again = Broker(settings)
    again.start()
    again.start()
    with client_of(again) as client:
        wait_until(lambda: read(client, "t") == [b"a", b"b"])  # as soon as it leads again
    again.stop()
    again.stop()


@pytest.mark.spec("BRK-41", "BRK-150", "BRK-119")
def test_records_of_a_topic_deleted_while_the_broker_was_down_do_not_come_back(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    settings = config(zk_connect, tmp_path / "data")
    with Broker(settings) as broker, client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        for topic in ("t", "kept"):
            assert create(client, topic, 1, 1) == 0
            assert append(client, topic, b"old").error_code == 0
    path = TopicZnode.path("t")
    for node in (f"{path}/partitions/0/state", f"{path}/partitions/0", f"{path}/partitions", path):
        zk.delete(node)
    with Broker(settings) as broker, client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        assert append(client, "t", b"new").error_code == 0
        assert read(client, "t") == [b"new"]
        wait_until(lambda: read(client, "kept") == [b"old"])
    assert len(list((tmp_path / "data").glob("t-0.*-stray"))) == 1


@pytest.mark.spec("CTL-80")
def test_a_topic_that_is_marked_where_deletion_is_off_serves_on_also_after_a_failover(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    settings = config(zk_connect, tmp_path / "data", delete_topic_enable="false")
    mark = DeleteTopicsZnode.topic_path("t")
    for number in range(2):
        with Broker(settings) as broker, client_of(broker) as client:
            wait_until(lambda c=client: c.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)  # type: ignore[misc]
            if number == 0:
                assert create(client, "t", 1, 1) == 0
                zk.create(mark)
            assert create(client, f"u{number}", 1, 1) == 0, "the controller has come past the mark by then"
            wait_until(lambda c=client, n=number: append(c, "t", b"%d" % n).error_code == 0)  # type: ignore[misc]
            assert read(client, "t") == [b"0", b"1"][: number + 1]
            assert describe(client, "t").error_code == 0
            assert zk.get(mark) is not None


@pytest.mark.spec("BRK-81", "BRK-97")
def test_a_fetch_that_blocks_when_its_time_is_out_holds_up_no_other(
    zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, gate = threading.Event(), threading.Event()
    complete = DelayedFetch.on_complete

    def block_once(operation: DelayedFetch) -> None:
        if not holds.is_set():
            holds.set()
            assert gate.wait(60)
        complete(operation)

    monkeypatch.setattr(DelayedFetch, "on_complete", block_once)
    with Broker(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as held, client_of(broker) as other:
        wait_until(lambda: other.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(other, "t", 1, 1) == 0
        reader = threading.Thread(target=read, args=(held, "t"))
        reader.start()
        assert holds.wait(60)
        assert read(other, "t") == []
        gate.set()
        reader.join(60)


@pytest.mark.spec("BRK-128", "BRK-126", "BRK-65")
@pytest.mark.usefixtures("unhurried_stop")
def test_two_brokers_in_one_process_replicate_and_a_controlled_stop_moves_the_leaders(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    first = Broker(config(zk_connect, tmp_path / "1" / "data", 1))
    second = Broker(config(zk_connect, tmp_path / "2" / "data", 2), log_prefix="second")
    with first, client_of(first) as client:
        second.start()
        wait_until(lambda: len(client.send(metadata.API, 1, MetadataRequest(topics=[])).brokers) == 2)
        assert create(client, "t", 4, 2) == 0
        assert append(client, "t", b"kept").error_code == 0 or describe(client, "t").partitions[0].leader_id == 2
        wait_until(lambda: all(len(p.isr_nodes) == 2 for p in describe(client, "t").partitions))
        names = {"ReplicaFetcherThread-0-2", "second:ReplicaFetcherThread-0-1"}
        wait_until(lambda: {thread.name for thread in threading.enumerate() if "Fetcher" in thread.name} == names)
        second.stop()
        wait_until(lambda: {p.leader_id for p in describe(client, "t").partitions} == {1})
        assert zk.children(BrokersZnode.PATH) == ["1"]


@pytest.mark.spec("BRK-126")
@pytest.mark.parametrize("controlled", [True, False])
def test_a_broker_follows_nothing_new_from_when_it_asks_to_have_its_leaders_moved(
    zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controlled: bool
) -> None:
    order: list[str] = []
    monkeypatch.setattr(FetcherManager, "leave", lambda _: order.append("leave"))
    monkeypatch.setattr(controlled_stop, "ask_to_move_leaders", lambda *_: order.append("ask"))
    broker = Broker(config(zk_connect, tmp_path / "data", 1))
    broker.start()
    broker.stop(controlled=controlled)
    assert order == (["leave", "ask"] if controlled else [])


@pytest.mark.spec("GRP-62", "BRK-126")
def test_groups_are_served_elsewhere_before_the_sockets_of_a_controlled_stop_close(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "2"}
    brokers = {
        number: Broker(config(zk_connect, tmp_path / str(number) / "data", number, **offsets), log_prefix=str(number))
        for number in (1, 2)
    }
    with brokers[1], brokers[2], client_of(brokers[1]) as first, client_of(brokers[2]) as second:
        clients = {1: first, 2: second}
        for client in clients.values():
            wait_until(lambda c=client: len(c.send(metadata.API, 1, MetadataRequest(topics=[])).brokers) == 2)  # type: ignore[misc]
        assert create(first, "t", 1, 2) == 0
        wait_until(lambda: coordinator(first) in clients)
        old = coordinator(first)
        heir = 3 - old
        wait_until(lambda: commit(clients[old], 7) == 0)
        wait_until(lambda: len(describe(first, "__consumer_offsets").partitions[0].isr_nodes) == 2)
        ask_to_move = controlled_stop.ask_to_move_leaders
        seen: list[object] = []

        def look_afterwards(*given: Any) -> None:
            ask_to_move(*given)
            wait_until(lambda: committed(clients[heir]) == (0, [7]))
            wait_until(lambda: committed(clients[old]) == (16, []))  # it is told by another request than the heir
            seen.append(coordinator(clients[heir]))

        monkeypatch.setattr(controlled_stop, "ask_to_move_leaders", look_afterwards)
        brokers[old].stop()
        assert seen == [heir], "its sockets were open"
        monkeypatch.undo()


@pytest.mark.spec("GRP-6", "GRP-15", "TXN-7")
def test_groups_are_served_again_when_their_topic_was_deleted_and_made_anew(zk_connect: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = config(zk_connect, data, offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")
    with Broker(settings) as broker, client_of(broker) as client:
        wait_until(lambda: create(client, "t", 1, 1) == 0)
        wait_until(lambda: coordinator(client) == 1 and commit(client, 7) == 0)
    with Broker(settings) as broker, client_of(broker) as client:
        wait_until(lambda: committed(client) == (0, [7]))  # in a later leader epoch than that of a new topic
        request = DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=60_000)
        assert client.send(delete_topics.API, 3, request).topics[0].error_code == 0
        wait_until(lambda: coordinator(client) == 1 and commit(client, 8) == 0)
        assert committed(client) == (0, [8])


@pytest.mark.spec("BRK-119", "BRK-127", "CTL-1", "CTL-22", "CTL-118")
@pytest.mark.usefixtures("unhurried_stop")
def test_the_order_of_a_start_and_that_its_nodes_are_gone_when_the_stop_returns(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data" / "old-0").mkdir(parents=True)
    zk.create(TopicZnode.path("old"), TopicZnode({0: (1,)}).encode(), make_parents=True)
    # a command in this process may have silenced the session's logger
    caplog.set_level(logging.INFO, logger="kafkatool.core.zookeeper.kazoo")
    with caplog.at_level(logging.INFO), Broker(config(zk_connect, tmp_path / "data")):
        assert zk.get(ControllerZnode.PATH) is not None
    assert zk.get(ControllerZnode.PATH) is None
    assert not zk.children(BrokersZnode.PATH)
    said = [record.getMessage() for record in caplog.records]
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels["Controller starting up"] == levels["Controller startup complete"] == "INFO"
    steps = (
        "opened 1 logs after an unclean stop",
        "listening on",
        "Controller starting up",
        "1 successfully elected as leader",
        "Controller startup complete",
        "broker 1 is registered",
        "broker 1 serves",
        "the controller has moved all leaders away from broker 1",
        "broker 1 resigns as controller",
        "Zookeeper session closed",
    )
    places = [next(i for i, line in enumerate(said) if step in line) for step in steps]
    assert places == sorted(places), said


@pytest.mark.spec("Z-2", "Z-3", "Z-4", "Z-5", "Z-9", "Z-11", "BRK-6", "BRK-124")
def test_a_broker_without_id_below_a_chroot_that_is_not_there_makes_both_and_keeps_the_id(
    zk_connect: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chroot = "still/deeper"
    connect = f"{zk_connect}/{chroot}"
    data = tmp_path / "data"
    opened: list[tuple[int, int]] = []

    def noted(*arguments: Any, **names: Any) -> ZooKeeper:
        opened.append((names["session_timeout_ms"], names["connection_timeout_ms"]))
        return ZooKeeper(*arguments, **names)

    settings = config(connect, data, -1, zookeeper_session_timeout_ms="59000", zookeeper_connection_timeout_ms="58000")
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr(server, "ZooKeeper", noted)
        with Broker(settings) as broker, client_of(broker) as client:
            assert opened == [(59_000, 58_000)]
            assert broker.broker_id == 1001
            wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1001)
            assert create(client, "t", 1, 1) == 0
            with ZooKeeper(connect) as inside:
                node = inside.get(BrokerZnode.path(1001))
                assert node is not None
                (endpoint,) = BrokerZnode.decode(1001, node.data).endpoints
                assert endpoint.port == client.port != 0
                nodes = tree(inside)
            assert {"/brokers/topics/t", "/controller", "/cluster/id"} <= nodes.keys()
            assert set(PERSISTENT_PATHS) <= nodes.keys()
            assert nodes.keys().isdisjoint(("/admin/reassign_partitions", "/admin/preferred_replica_election"))
            assert not [path for path, node in nodes.items() if b"deeper" in node.data]
    assert not [r for r in caplog.records if f"{chroot}/" in r.getMessage()]
    assert "broker.id=1001" in (data / "meta.properties").read_text()
    with Broker(config(connect, data, -1)) as again:
        assert again.broker_id == 1001
    with ZooKeeper(connect) as inside:
        sequence = inside.get("/brokers/seqid")
        assert sequence is not None and (sequence.data, sequence.version) == (b"", 1)


@pytest.mark.spec("Z-9", "BRK-6")
def test_a_broker_without_an_advertised_host_registers_the_machines_name(
    zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "localhost")
    with Broker(config(zk_connect, tmp_path / "data", listeners="PLAINTEXT://:0")), ZooKeeper(zk_connect) as inside:
        node = inside.get(BrokerZnode.path(1))
        assert node is not None
        (endpoint,) = BrokerZnode.decode(1, node.data).endpoints
        assert endpoint.host == "localhost" and endpoint.port != 0


STARTED = """
import sys
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.server import Broker
from kafkatool.broker.settings.config import BrokerConfig
broker = Broker(BrokerConfig.from_properties(dict(pair.split("=", 1) for pair in sys.argv[1:])))
before = set(sys.modules)
broker.start()
loaded = sorted(name for name in set(sys.modules) - before if name.startswith("kafkatool."))
broker.stop(controlled=False)
print(loaded)
"""


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_start_imports_nothing_so_that_a_ctrl_c_may_interrupt_it_anywhere(zk_connect: str, tmp_path: Path) -> None:
    settings = (f"zookeeper.connect={zk_connect}", f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0")
    command = [sys.executable, "-c", STARTED, *settings]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout == "[]\n"


PHASES = (
    "_prepare",
    "_join_cluster",
    "_load_logs",
    "_bind",
    "_start_replicas",
    "_start_groups",
    "_start_controller",
    "_follow_configs",
    "_register",
)


@pytest.mark.spec("BRK-126", "BRK-128")
@pytest.mark.usefixtures("unhurried_stop")
@pytest.mark.parametrize("phase", PHASES)
def test_a_start_that_is_given_up_in_any_phase_leaves_nothing_behind(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    threads = set(threading.enumerate())
    broker = Broker(config(zk_connect, tmp_path / "data"))
    do = getattr(broker, phase)

    def do_and_give_up() -> None:
        do()
        broker.give_up_start()

    with monkeypatch.context() as given_up:
        given_up.setattr(broker, phase, do_and_give_up)
        with pytest.raises(StartGivenUpError, match="told to stop while it started"):
            broker.start()
    DirLock(tmp_path / "data").release()
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert not zk.children(BrokersZnode.PATH) and zk.get(ControllerZnode.PATH) is None
    broker.start()  # it was for that start alone
    broker.stop()


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_start_given_up_before_it_began_begins_nothing(zk_connect: str, tmp_path: Path) -> None:
    broker = Broker(config(zk_connect, tmp_path / "data"))
    broker.give_up_start()
    with pytest.raises(StartGivenUpError):
        broker.start()
    assert not (tmp_path / "data").exists()


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_start_that_waits_for_zookeeper_is_given_up_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        broker = Broker(config(address, tmp_path / "data", 1, **{"zookeeper.connection.timeout.ms": "10000000"}))
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(broker.start)
            connection, _ = silent.accept()
            with connection:
                broker.give_up_start()
                assert isinstance(started.exception(60), StartGivenUpError)


@pytest.mark.spec("BRK-121", "BRK-126")
def test_a_start_that_waits_for_its_id_is_given_up_at_once(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> None:
    make_base_paths(zk)
    zk.create(BrokerZnode.path(1), b"{}", ephemeral=True)
    broker = Broker(config(zk_connect, tmp_path / "data", 1, **{"zookeeper.session.timeout.ms": "10000000"}))
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(broker.start)
        wait_until(lambda: zk.get(ControllerZnode.PATH) is not None)  # it registers next
        broker.give_up_start()
        assert isinstance(started.exception(60), StartGivenUpError)


@pytest.mark.spec("BRK-119", "BRK-6")
def test_a_start_that_fails_leaves_nothing_behind(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    port = free_port()  # one that no outgoing connection gets in between
    with socket.create_server(("127.0.0.1", port)):
        broker = Broker(config(zk_connect, tmp_path / "data", listeners=f"PLAINTEXT://127.0.0.1:{port}"))
        with pytest.raises(KafkatoolError, match="cannot listen on"):
            broker.start()
    DirLock(tmp_path / "data").release()
    assert not zk.children(BrokersZnode.PATH)
    assert zk.get(ControllerZnode.PATH) is None
    wait_until(lambda: set(threading.enumerate()) <= threads)
    broker.start()  # the port is free now
    assert broker.port == port
    broker.stop()


@pytest.mark.spec("BRK-128", "BRK-145", "BRK-148")
def test_a_start_that_fails_on_its_logs_can_be_tried_again_in_the_same_process(zk_connect: str, tmp_path: Path) -> None:
    stranger = tmp_path / "data" / "stranger"
    stranger.mkdir(parents=True)
    broker = Broker(config(zk_connect, tmp_path / "data"))
    with pytest.raises(StorageError, match="stranger"):
        broker.start()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    stranger.rmdir()
    with broker:
        assert broker.port


@pytest.mark.spec("BRK-121")
def test_a_second_broker_with_the_same_id_is_refused(
    zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(config(zk_connect, tmp_path / "1" / "data")):
        twin = Broker(config(zk_connect, tmp_path / "2" / "data"))
        monkeypatch.setattr(health, "_EXPIRY_DELAY_S", -59.0)  # of a session of 60 s: it tries for one
        with pytest.raises(KafkatoolError, match="broker id 1 is in use"):
            twin.start()


@pytest.mark.spec("BRK-124")
def test_data_of_another_broker_is_refused(zk_connect: str, tmp_path: Path) -> None:
    with Broker(config(zk_connect, tmp_path / "data", 1)):
        pass
    with pytest.raises(ConfigError, match=r"broker\.id=2, but log\.dirs hold the data of broker 1"):
        Broker(config(zk_connect, tmp_path / "data", 2)).start()


@pytest.mark.spec("BRK-126", "BRK-127")
def test_the_process_serves_until_a_signal_and_stops_cleanly(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> None:
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=5\nzookeeper.connect={zk_connect}\nlog.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:9\n"
        "zookeeper.session.timeout.ms=60000\n"
    )
    override = f"listeners=PLAINTEXT://127.0.0.1:{port}"
    command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config", str(properties), "-o", override]
    few_files = ["sh", "-c", 'ulimit -S -n 200 && exec "$0" "$@"']
    with (tmp_path / "server.log").open("wb") as output:
        process = subprocess.Popen([*few_files, *command], stderr=output)
    try:
        wait_until(lambda: "broker 5 serves" in (tmp_path / "server.log").read_text())
        assert zk.get(BrokerZnode.path(5)) is not None
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        with socket.create_connection(("127.0.0.1", port), 60):
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "logs" / "controller.log").exists()
    wait_until(lambda: zk.get(BrokerZnode.path(5)) is None)
    said = (tmp_path / "server.log").read_text()
    assert "Zookeeper session closed" in said or "does not take leave" in said, (
        "it did not leave that to its session's end"
    )


@pytest.mark.spec("BRK-122")
def test_after_its_session_expired_a_broker_registers_again_and_goes_on(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    with Broker(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        before = broker.broker_epoch
        own = BrokerZnode.path(broker.broker_id)
        end_session(zk_connect, lambda: node.ephemeral_owner if (node := zk.get(own)) else 0)
        wait_until(lambda: broker.broker_epoch != before)
        wait_until(lambda: zk.get(ControllerZnode.PATH) is not None)
        wait_until(lambda: append(client, "t", b"after").error_code == 0)
        codes: list[int] = []

        def created() -> bool:
            codes.append(create(client, "u", 1, 1))
            return codes[-1] == ErrorCode.NONE

        wait_until(created)
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER}, "until its new term has begun"
        zk.set(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"max.message.bytes": "10"}), -1)
        zk.create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode("topics/t"), sequential=True)
        wait_until(lambda: append(client, "t", b"too large by now").error_code == 10)


@pytest.mark.spec("CTL-19", "BRK-122", "Z-27")
@pytest.mark.parametrize("hangs", [False, True])
def test_a_broker_registers_anew_when_its_controller_has_resigned_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    broker = Broker(config("unused:1", tmp_path))
    asked: list[str] = []

    def has_resigned() -> bool:
        asked.append("?")
        return not hangs and len(asked) == 3

    used = SimpleNamespace(new_session=lambda: asked.append("used"))
    monkeypatch.setattr(broker, "_controller", SimpleNamespace(has_resigned=has_resigned), raising=False)
    monkeypatch.setattr(broker, "_dynamic_config", used, raising=False)
    monkeypatch.setattr(broker, "_set_strays_aside", lambda: None)
    now = iter(range(0, 1000, 7))  # of a session of 60 s
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None))
    broker.before_registering_again()
    assert asked == ["?"] * (9 if hangs else 3) + ["used"]


@pytest.mark.spec("BRK-146", "BRK-159")
@pytest.mark.parametrize(
    ("live", "version", "goes_on"),
    [
        *[([Path("/other")], version, True) for version in ("2.3", "1.0")],
        *[([Path("/other")], version, False) for version in ("0.11.0", "0.10.0")],
        ([], "2.3", False),
    ],
)
def test_a_broker_outlives_a_failed_log_dir_if_another_works_and_the_controller_can_be_told(
    tmp_path: Path, live: list[Path], version: str, goes_on: bool
) -> None:
    broker = Broker(config("unused:1", tmp_path, inter_broker_protocol_version=version))
    heard = threading.Event()
    broker.on_failure(heard.set)
    told: list[Path] = []
    broker.on_dir_failure(tmp_path, [], live, lambda path, _lost: told.append(path))
    assert broker.failed.is_set() is heard.is_set() is not goes_on
    assert told == ([tmp_path] if goes_on else [])


@pytest.mark.spec("BRK-122")
def test_partitions_keep_their_state_through_an_expiry_until_the_controller_speaks(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    seen: list[bytes | None] = []
    codes: list[int] = []

    class Watched(Broker):
        """Looks while it is registered nowhere, so that no controller can have told it anything."""

        def before_registering_again(self) -> None:
            super().before_registering_again()
            with client_of(self) as client:
                codes.append(append(client, "t", b"between", acks=1).error_code)
                seen.extend(read(client, "t"))

    with Watched(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        assert append(client, "t", b"before").error_code == 0
        own = BrokerZnode.path(broker.broker_id)
        end_session(zk_connect, lambda: node.ephemeral_owner if (node := zk.get(own)) else 0)
        wait_until(lambda: bool(codes) and zk.get(own) is not None)
    assert set(codes) == {ErrorCode.NONE}
    assert seen[:2] == [b"before", b"between"]


_ENTITIES = [("brokers", "2"), ("clients", "c"), ("users", "u"), ("brokers", "1"), ("topics", "t")]


@pytest.mark.spec("BRK-125")
def test_configs_of_every_kind_hold_from_the_start_and_follow_their_changes(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, str]] = []  # who is told, and the value
    put, on_broker = ClientQuotas.put, ReplicaManager.on_broker_config

    def quota(quotas: ClientQuotas, entity: Entity, rates: Mapping[str, str]) -> None:
        put(quotas, entity, rates)
        heard.append((str(entity), rates.get("producer_byte_rate", "")))

    def rate(manager: ReplicaManager, overrides: Mapping[str, str]) -> None:
        on_broker(manager, overrides)
        heard.append(("broker", overrides.get("leader.replication.throttled.rate", "")))

    monkeypatch.setattr(ClientQuotas, "put", quota)
    monkeypatch.setattr(ReplicaManager, "on_broker_config", rate)
    client, user = str(parse_entity("clients", "c")), str(parse_entity("users", "u"))

    def write(kind: str, name: str, key: str, value: str) -> None:
        path = ConfigZnode.path(kind, name)
        data = ConfigZnode.encode({key: value})
        if zk.get(path) is None:
            zk.create(path, data, make_parents=True)
        else:
            zk.set(path, data, -1)

    def write_all(value: str) -> None:
        write("clients", "c", "producer_byte_rate", value)
        write("users", "u", "producer_byte_rate", value)
        write("brokers", "1", "leader.replication.throttled.rate", value)
        write("brokers", "2", "leader.replication.throttled.rate", "999")

    write_all("5")
    with Broker(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as connection:
        assert sorted(heard) == sorted([(client, "5"), (user, "5"), ("broker", "5")])
        wait_until(lambda: connection.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(connection, "t", 1, 1) == 0
        assert append(connection, "t", b"fits").error_code == 0
        by_path = [ConfigChangeZnode.encode(f"{kind}/{name}") for kind, name in _ENTITIES]
        by_name = b'{"version":1,"entity_type":"%s","entity_name":"%s"}'  # of these two alone, as in Kafka
        by_type = [by_name % pair for pair in ((b"clients", b"c"), (b"topics", b"t"))]
        for value, changes, told in (
            ("6", by_path, [client, user, "broker"]),
            ("7", by_type, [client]),
        ):
            heard.clear()
            write_all(value)
            write("topics", "t", "max.message.bytes", value)
            for change in changes:
                zk.create(ConfigChangeZnode.PREFIX, change, sequential=True)
            wait_until(lambda told=told: len(heard) == len(told))  # type: ignore[misc]
            assert sorted(heard) == sorted((one, value) for one in told)
            wait_until(lambda: append(connection, "t", b"too large").error_code == 10)
            write("topics", "t", "max.message.bytes", "1000")
            zk.create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode("topics/t"), sequential=True)
            wait_until(lambda: append(connection, "t", b"fits again").error_code == 0)
        write("topics", "t", "max.message.bytes", "8")  # and nobody is told
    with Broker(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as connection:
        wait_until(lambda: append(connection, "t", b"too large from the start on").error_code == 10)
