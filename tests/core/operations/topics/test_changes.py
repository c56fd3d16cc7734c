"""Topic operations when somebody else writes at the same time, and the names they take."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model import topic_names as names
from kafkatool.core.operations.topics import changes as operation
from kafkatool.core.zookeeper.session import Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode, DeleteTopicsZnode, TopicZnode
from tests.core.zookeeper import cluster_nodes as nodes

CONFIG = ConfigZnode.path("topics", "t")


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> ZooKeeper:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    return zk


def data(zk: ZooKeeper, path: str) -> bytes:
    node = zk.get(path)
    assert node is not None
    return node.data


class Interfering:
    """A session that lets ``act`` write first, ``times`` times, whenever a write is about to go out."""

    def __init__(self, zk: ZooKeeper, act: Callable[[], object], times: int = 1) -> None:
        self._zk, self._act, self._left = zk, act, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zk, name)

    def _interfere(self) -> None:
        if self._left:
            self._left -= 1
            self._act()

    def set(self, path: str, content: bytes, version: int) -> int:
        self._interfere()
        return self._zk.set(path, content, version)

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        self._interfere()
        return self._zk.commit(ops)


def interfering(zk: ZooKeeper, act: Callable[[], object], times: int = 1) -> ZooKeeper:
    return Interfering(zk, act, times)  # type: ignore[return-value]


@pytest.mark.spec("TOP-23X", "TOP-5")
def test_of_two_that_create_a_topic_one_wins_with_its_own_config(zk: ZooKeeper) -> None:
    other = interfering(zk, lambda: operation.create_topic(zk, "x", {0: (2,)}, {"retention.ms": "2"}))
    with pytest.raises(operation.TopicExistsError):
        operation.create_topic(other, "x", {0: (1,)}, {"retention.ms": "1"})
    assert nodes.assignment(zk, "x") == {0: (2,)}
    assert data(zk, ConfigZnode.path("topics", "x")) == b'{"version":1,"config":{"retention.ms":"2"}}'


@pytest.mark.spec("TOP-23X")
def test_a_left_over_config_that_changes_meanwhile_is_read_again(zk: ZooKeeper) -> None:
    path = ConfigZnode.path("topics", "x")
    zk.create(path, b'{"version":1,"config":{"retention.ms":"9"}}')
    operation.create_topic(interfering(zk, lambda: zk.set(path, b"{}", 0)), "x", {0: (1,)})
    assert data(zk, path) == b'{"version":1,"config":{}}'


@pytest.mark.spec("TOP-14")
def test_a_config_somebody_else_changed_is_merged_again(zk: ZooKeeper) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{"flush.ms":"1"}}')
    theirs = b'{"version":1,"config":{"flush.ms":"1","retention.ms":"7"}}'
    change = operation.change_configs(interfering(zk, lambda: zk.set(CONFIG, theirs, 0)), "t", {"segment.ms": "5"})
    assert change.configs == {"flush.ms": "1", "retention.ms": "7", "segment.ms": "5"}
    assert len(zk.children(ConfigChangeZnode.PATH) or ()) == 1


@pytest.mark.spec("TOP-14")
def test_a_config_that_never_rests_is_given_up(zk: ZooKeeper) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{}}')
    with pytest.raises(RefusedError, match="all the time"):
        operation.change_configs(interfering(zk, lambda: zk.set(CONFIG, b"{}", -1), 99), "t", {"segment.ms": "5"})
    assert zk.children(ConfigChangeZnode.PATH) == []


@pytest.mark.spec("TOP-15", "ASG-6")
def test_growth_is_planned_again_over_somebody_elses_growth(zk: ZooKeeper) -> None:
    growth = operation.grow(interfering(zk, lambda: operation.grow(zk, "t", 2)), "t", 3)
    assert list(growth.added) == [2]
    assert nodes.assignment(zk, "t") == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    with pytest.raises(RefusedError, match="can only be increased"):
        operation.grow(interfering(zk, lambda: operation.grow(zk, "t", 5)), "t", 4)


@pytest.mark.spec("TOP-15")
def test_a_topic_that_went_meanwhile_is_told_as_missing(zk: ZooKeeper) -> None:
    with pytest.raises(operation.TopicMissingError):
        operation.plan_growth(zk, "gone", 2)


@pytest.mark.spec("TOP-17")
def test_a_mark_is_set_once(zk: ZooKeeper) -> None:
    operation.mark_for_deletion(zk, "t")
    with pytest.raises(operation.MarkedForDeletionError):
        operation.mark_for_deletion(zk, "t")
    assert zk.children(DeleteTopicsZnode.PATH) == ["t"]


@pytest.mark.spec("ASG-2", "ASG-3", "TOP-30X")
def test_the_spread_is_drawn_unless_fixed(zk: ZooKeeper) -> None:
    assert operation.plan_spread(zk, 2, 2, start_index=1) == {0: (2, 1), 1: (3, 2)}
    assert operation.plan_spread(zk, 2, 2, start_index=1, replica_shift=0) == {0: (2, 3), 1: (3, 1)}
    drawn = {tuple(operation.plan_spread(zk, 1, 2, rng=random.Random(seed))[0]) for seed in range(50)}
    assert len(drawn) == 6  # every ordered pair of three brokers
    again = [operation.plan_spread(zk, 4, 2, rng=random.Random(7)) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.spec("TOP-2")
@pytest.mark.parametrize("text", ["", "1:", "a", "1:2,,3", "-1", "1;2"])
def test_replica_lists_hold_broker_ids(text: str) -> None:
    with pytest.raises(RefusedError, match="expected broker ids"):
        operation.parse_replica_lists(text)


def test_replica_lists_may_have_spaces() -> None:
    assert operation.parse_replica_lists("1 : 2, 3:1") == [(1, 2), (3, 1)]


@pytest.mark.spec("TOP-1")
def test_nothing_but_the_two_nodes_is_made(zk: ZooKeeper) -> None:
    creation = operation.create_topic(zk, "x", {0: (1,)})
    assert [op.path for op in creation.ops] == [ConfigZnode.path("topics", "x"), TopicZnode.path("x")]
    assert zk.children(TopicZnode.path("x")) == []


@pytest.mark.spec("TOP-3")
@pytest.mark.parametrize("name", ["a", "A-b_c.9", "n" * 249, "__consumer_offsets", "..."])
def test_legal_names(name: str) -> None:
    names.check_name(name)


@pytest.mark.spec("TOP-3")
@pytest.mark.parametrize("name", ["", ".", "..", "n" * 250, "a b", "a/b", "ä", "a\n"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(names.InvalidTopicError):
        names.check_name(name)


@pytest.mark.spec("TOP-19")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, ["a", "b", "ab", "__consumer_offsets"]),
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ('"a.*"', ["a", "ab"]),
        ("'.*'", ["a", "b", "ab", "__consumer_offsets"]),
        ("[ab]", ["a", "b"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str | None, found: list[str]) -> None:
    assert names.select(["b", "a", "__consumer_offsets", "ab"], pattern) == sorted(found)
