"""A whole broker: its start, its stop, and what is left when the start fails."""

import logging
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkatool.broker.registration import registration as health
from kafkatool.broker.replication.leading.delayed_fetch import DelayedFetch
from kafkatool.broker.server import Broker
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import ConfigError, KafkatoolError, StorageError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages import create_topics, fetch, metadata, produce
from kafkatool.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsTopic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, BrokerZnode, ConfigChangeZnode, ConfigZnode, ControllerZnode
from tests.broker.network.raw_client import wait_until
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


@contextmanager
def client_of(broker: Broker) -> Iterator[Connection]:
    connection = Connection("127.0.0.1", broker.port, client_id="test", timeout_ms=90_000)
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
    records = [Record(i, 0, None, value, ()) for i, value in enumerate(values)]
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


@pytest.mark.spec("BRK-119", "BRK-127", "CTL-1", "CTL-22", "CTL-118")
def test_the_order_of_a_start_and_that_its_nodes_are_gone_when_the_stop_returns(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data" / "old-0").mkdir(parents=True)
    with caplog.at_level(logging.INFO), Broker(config(zk_connect, tmp_path / "data")):
        assert zk.get(ControllerZnode.PATH) is not None
    assert zk.get(ControllerZnode.PATH) is None
    assert not zk.children(BrokersZnode.PATH)
    said = [record.getMessage() for record in caplog.records]
    steps = (
        "opened 1 logs after an unclean stop",
        "listening on",
        "Controller starting up",
        "1 successfully elected as leader",
        "Controller startup complete",
        "broker 1 is registered",
        "broker 1 serves",
        "broker 1 resigns as controller",
    )
    places = [next(i for i, line in enumerate(said) if step in line) for step in steps]
    assert places == sorted(places), said


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
    assert zk.get(BrokerZnode.path(5)) is None


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


@pytest.mark.spec("BRK-146", "BRK-159")
@pytest.mark.parametrize(
    ("live", "version", "goes_on"),
    [([Path("/other")], "2.3", True), ([], "2.3", False), ([Path("/other")], "0.11.0", False)],
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
