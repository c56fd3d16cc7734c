"""The order in which a broker comes up and goes down, and what is left when any step of the start fails."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafkatool.broker import server
from kafkatool.broker.administration.waiting_topics import TopicPurgatory
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.registration import identity
from kafkatool.broker.registration.registration import Registration
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.server import Broker
from kafkatool.broker.storage.directories import log_dir
from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages import api_versions, metadata
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, ClusterIdZnode, ControllerZnode, TopicZnode
from tests.broker.network.raw_client import RawClient, wait_until
from tests.broker.test_server import append, client_of, config, create

_START: list[tuple[str, Any, str]] = [
    ("session", ZooKeeper, "start"),
    ("base paths", server, "make_base_paths"),
    ("cluster id", identity, "get_or_create_cluster_id"),
    ("broker id", identity, "generate_broker_id"),
    ("locks", DirLock, "__init__"),
    ("logs", log_dir, "open_log"),
    ("listeners", SocketServer, "bind"),
    ("tasks of logs", LogManager, "start_tasks"),
    ("tasks of replicas", ReplicaManager, "startup"),
    ("controller", Controller, "startup"),
    ("registration", Registration, "start"),
    ("meta.properties", server, "write_meta_properties"),
    ("requests", SocketServer, "serve"),
]
_STOP: list[tuple[str, Any, str]] = [
    ("requests drained", SocketServer, "stop_serving"),
    ("waits of groups", GroupCoordinator, "shutdown"),
    ("waits for topics", TopicPurgatory, "expire_all"),
    ("fetchers", FetcherManager, "shutdown"),
    ("waits", DelayedRequests, "expire_all"),
    ("high watermarks", ReplicaManager, "checkpoint_high_watermarks"),
    ("background", Scheduler, "shutdown"),
    ("flush", Log, "close"),
    ("recovery points", LogDir, "write_recovery_points"),
    ("log starts", LogDir, "write_log_starts"),
    ("clean mark", Path, "touch"),
    ("session", ZooKeeper, "close"),
    ("connections", SocketServer, "close"),
]


def watch(monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, Any, str]], note: Callable[[str], None]) -> None:
    """Have ``note`` called with a step's name before each of its calls."""
    for name, owner, attribute in steps:
        original = getattr(owner, attribute)

        def noted(*args: Any, _original: Any = original, _name: str = name, **options: Any) -> Any:
            note(_name)
            return _original(*args, **options)

        monkeypatch.setattr(owner, attribute, noted)


def firsts(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def broker_with_a_log(zk: ZooKeeper, zk_connect: str, directory: Path) -> Broker:
    """Make a broker that has yet to get its id, and finds one log."""
    zk.create(TopicZnode.path("t"), TopicZnode({0: (1001,)}).encode(), make_parents=True)
    (directory / "data" / "t-0").mkdir(parents=True)
    return Broker(config(zk_connect, directory / "data", -1))


@pytest.mark.spec("BRK-119", "BRK-117")
def test_every_step_of_a_start_in_its_order_and_requests_are_read_last(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_with_a_log(zk, zk_connect, tmp_path)
    order: list[str] = []
    early: list[RawClient] = []

    def note(step: str) -> None:
        order.append(step)
        if step == "controller":  # the listeners are open
            early.append(RawClient(broker.port))
            request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="1")
            early[0].socket.sendall(encode_request(api_versions.API, 0, 7, "early", request))
        elif step == "requests":
            assert early[0].answers_nothing_for(0.1), "accepted, not read"

    watch(monkeypatch, _START, note)
    with broker:
        assert decode_response(api_versions.API, 0, early[0].receive())[0] == 7
        early[0].close()
        assert broker.broker_id == 1001
        assert "broker.id=1001" in (tmp_path / "data" / "meta.properties").read_text()
        with client_of(broker) as client:
            known = client.send(metadata.API, 2, MetadataRequest(topics=[])).cluster_id
            node = zk.get(ClusterIdZnode.PATH)
            assert node is not None and ClusterIdZnode.decode(node.data) == known
            assert f"cluster.id={known}\n" in (tmp_path / "data" / "meta.properties").read_text()
    assert firsts(order) == [name for name, _, _ in _START]


def _listening() -> set[int]:
    return {one.laddr.port for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}


@pytest.mark.spec("BRK-119")
@pytest.mark.parametrize("fails", [name for name, _, _ in _START])
def test_a_failure_at_any_step_stops_what_was_started_and_is_told(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    broker = broker_with_a_log(zk, zk_connect, tmp_path)
    threads, ports = set(threading.enumerate()), _listening()

    def fail(step: str) -> None:
        if step == fails:
            raise KafkatoolError(f"{step} on purpose")

    with monkeypatch.context() as broken:
        watch(broken, _START, fail)
        with pytest.raises(KafkatoolError, match=f"{fails} on purpose"):
            broker.start()
    files = [file.path for file in psutil.Process().open_files()]
    assert not [path for path in files if Path(path).is_relative_to(tmp_path)]
    assert _listening() <= ports
    DirLock(tmp_path / "data").release()
    assert not zk.children(BrokersZnode.PATH)
    assert zk.get(ControllerZnode.PATH) is None
    wait_until(lambda: set(threading.enumerate()) <= threads)


@pytest.mark.spec("BRK-127")
def test_every_step_of_a_stop_in_its_order(zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    watch(monkeypatch, _STOP, order.append)
    schedule, cancel = Scheduler.schedule, ScheduledTask.cancel
    expirations: list[ScheduledTask] = []

    def scheduled(scheduler: Scheduler, name: str, *args: Any, **options: Any) -> ScheduledTask:
        task = schedule(scheduler, name, *args, **options)
        if name == "isr-expiration":
            expirations.append(task)
        return task

    def cancelled(task: ScheduledTask) -> None:
        if task in expirations:
            order.append("tasks of replicas")
        cancel(task)

    monkeypatch.setattr(Scheduler, "schedule", scheduled)
    monkeypatch.setattr(ScheduledTask, "cancel", cancelled)
    hour = "3600000"  # none is written between the requests and the stop
    broker = Broker(config(zk_connect, tmp_path / "data", replica_high_watermark_checkpoint_interval_ms=hour))
    broker.start()
    with client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        assert append(client, "t", b"a", b"b").error_code == 0
    order.clear()
    broker.stop()
    steps = [name for name, _, _ in _STOP]
    steps.insert(steps.index("fetchers"), "tasks of replicas")
    assert firsts(order) == steps
    files = {path.name: path.read_text() for path in (tmp_path / "data").glob("*-checkpoint")}
    assert files["replication-offset-checkpoint"] == files["recovery-point-offset-checkpoint"] == "0\n1\nt 0 2\n"
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
