"""Topics created while somebody else writes, and where their replicas go."""

import random
from typing import Any

import pytest

from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.operations.topics import creation
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ConfigZnode, TopicZnode
from tests.core.operations.topics.interfering import interfering
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = pytest.mark.usefixtures("cluster")


def data(zk: ZooKeeper, path: str) -> bytes:
    node = zk.get(path)
    assert node is not None
    return node.data


@pytest.mark.spec("TOP-23X", "TOP-5", "Z-14")
def test_of_two_that_create_a_topic_one_wins_with_its_own_config(zk: ZooKeeper) -> None:
    other = interfering(zk, lambda: creation.create_topic(zk, "x", {0: (2,)}, {"retention.ms": "2"}))
    with pytest.raises(creation.TopicExistsError, match="Topic 'x' already exists"):
        creation.create_topic(other, "x", {0: (1,)}, {"retention.ms": "1"})
    assert nodes.assignment(zk, "x") == {0: (2,)}
    assert data(zk, ConfigZnode.path("topics", "x")) == b'{"version":1,"config":{"retention.ms":"2"}}'


@pytest.mark.spec("TOP-23X", "Z-14")
def test_a_left_over_config_that_changes_meanwhile_is_read_again(zk: ZooKeeper) -> None:
    path = ConfigZnode.path("topics", "x")
    zk.create(path, b'{"version":1,"config":{"retention.ms":"9"}}')
    assert "x" not in read_cluster(zk, configs=True).topics, "a config alone is no topic"
    creation.create_topic(interfering(zk, lambda: zk.set(path, b"{}", 0)), "x", {0: (1,)})
    assert data(zk, path) == b'{"version":1,"config":{}}'


@pytest.mark.spec("ASG-2", "ASG-3", "TOP-30X")
def test_the_spread_is_drawn_unless_fixed(zk: ZooKeeper) -> None:
    for seed in range(20):
        fixed = creation.plan_spread(zk, 2, 2, start_index=1, rng=random.Random(seed))
        assert fixed == {0: (2, 1), 1: (3, 2)}  # the shift is 1 too
    assert creation.plan_spread(zk, 2, 2, start_index=1, replica_shift=0) == {0: (2, 3), 1: (3, 1)}
    shifted = {tuple(creation.plan_spread(zk, 1, 2, replica_shift=1, rng=random.Random(s))[0]) for s in range(50)}
    assert shifted == {(1, 3), (2, 1), (3, 2)}  # the start is drawn, the shift is not
    drawn = {tuple(creation.plan_spread(zk, 1, 2, rng=random.Random(seed))[0]) for seed in range(50)}
    assert len(drawn) == 6  # every ordered pair of three brokers
    again = [creation.plan_spread(zk, 4, 2, rng=random.Random(7)) for _ in range(2)]
    assert again[0] == again[1]
    first = creation.plan_spread(zk, 4, 2)
    assert any(creation.plan_spread(zk, 4, 2) != first for _ in range(100)), "each time anew, unless a seed is given"


@pytest.mark.spec("ASG-3")
def test_both_numbers_are_drawn_below_the_number_of_brokers(zk: ZooKeeper) -> None:
    bounds: list[int] = []

    class Noting(random.Random):
        def randrange(self, start: int, *more: Any, **options: Any) -> int:
            bounds.append(start)
            return super().randrange(start, *more, **options)

    creation.plan_spread(zk, 1, 2, rng=Noting(1))
    assert bounds == [3, 3]


@pytest.mark.spec("ASG-2")
def test_brokers_stand_in_the_order_of_their_numbers(zk: ZooKeeper) -> None:
    for broker in (10, 9):
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "127.0.0.1", 1),))
        zk.create(BrokerZnode.path(broker), BrokerZnode.encode(info, 0))
    plan = creation.plan_spread(zk, 6, 1, start_index=0)
    assert list(plan.values()) == [(1,), (2,), (3,), (9,), (10,), (1,)]


@pytest.mark.spec("TOP-1", "TOP-23X", "Z-14")
def test_nothing_but_the_two_nodes_is_made(zk: ZooKeeper) -> None:
    made = creation.create_topic(zk, "x", {0: (1,)})
    assert [op.path for op in made.ops] == [ConfigZnode.path("topics", "x"), TopicZnode.path("x")]
    assert zk.children(TopicZnode.path("x")) == []
    config, topic = zk.get_many([op.path for op in made.ops])
    assert config is not None and topic is not None and config.czxid == topic.czxid, "in one transaction"
