"""A broker that missed the order to delete a replica, and whose controller forgot that it owes it.

Replicas on brokers 1 and 2; 1 is away, the partition moves to 3 and 2. Then the controller that would tell 1 rules no more,
1 is back with what it has, and the topic is deleted and made again on 1 and 2; or all that happens before 1 is back.
"""

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkatool.broker.server import Broker
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ANY_VERSION, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.broker.test_server import append, client_of, config, read
from tests.core.zookeeper.sessions import end_session
from tests.waiting import eventually

T0 = TopicPartition("t", 0)


class Away:
    """Keeps broker 1, whose process lives on, from registering again until it may."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.may_return = threading.Event()
        self.strays: list[int] = []  # of the topic, each time it is about to register
        before_registering = Broker.before_registering_again

        def wait(broker: Broker) -> None:
            if broker.broker_id == 1:
                assert self.may_return.wait(100)
            before_registering(broker)
            if broker.broker_id == 1:
                self.strays.append(len(list(broker.config.log_dirs[0].glob("t-0.*-stray"))))

        patch.setattr(Broker, "before_registering_again", wait)


def in_sync(zk: ZooKeeper) -> tuple[int | None, set[int]]:
    node = zk.get(PartitionStateZnode.path(T0))
    state = PartitionStateZnode.decode(T0, node.data) if node else None
    return (state.leader, set(state.isr)) if state else (None, set())


def assigned(zk: ZooKeeper) -> tuple[int, ...]:
    node = zk.get(TopicZnode.path("t"))
    return tuple(TopicZnode.decode("t", node.data).assignment[0]) if node else ()


def controller_epoch(zk: ZooKeeper) -> int:
    node = zk.get(ControllerEpochZnode.PATH)
    assert node is not None
    return ControllerEpochZnode.decode(node.data)


@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-41", "BRK-110", "BRK-122")
@pytest.mark.parametrize("away", ["stopped", "without session"])
def test_records_of_a_deleted_topic_do_not_come_back_with_a_broker_that_missed_the_move(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    held = Away(monkeypatch)
    brokers = {n: Broker(config(zk_connect, tmp_path / str(n) / "data", n)) for n in (3, 2, 1)}
    own = BrokerZnode.path(1)
    with ExitStack() as running:
        running.callback(held.may_return.set)
        for broker in brokers.values():
            running.enter_context(broker)
        create_topic(zk, "t", {0: (1, 2)}, {})
        eventually(lambda: in_sync(zk) == (1, {1, 2}), "the topic", 60)
        with client_of(brokers[1]) as client:
            eventually(lambda: append(client, "t", b"old").error_code == 0, "the old records", 60)
        if away == "stopped":
            brokers[1].stop(controlled=False)
        else:
            end_session(zk_connect, lambda: node.ephemeral_owner if (node := zk.get(own)) else 0)
        eventually(lambda: zk.get(own) is None, "broker 1 to be away", 60)
        zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (3, 2)}))
        eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the move", 60)
        epoch = controller_epoch(zk)
        zk.delete(ControllerZnode.PATH)
        eventually(lambda: controller_epoch(zk) > epoch and bool(zk.get(ControllerZnode.PATH)), "the next term", 60)
        if away == "stopped":
            brokers[1].start()
        held.may_return.set()
        eventually(lambda: zk.get(own) is not None, "broker 1 to be back", 60)
        zk.create(DeleteTopicsZnode.topic_path("t"))
        eventually(lambda: zk.get(DeleteTopicsZnode.topic_path("t")) is None, "the deletion", 60)
        assert zk.get(TopicZnode.path("t")) is None
        create_topic(zk, "t", {0: (1, 2)}, {})
        eventually(lambda: in_sync(zk) == (1, {1, 2}), "the new topic", 60)
        with client_of(brokers[1]) as client:
            eventually(lambda: append(client, "t", b"new").error_code == 0, "the new records", 60)
            assert read(client, "t") == [b"new"]
        assert len(list((tmp_path / "1" / "data").glob("t-0.*-stray"))) == 1
        assert set(held.strays) == (set() if away == "stopped" else {1}), "before it registers again"


@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-41", "BRK-150", "BRK-122")
@pytest.mark.parametrize("away", ["stopped", "without session"])
@pytest.mark.parametrize("how", ["made on it", "moved to it"])
def test_records_of_a_deleted_topic_do_not_come_back_with_a_broker_that_was_away_until_the_next_of_that_name(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str, how: str
) -> None:
    held = Away(monkeypatch)
    brokers = {n: Broker(config(zk_connect, tmp_path / str(n) / "data", n)) for n in (3, 2, 1)}
    own = BrokerZnode.path(1)
    with ExitStack() as running:
        running.callback(held.may_return.set)
        for broker in brokers.values():
            running.enter_context(broker)
        create_topic(zk, "t", {0: (1, 2)}, {})
        eventually(lambda: in_sync(zk) == (1, {1, 2}), "the topic", 60)
        with client_of(brokers[1]) as client:
            eventually(lambda: append(client, "t", *[b"old"] * 5).error_code == 0, "the old records", 60)
        if away == "stopped":
            brokers[1].stop(controlled=False)
        else:
            end_session(zk_connect, lambda: node.ephemeral_owner if (node := zk.get(own)) else 0)
        eventually(lambda: zk.get(own) is None, "broker 1 to be away", 60)
        zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (3, 2)}))
        eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the move", 60)
        zk.create(DeleteTopicsZnode.topic_path("t"))
        eventually(lambda: zk.get(DeleteTopicsZnode.topic_path("t")) is None, "the deletion", 60)
        create_topic(zk, "t", {0: (2, 1) if how == "made on it" else (2, 3)}, {})
        eventually(lambda: in_sync(zk)[0] == 2, "the new topic", 60)
        with client_of(brokers[2]) as client:
            eventually(lambda: append(client, "t", b"new", b"newer").error_code == 0, "the new records", 60)
        if how == "moved to it":
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (2, 1)}))
            eventually(lambda: 1 in assigned(zk), "the move to begin", 60)
        if away == "stopped":
            brokers[1].start()
        held.may_return.set()
        eventually(lambda: in_sync(zk)[1] >= {1, 2}, "broker 1 to be in sync", 60)
        eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the move to end", 60)
        brokers[2].stop()
        eventually(lambda: in_sync(zk)[0] == 1, "broker 1 to lead", 60)
        with client_of(brokers[1]) as client:
            eventually(lambda: read(client, "t") == [b"new", b"newer"], "the records, none of them old", 60)
        assert len(list((tmp_path / "1" / "data").glob("t-0.*-stray"))) == 1
        assert set(held.strays) == (set() if away == "stopped" else {1}), "before it registers again"


@pytest.mark.spec("BRK-122")
@pytest.mark.parametrize("cluster_id", [None, b"not json", b'{"version":"1"}'])
def test_a_zookeeper_that_lost_the_cluster_has_no_say_about_replicas(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture, cluster_id: bytes | None
) -> None:
    """All topics are missing there: set aside, and erased, they would be lost with it."""
    own = BrokerZnode.path(1)
    with Broker(config(zk_connect, tmp_path / "data")) as broker, client_of(broker) as client:
        create_topic(zk, "t", {0: (1,)}, {})
        eventually(lambda: in_sync(zk) == (1, {1}), "the topic", 60)
        eventually(lambda: append(client, "t", b"kept").error_code == 0, "the records", 60)
        if cluster_id is None:
            zk.delete(ClusterIdZnode.PATH)
        else:
            zk.set(ClusterIdZnode.PATH, cluster_id, ANY_VERSION)
        zk.delete(PartitionStateZnode.path(T0))
        before = broker.broker_epoch
        end_session(zk_connect, lambda: node.ephemeral_owner if (node := zk.get(own)) else 0)
        eventually(lambda: broker.broker_epoch != before, "the broker to be back", 60)
        assert "no replica here is touched" in caplog.text
    assert not list((tmp_path / "data").glob("t-0.*-stray")) and (tmp_path / "data" / "t-0").is_dir()
