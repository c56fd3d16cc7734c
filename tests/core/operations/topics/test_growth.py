"""Partitions added while somebody else adds some, or deletes the topic."""

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.topics import growth
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.topics.interfering import interfering
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.spec("TOP-15", "ASG-6")
def test_growth_is_planned_again_over_somebody_elses_growth(zk: ZooKeeper) -> None:
    grown = growth.grow(interfering(zk, lambda: growth.grow(zk, "t", 2)), "t", 3)
    assert list(grown.added) == [2]
    assert nodes.assignment(zk, "t") == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    with pytest.raises(RefusedError, match="can only be increased"):
        growth.grow(interfering(zk, lambda: growth.grow(zk, "t", 5)), "t", 4)


@pytest.mark.spec("TOP-15")
def test_a_topic_that_went_meanwhile_is_told_as_missing(zk: ZooKeeper) -> None:
    with pytest.raises(growth.TopicMissingError):
        growth.plan_growth(zk, "gone", 2)
