from collections.abc import Sequence

import pytest

from kafkatool.broker.registration.strays import find_strays, read_identities
from kafkatool.broker.storage.directories.topic_identity import TopicIdentity
from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import ClusterIdZnode, TopicsZnode, TopicZnode


@pytest.mark.spec("BRK-150", "BRK-145")
def test_strays_are_what_no_topic_node_assigns_to_this_broker(zk: ZooKeeper) -> None:
    zk.create(TopicZnode.path("a"), TopicZnode({0: (1, 2), 1: (2, 3)}).encode(), make_parents=True)
    zk.create(TopicZnode.path("odd"), b"not json")
    found = [TopicPartition(*name) for name in (("a", 0), ("a", 1), ("a", 2), ("gone", 0), ("odd", 0))]
    assert find_strays(zk, 1, dict.fromkeys(found)) == ({found[1], found[2], found[3]}, {}), "there is no cluster id"
    assert find_strays(zk, 3, dict.fromkeys(found[:2])).strays == {found[0]}
    assert find_strays(zk, 1, {}) == (set(), {})


def _make(zk: ZooKeeper, topic: str, data: bytes | None = None) -> TopicIdentity:
    zk.create(TopicZnode.path(topic), data or TopicZnode({0: (1,), 1: (1,)}).encode(), make_parents=True)
    cluster, node = zk.get_many([ClusterIdZnode.PATH, TopicZnode.path(topic)])
    assert cluster is not None and node is not None
    return TopicIdentity(cluster.czxid, node.czxid)


@pytest.mark.spec("BRK-150", "BRK-41")
def test_a_log_of_an_earlier_topic_is_a_stray_though_the_present_one_is_assigned_here(zk: ZooKeeper) -> None:
    zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("c"), make_parents=True)
    earlier, odd = _make(zk, "a"), _make(zk, "odd")
    zk.delete(TopicZnode.path("a"))
    a0, a1, odd0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("odd", 0)
    now = _make(zk, "a")
    zk.set(TopicZnode.path("a"), TopicZnode({0: (1, 2), 1: (1,)}).encode(), 0)  # a move is no new topic
    zk.set(TopicZnode.path("odd"), b"not json", 0)
    assert find_strays(zk, 1, {a0: earlier, a1: now, odd0: odd._replace(topic=1)}) == ({a0}, {"a": now})
    elsewhere = earlier._replace(cluster=earlier.cluster + 1)
    assert find_strays(zk, 1, {a0: elsewhere, a1: None}) == (set(), {"a": now}), "ZooKeeper was copied; not noted"


@pytest.mark.spec("BRK-150", "BRK-41")
def test_identities_are_read_behind_a_write_and_none_where_zookeeper_cannot_be_asked(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("c"), make_parents=True)
    a = _make(zk, "a")
    asked: list[str] = []
    create, get_many = zk.create, zk.get_many

    def created(path: str) -> str:
        asked.append(f"write {path}")
        return create(path)

    def gathered(paths: Sequence[str]) -> list[Node | None]:
        asked.append("read")
        return get_many(paths)

    monkeypatch.setattr(zk, "create", created)
    monkeypatch.setattr(zk, "get_many", gathered)
    assert read_identities(zk, ["a", "gone"]) == {"a": a}
    assert asked == [f"write {TopicsZnode.PATH}", "read"]

    def lost(*_: object) -> None:
        raise ConnectionLostError("lost")

    monkeypatch.setattr(zk, "get_many", lost)
    assert read_identities(zk, ["a"]) == {}


@pytest.mark.spec("BRK-150", "BRK-41")
def test_what_is_read_in_another_session_than_the_write_was_made_in_does_not_count(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may lag behind: an earlier topic's identity, noted, would have the present one's log set aside."""
    zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("c"), make_parents=True)
    _make(zk, "a")
    sessions = iter((1, 2))
    monkeypatch.setattr(ZooKeeper, "session_id", property(lambda _: next(sessions)))
    assert read_identities(zk, ["a"]) == {}
