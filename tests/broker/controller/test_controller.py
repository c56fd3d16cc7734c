"""The controller on its own threads, with a real ZooKeeper and real sockets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.controller.telling import request_batch
from kafkatool.broker.controller.work.controlled_shutdown import ControlledShutdown
from kafkatool.broker.controller.work.requested_election import RequestedElection
from kafkatool.broker.controller.work.requested_moves import RequestedMoves
from kafkatool.broker.controller.work.topic_changes import TopicChanges
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import ControllerFencedError, KafkatoolError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
)
from tests.stub_broker import StubBroker, register
from tests.waiting import eventually

T0 = TopicPartition("t", 0)


@contextmanager
def controller(connect: str, broker_id: int, log: StateChangeLog, **properties: str) -> Iterator[Controller]:
    names = {k.replace("_", "."): v for k, v in properties.items()}
    config = BrokerConfig.from_properties({"zookeeper.connect": connect, **names})
    with ZooKeeper(connect, session_timeout_ms=60_000) as zookeeper:
        found = Controller(zookeeper, config=config, broker_id=broker_id, state_change_log=log)
        found.startup()
        try:
            yield found
        finally:
            found.shutdown()


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    found = StubBroker()
    yield found
    found.close()


def state(zk: ZooKeeper) -> LeaderAndIsr | None:
    node = zk.get(PartitionStateZnode.path(T0))
    return PartitionStateZnode.decode(T0, node.data) if node else None


@pytest.mark.spec("CTL-4", "CTL-10", "CTL-12", "CTL-49", "CTL-51", "CTL-71", "CTL-117", "BRK-3", "Z-8", "Z-15")
def test_a_topic_gets_its_leader_and_the_broker_is_told(
    base: ZooKeeper, zk_connect: str, broker: StubBroker, tmp_path: Path
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
        sent: list[Any] = [m for _, m in broker.requests]
        assert {type(m) for m in sent} == {LeaderAndIsrRequest, UpdateMetadataRequest}
        assert {m.broker_epoch for m in sent} == {node.czxid}
        eventually(lambda: "for request LEADER_AND_ISR" in (tmp_path / "state-change.log").read_text(), "the answer")
        assert found.gauges()["ActiveControllerCount"] == 1
    log.close()


@pytest.mark.spec("CTL-8", "CTL-22", "CTL-112", "BRK-34")
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


@pytest.mark.spec("CTL-112", "CTL-121")
@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (
            TypeError("a bug"),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "controller event 'controlled shutdown' failed unexpectedly",
        ),
        (KafkatoolError("no"), ErrorCode.STALE_CONTROLLER_EPOCH, "controlled shutdown of broker 3 failed: no"),
    ],
    ids=["bug", "error"],
)
def test_a_controlled_shutdown_that_fails_is_answered_with_a_code_and_logged_once(
    base: ZooKeeper,
    zk_connect: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: ErrorCode,
    logged: str,
) -> None:
    """Raised on both threads, one bug was two of them, with one traceback that both changed."""

    def buggy(*_: object) -> None:
        raise error

    with controller(zk_connect, 1, StateChangeLog(None)) as found:
        monkeypatch.setattr(ControlledShutdown, "serve", buggy)
        assert found.controlled_shutdown(3, None) == (code, [])
        monkeypatch.undo()
        assert found.controlled_shutdown(3, None) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
    assert caplog.messages.count(logged) == 1


@pytest.mark.spec("ADM-61", "ADM-64", "CTL-121")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TypeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkatoolError("no"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ControllerFencedError("another rules"), ErrorCode.NOT_CONTROLLER),
    ],
    ids=["bug", "error", "term over"],
)
@pytest.mark.parametrize(
    ("part", "name", "ask"),
    [
        (RequestedMoves, "alter", lambda c, done: c.alter_moves({T0: (1,)}, may_change_factor=True, done=done)),
        (RequestedMoves, "ongoing", lambda c, done: c.list_moves(None, done)),
        (RequestedElection, "elect", lambda c, done: c.elect_leaders(None, unclean=False, done=done)),
    ],
    ids=["moves", "list", "election"],
)
def test_a_request_that_fails_is_asked_again_only_of_another_controller(
    zk_connect: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: ErrorCode,
    part: type,
    name: str,
    ask: Callable[[Controller, Callable[[object], None]], None],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    heard: SimpleQueue[object] = SimpleQueue()
    monkeypatch.setattr(part, name, fail)
    with controller(zk_connect, 1, StateChangeLog(None)) as found:
        ask(found, heard.put)
        assert heard.get(timeout=240) is code
    assert heard.empty(), "it is answered once"


@pytest.mark.spec("CTL-28", "Z-42")
def test_a_wide_topic_is_led_and_deleted_in_fenced_transactions(
    base: ZooKeeper, zk_connect: str, broker: StubBroker
) -> None:
    count = 700
    base.create(TopicZnode.path("t"), TopicZnode(dict.fromkeys(range(count), (1,))).encode())
    register(base, 1, broker.port)
    with controller(zk_connect, 1, StateChangeLog(None), delete_topic_enable="true") as found:
        paths = [PartitionStateZnode.path(TopicPartition("t", n)) for n in range(count)]
        eventually(lambda: all(base.get_many(paths)), "all led")
        eventually(lambda: found.gauges()["OfflinePartitionsCount"] == 0, "the controller to have been told so")
        base.create("/admin/delete_topics/t")
        eventually(lambda: base.children("/brokers/topics") == [], "the topic gone")
        eventually(lambda: base.children("/admin/delete_topics") == [], "the mark gone")


@pytest.mark.spec("CTL-53", "CTL-56", "BRK-3")
@pytest.mark.parametrize(
    ("protocol", "versions"),
    [
        ("0.10.0", (0, 2, 0)),
        ("0.10.1", (0, 2, 0)),
        ("0.10.2", (0, 3, 0)),
        ("0.11.0", (0, 3, 0)),
        ("1.0", (1, 4, 0)),
        ("1.1", (1, 4, 0)),
        ("2.0", (1, 4, 0)),
        ("2.1", (1, 4, 0)),
        ("2.2", (2, 5, 1)),
        ("2.3", (2, 5, 1)),
    ],
)
def test_the_request_versions_follow_the_inter_broker_protocol(
    base: ZooKeeper, zk_connect: str, broker: StubBroker, protocol: str, versions: tuple[int, int, int]
) -> None:
    settings = {"inter_broker_protocol_version": protocol, "delete_topic_enable": "true"}
    with controller(zk_connect, 1, StateChangeLog(None), **settings):
        register(base, 1, broker.port)
        base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
        eventually(lambda: len(broker.versions()) == 2, "both kinds")
        base.create("/admin/delete_topics/t")
        eventually(lambda: len(broker.versions()) == 3, "all kinds")
        kinds = ("LeaderAndIsrRequest", "UpdateMetadataRequest", "StopReplicaRequest")
        assert broker.versions() == {kind: {version} for kind, version in zip(kinds, versions, strict=True)}


@pytest.mark.spec("CTL-21", "CTL-50", "CTL-121")
@pytest.mark.parametrize(
    ("owner", "name"), [(TopicChanges, "read"), (request_batch, "UpdateMetadataRequest")], ids=["work", "sending"]
)
def test_a_bug_ends_its_event_alone_and_the_controller_rules_on(
    base: ZooKeeper,
    zk_connect: str,
    broker: StubBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
) -> None:
    """Electing anew for each would leave the cluster without controller: the next one would meet the same bug."""
    bugs: list[str] = []

    def buggy(*arguments: object, **names: object) -> None:
        bugs.append(name)
        raise TypeError("a bug")

    with controller(zk_connect, 1, StateChangeLog(None)) as found:
        register(base, 1, broker.port)
        eventually(lambda: found.gauges()["LeaderElectionCount"] == 1, "the broker to be known")
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, buggy)
            base.create(TopicZnode.path("u"), TopicZnode({0: (1,)}).encode())
            eventually(lambda: bool(bugs), "the bug")
            eventually(lambda: "controller event 'topic change' failed unexpectedly" in caplog.messages, "its log line")
        base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
        eventually(lambda: state(base) is not None, "the next topic's leader")
        assert state(base) == LeaderAndIsr(1, 0, (1,), 1)
        assert (found.is_active, found.epoch, found.gauges()["FailoverCount"]) == (True, 1, 1)
        node = base.get(ControllerEpochZnode.PATH)
        assert node is not None and ControllerEpochZnode.decode(node.data) == 1
