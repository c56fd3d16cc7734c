"""The snapshot tools work on: what is unreadable, gone or foreign in ZooKeeper neither stops nor misleads it."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    ClusterIdZnode,
    ControllerZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
)
from tests.core.zookeeper import cluster_nodes as nodes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FOREIGN = (
    "/kafka-acl/Topic/t",
    "/kafka-acl-changes",
    "/feature",
    "/delegation_token/tokens",
    "/brokers/ids/1/x",
    "/brokers/topics/t/comment",
    "/brokers/topics/t/partitions/0/other",
    "/config/ips/10.0.0.1",
    "/admin/something",
)


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 2), 1: (2, 1)}})


@pytest.mark.spec("Z-32")
def test_nodes_nobody_knows_are_left_alone_and_change_nothing(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_cluster(zk, configs=True)
    for path in FOREIGN:
        if not path.startswith("/brokers/ids"):  # an ephemeral node has no children
            zk.create(path, b"\xff not json", make_parents=True)
    zk.create("/brokers/other", b"{")
    asked: set[str] = set()

    def noting(ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(what: str | Sequence[str]) -> Any:
            asked.update([what] if isinstance(what, str) else what)
            return ask(what)

        return noted

    for name in ("get", "get_many", "children", "children_many"):
        monkeypatch.setattr(zk, name, noting(getattr(zk, name)))
    assert read_cluster(zk, configs=True) == before
    assert "/brokers/topics/t" in asked and asked.isdisjoint((*FOREIGN, "/brokers/other")), "nor are they read"


@pytest.mark.spec("Z-35", "Z-7")
def test_unreadable_nodes_count_as_absent_and_the_rest_is_read(zk: ZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    zk.create("/brokers/ids/3", b"rubbish")
    zk.create("/brokers/ids/4", b'{"version":0,"host":"h","port":1}')
    zk.create("/brokers/ids/5", b'{"version":"4","endpoints":["PLAINTEXT://h:1"]}')
    zk.create("/brokers/topics/u", b"[]")
    zk.set("/brokers/topics/t/partitions/1/state", b"{}", 0)
    zk.create("/config/topics/t", b"rubbish", make_parents=True)
    with caplog.at_level(logging.WARNING):
        view = read_cluster(zk, configs=True)
    assert list(view.brokers) == [1, 2] and list(view.topics) == ["t"] and list(view.states) == [T0]
    assert view.configs["t"] == {}
    brokers = [f"/brokers/ids/{number}" for number in (3, 4, 5)]
    for path in (*brokers, "/brokers/topics/u", "partitions/1/state", "/config/topics/t"):
        assert path in caplog.text
    told = (*brokers, "/brokers/topics/u", "/brokers/topics/t/partitions/1/state", "/config/topics/t")
    assert view.unreadable == told


@pytest.mark.spec("Z-36")
def test_nodes_without_content_count_as_absent_and_raise_nothing(zk: ZooKeeper) -> None:
    for path in ("/brokers/ids/3", "/brokers/topics/u", ReassignmentZnode.PATH, PreferredElectionZnode.PATH):
        zk.create(path, b"", make_parents=True)
    zk.set("/brokers/topics/t/partitions/1/state", b"", 0)
    zk.create("/config/topics/t", b"", make_parents=True)
    zk.set(ClusterIdZnode.PATH, b"", 0)
    view = read_cluster(zk, configs=True)
    assert list(view.brokers) == [1, 2] and list(view.topics) == ["t"] and list(view.states) == [T0]
    assert (view.configs["t"], view.reassignment, view.election, view.cluster_id) == ({}, {}, (), None)


@pytest.mark.spec("Z-35", "Z-18")
@pytest.mark.parametrize("path", [ControllerZnode.PATH, ReassignmentZnode.PATH, PreferredElectionZnode.PATH])
def test_what_must_not_be_guessed_is_an_error(zk: ZooKeeper, path: str) -> None:
    if path == ControllerZnode.PATH:
        zk.delete(path)
        assert read_cluster(zk).controller_id is None, "nobody rules where there is no node"
    zk.create(path, b"rubbish", make_parents=True)
    with pytest.raises(ZnodeFormatError, match=path):
        read_cluster(zk)


@pytest.mark.spec("Z-36")
def test_a_node_that_goes_between_listing_and_reading_is_absent(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    children_many = zk.children_many

    def with_ghosts(paths: list[str]) -> list[list[str] | None]:
        ghosts = {"/brokers/ids": "7", TopicsZnode.PATH: "gone"}
        return [
            [*(found or []), *([ghosts[p]] if p in ghosts else [])]
            for p, found in zip(paths, children_many(paths), strict=True)
        ]

    monkeypatch.setattr(zk, "children_many", with_ghosts)
    zk.delete("/brokers/topics/t/partitions/1/state")
    view = read_cluster(zk, configs=True)
    assert list(view.brokers) == [1, 2] and list(view.topics) == ["t"] and list(view.states) == [T0]
    assert read_cluster(zk, ["never", "t"]).partitions() == [T0, T1]


@pytest.mark.spec("Z-37")
def test_children_that_are_no_broker_ids_are_skipped_with_a_warning(
    zk: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    strange = ("abc", "-1", "1x", "٣x")
    for name in strange:
        zk.create(f"/brokers/ids/{name}", b"{}")
    assert list(read_cluster(zk).brokers) == [1, 2]
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "/brokers/ids" in line and all(name in line for name in strange)
