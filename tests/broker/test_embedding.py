"""Brokers inside a process that has other things to do: what is left of them when they have stopped is nothing."""

import re
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from kafkatool.broker.server import Broker
from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import init_producer_id, metadata
from kafkatool.core.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.network.raw_client import wait_until
from tests.broker.test_server import append, client_of, config, create, describe, read
from tests.paths import ROOT
from tests.waiting import eventually

_DOCUMENT = ROOT / "docs" / "embedding.md"
_BROKERS = (1, 2, 3)


@pytest.mark.spec("BRK-128")
def test_the_example_of_the_documentation_runs(
    zk_connect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL)
    assert found
    code = found[1].replace("localhost:2181/kafka", zk_connect).replace("/tmp/kafka-logs", str(tmp_path / "data"))
    exec(compile(code, str(_DOCUMENT), "exec"), {})
    assert re.fullmatch(r"clients connect to 127\.0\.0\.1:\d+\n", capsys.readouterr().out)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.spec("BRK-128", "BRK-127", "BRK-148")
@pytest.mark.slow
def test_three_brokers_in_one_process_leave_no_thread_and_no_descriptor_and_start_again_on_their_directories(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path
) -> None:
    process = psutil.Process()
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    descriptors: list[int] = []
    threads = set(threading.enumerate())
    for life in range(2):
        brokers = [Broker(config(zk_connect, tmp_path / f"data-{i}", i)) for i in _BROKERS]
        with ExitStack() as running:
            for broker in brokers:
                running.enter_context(broker)
            with client_of(brokers[0]) as client:
                wait_until(lambda c=client: _sees_all(c), 60)  # type: ignore[misc]
                if life == 0:
                    assert create(client, "t", 1, 3) == 0
                wait_until(lambda c=client: len(describe(c, "t").partitions[0].isr_nodes) == 3, 60)  # type: ignore[misc]
                leader = describe(client, "t").partitions[0].leader_id
            with client_of(brokers[leader - 1]) as client:
                value = b"%d" % life  # its leader may hear of it after the first broker
                wait_until(lambda c=client, v=value: append(c, "t", v).error_code == 0)  # type: ignore[misc]
                assert read(client, "t") == [b"%d" % i for i in range(life + 1)]
            assert len({broker.port for broker in brokers}) == 3
        assert set(threading.enumerate()) <= threads
        descriptors.append(process.num_fds())
    assert descriptors[1] <= descriptors[0], "the first life opens what the process keeps"
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == handlers


def _sees_all(client: Connection) -> bool:
    answer = client.send(metadata.API, 1, MetadataRequest(topics=[]))
    return len(answer.brokers) == len(_BROKERS) and answer.controller_id >= 0


@pytest.mark.spec("BRK-128")
def test_one_object_is_started_and_stopped_from_several_threads_at_once_and_again(
    zk_connect: str, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    broker = Broker(config(zk_connect, tmp_path / "data"))
    for _ in range(2):
        for act in (broker.start, broker.start, broker.stop, broker.stop):
            callers = [threading.Thread(target=act) for _ in range(3)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            if act == broker.start:
                with client_of(broker) as client:
                    assert client.send(metadata.API, 1, MetadataRequest(topics=[])) is not None
    assert set(threading.enumerate()) <= before


@pytest.mark.spec("BRK-128")
def test_two_brokers_of_one_id_in_clusters_of_their_own_share_nothing(zk_connect: str, tmp_path: Path) -> None:
    names = ("one", "two")
    brokers = {name: Broker(config(f"{zk_connect}/{name}", tmp_path / name)) for name in names}
    with ExitStack() as running:
        clients = {name: running.enter_context(client_of(running.enter_context(brokers[name]))) for name in names}
        for name, client in clients.items():
            wait_until(lambda c=client: c.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)  # type: ignore[misc]
            assert create(client, "t", 1, 1) == 0
            wait_until(lambda c=client, n=name: append(c, "t", n.encode()).error_code == 0)  # type: ignore[misc]
            assert (
                client.send(init_producer_id.API, 1, InitProducerIdRequest(transaction_timeout_ms=1)).producer_id == 0
            )
        assert create(clients["one"], "alone", 1, 1) == 0
        assert [describe(client, "alone").error_code for client in clients.values()] == [0, 3]
        assert {name: read(client, "t") for name, client in clients.items()} == {n: [n.encode()] for n in names}
        known = {c.send(metadata.API, 2, MetadataRequest(topics=[])).cluster_id for c in clients.values()}
        assert len(known) == 2
        brokers["one"].stop()
        assert append(clients["two"], "t", b"more").error_code == 0
        assert read(clients["two"], "t") == [b"two", b"more"]


@pytest.mark.spec("BRK-128", "BRK-148")
def test_the_directory_of_a_broker_that_runs_is_refused_to_another_in_the_same_process(
    zk_connect: str, tmp_path: Path
) -> None:
    with Broker(config(zk_connect, tmp_path / "data", 1, background_threads="1")) as running:  # it starts no more later
        own = "controller-to-broker-1"  # its last thread, a moment after the start
        eventually(lambda: own in {t.name for t in threading.enumerate()}, "the broker's controller")
        before = set(threading.enumerate())
        with pytest.raises(Exception, match="in use by another broker"):
            Broker(config(zk_connect, tmp_path / "data", 1)).start()
        assert {t.name for t in set(threading.enumerate()) - before} == set()
        with client_of(running) as client:
            assert client.send(metadata.API, 1, MetadataRequest(topics=[])) is not None
