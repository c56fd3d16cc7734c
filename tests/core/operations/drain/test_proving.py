"""The proof of a drain asks brokers until they have answered."""

from pathlib import Path

import pytest

from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import LoginRefusedError, RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import Answers
from kafkatool.core.operations.drain import way as ways
from kafkatool.core.operations.drain.by_znode import ByZnode
from kafkatool.core.operations.drain.drain import Drain
from kafkatool.core.operations.drain.proof import Proof
from kafkatool.core.operations.drain.way import Terms
from kafkatool.core.protocol.messages import describe_log_dirs
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponseKey
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    BrokerZnode,
    PartitionStateZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.core.zookeeper import cluster_nodes as nodes
from tests.stub_broker import StubBroker, register


@pytest.mark.spec("ADM-106", "SEC-40")
@pytest.mark.parametrize(
    ("results", "on_disk"),
    [([describe_log_dirs.DescribeLogDirsResult(log_dir="/d")], ()), ([], None)],
    ids=["an empty directory", "no directory, as to one who may not ask"],
)
def test_a_broker_that_does_not_answer_at_first_is_asked_again(
    zk: ZooKeeper,
    tmp_path: Path,
    results: list[describe_log_dirs.DescribeLogDirsResult],
    on_disk: tuple[()] | None,
) -> None:
    broker = StubBroker()
    broker.api_keys = [ApiVersionsResponseKey(api_key=describe_log_dirs.API.key, min_version=0, max_version=1)]
    broker.answers[describe_log_dirs.API.key] = describe_log_dirs.DescribeLogDirsResponse(results=results)
    broker.drop_next = 1
    try:
        zk.create(BrokersZnode.PATH, make_parents=True)
        register(zk, 1, broker.port)
        with Connections() as connections:
            way = ByZnode(zk, connections)
            (proof,) = Drain(way, [1], tmp_path, on_progress=lambda _: None).prove(way.look([1])).proofs
    finally:
        broker.close()
    assert proof == Proof(1, live=True, assigned=(), in_sync=(), leads=(), on_disk=on_disk)
    assert proof.drained is (on_disk is not None)


@pytest.mark.spec("ADM-106")
def test_a_login_that_the_proof_needs_and_that_is_refused_is_told_before_anything_is_written(
    zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, brokers=(1, 2, 3), topics={"t": {0: (1, 2)}})
    refused = LoginRefusedError("h:1", "refused the login of alice (SASL PLAIN): wrong password")
    monkeypatch.setattr(ways, "ask_brokers", lambda *_, **__: Answers({}, {1: refused}))
    drain = Drain(ByZnode(zk, Connections()), [1], tmp_path, on_progress=lambda _: None)
    with pytest.raises(RefusedError, match=r"wrong password.*; nothing was written"):
        drain.plan(Terms(None, 0, rack_aware=True))
    with pytest.raises(RefusedError, match=r"wrong password.*; nothing was written"):
        list(drain.start(Terms(None, 0, rack_aware=True)))
    assert zk.get(ReassignmentZnode.PATH) is None and list(tmp_path.iterdir()) == []


STATE = PartitionStateZnode.path(TopicPartition("t", 0))


@pytest.mark.spec("ADM-106", "Z-35")
@pytest.mark.parametrize("path", [TopicZnode.path("u"), STATE, BrokerZnode.path(9)], ids=["topic", "state", "broker"])
def test_a_node_that_cannot_be_read_keeps_the_proof_from_holding(
    zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 2)}})
    monkeypatch.setattr(ways, "ask_brokers", lambda *_, **__: Answers({}, {}))
    way = ByZnode(zk, Connections())
    drain = Drain(way, [9], tmp_path, on_progress=lambda _: None)
    assert drain.prove(way.look(None)).drained
    zk.set(path, b"rubbish", -1) if path == STATE else zk.create(path, b"rubbish")
    proven = drain.prove(way.look(None))
    assert proven.hidden == (f"znode {path} cannot be read",) and not proven.drained


@pytest.mark.spec("ADM-106", "Z-35")
@pytest.mark.parametrize("holds", [True, False])
def test_with_a_node_that_cannot_be_read_nothing_is_begun(
    zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    nodes.make_cluster(zk, brokers=(1, 2, 3), topics={"t": {0: (1, 3 if holds else 2)}})
    zk.create(TopicZnode.path("u"), b"rubbish")
    monkeypatch.setattr(ways, "ask_brokers", lambda *_, **__: Answers({}, {}))
    drain = Drain(ByZnode(zk, Connections()), [3], tmp_path, on_progress=lambda _: None)
    with pytest.raises(RefusedError, match=r"znode /brokers/topics/u cannot be read; nothing was written"):
        drain.plan(Terms(None, 0, rack_aware=True))
    if holds:
        with pytest.raises(RefusedError, match=r"znode /brokers/topics/u cannot be read; nothing was written"):
            list(drain.start(Terms(None, 0, rack_aware=True)))
    assert zk.get(ReassignmentZnode.PATH) is None and list(tmp_path.iterdir()) == []
