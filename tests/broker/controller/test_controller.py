"""The controller on its own threads, with a real ZooKeeper and real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkatool.broker.config import BrokerConfig
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.model import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.error_codes import ErrorCode
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.registry import APIS
from kafkatool.core.protocol.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.protocol.types import Buffer
from kafkatool.core.protocol.update_metadata import UpdateMetadataResponse
from kafkatool.core.znodes import (
    PERSISTENT_PATHS,
    BrokerZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
)
from kafkatool.core.zookeeper import ZooKeeper
from tests.waiting import eventually

T0 = TopicPartition("t", 0)


class SocketBroker:
    """Accepts one connection after the other, answers every control request, remembers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, object]] = []  # version, message
        self.drop_next = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(length, "big"))
                header, offset = decode_header(frame)
                message = decode_request(header, frame, offset)
                if self.drop_next:
                    self.drop_next -= 1
                    return
                self.requests.append((header.api_version, message))
                api = APIS[header.api_key]
                chunks = encode_response(api, header.api_version, header.correlation_id, self._answer(message))
                connection.sendall(b"".join(bytes(c) for c in chunks if isinstance(c, Buffer)))

    @staticmethod
    def _answer(message: object) -> object:
        match message:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(
                    partitions=[
                        LeaderAndIsrResponsePartition(topic=s.topic, partition=s.partition)
                        for s in message.partition_states
                    ]
                )
            case StopReplicaRequest():
                return StopReplicaResponse(partitions=[])
        return UpdateMetadataResponse()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed by the controller
        self._thread.join()


@contextmanager
def controller(connect: str, broker_id: int, log: StateChangeLog, **properties: str) -> Iterator[Controller]:
    names = {k.replace("_", "."): v for k, v in properties.items()}
    config = BrokerConfig.from_properties({"zookeeper.connect": connect, **names})
    with ZooKeeper(connect, session_timeout_ms=6000) as zookeeper:
        found = Controller(zookeeper, config=config, broker_id=broker_id, state_change_log=log)
        found.startup()
        try:
            yield found
        finally:
            found.shutdown()


@pytest.fixture
def base(zk: ZooKeeper) -> ZooKeeper:
    for path in PERSISTENT_PATHS:
        zk.create(path, make_parents=True)
    return zk


@pytest.fixture
def broker() -> Iterator[SocketBroker]:
    found = SocketBroker()
    yield found
    found.close()


def register(zk: ZooKeeper, broker_id: int, port: int) -> None:
    info = BrokerInfo(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", port),))
    zk.create(BrokerZnode.path(broker_id), BrokerZnode.encode(info, 0), ephemeral=True)


def state(zk: ZooKeeper) -> LeaderAndIsr | None:
    node = zk.get(PartitionStateZnode.path(T0))
    return PartitionStateZnode.decode(T0, node.data) if node else None


@pytest.mark.spec("CTL-4", "CTL-10", "CTL-49", "CTL-51", "CTL-71", "CTL-117", "BRK-3", "Z-15")
def test_a_topic_gets_its_leader_and_the_broker_is_told(
    base: ZooKeeper, zk_connect: str, broker: SocketBroker, tmp_path: Path
) -> None:
    log = StateChangeLog(tmp_path / "state-change.log")
    with controller(zk_connect, 1, log) as found:
        assert found.is_active
        assert (found.epoch, found.active_controller_id) == (1, 1)
        broker.drop_next = 2  # a broken connection: sent again
        register(base, 1, broker.port)
        base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
        eventually(lambda: any(isinstance(m, LeaderAndIsrRequest) for _, m in broker.requests), "LeaderAndIsr")
        assert state(base) == LeaderAndIsr(1, 0, (1,), 1)
        version, told = next((v, m) for v, m in broker.requests if isinstance(m, LeaderAndIsrRequest))
        assert isinstance(told, LeaderAndIsrRequest)
        assert version == 2
        node = base.get(BrokerZnode.path(1))
        assert node is not None
        assert told.broker_epoch == node.czxid
        eventually(lambda: "for request LEADER_AND_ISR" in (tmp_path / "state-change.log").read_text(), "the answer")
        assert found.gauges()["ActiveControllerCount"] == 1
    log.close()


@pytest.mark.spec("CTL-5", "CTL-8", "CTL-22", "CTL-112", "CTL-16")
def test_the_second_takes_over_when_the_first_stops(base: ZooKeeper, zk_connect: str) -> None:
    log = StateChangeLog(None)
    with controller(zk_connect, 2, log) as second_to_rule:
        assert second_to_rule.is_active
        with controller(zk_connect, 3, log) as follower:
            assert not follower.is_active
            assert follower.active_controller_id == 2
            assert follower.controlled_shutdown(3, None) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])
            assert second_to_rule.controlled_shutdown(3, None) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
            node = base.get(ControllerZnode.PATH)
            assert node is not None
            base.delete(ControllerZnode.PATH, node.version)
            eventually(lambda: second_to_rule.is_active != follower.is_active, "exactly one controller")
            eventually(lambda: max(second_to_rule.epoch, follower.epoch) == 2, "the next epoch")
        eventually(lambda: second_to_rule.is_active, "the survivor rules")
    epoch = base.get(ControllerEpochZnode.PATH)
    assert epoch is not None
    assert ControllerEpochZnode.decode(epoch.data) >= 2


@pytest.mark.spec("CTL-15", "CTL-28", "Z-42")
def test_a_wide_topic_is_led_and_deleted_in_fenced_transactions(
    base: ZooKeeper, zk_connect: str, broker: SocketBroker
) -> None:
    count = 700
    base.create(TopicZnode.path("t"), TopicZnode(dict.fromkeys(range(count), (1,))).encode())
    register(base, 1, broker.port)
    with controller(zk_connect, 1, StateChangeLog(None), delete_topic_enable="true") as found:
        paths = [PartitionStateZnode.path(TopicPartition("t", n)) for n in range(count)]
        eventually(lambda: all(base.get_many(paths)), "all led")
        assert found.gauges()["OfflinePartitionsCount"] == 0
        base.create("/admin/delete_topics/t")
        eventually(lambda: base.children("/brokers/topics") == [], "the topic gone")
        eventually(lambda: base.children("/admin/delete_topics") == [], "the mark gone")


@pytest.mark.spec("CTL-53", "CTL-56", "BRK-3")
def test_the_request_versions_follow_the_inter_broker_protocol(
    base: ZooKeeper, zk_connect: str, broker: SocketBroker
) -> None:
    with controller(zk_connect, 1, StateChangeLog(None), inter_broker_protocol_version="1.1"):
        register(base, 1, broker.port)
        base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
        eventually(lambda: len({type(m) for _, m in broker.requests}) == 2, "both kinds")
        assert {(type(m).__name__, v) for v, m in broker.requests} == {
            ("LeaderAndIsrRequest", 1),
            ("UpdateMetadataRequest", 4),
        }
