import pytest

from kafkatool.broker.registration.strays import find_strays
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import TopicZnode


@pytest.mark.spec("BRK-150", "BRK-145")
def test_strays_are_what_no_topic_node_assigns_to_this_broker(zk: ZooKeeper) -> None:
    zk.create(TopicZnode.path("a"), TopicZnode({0: (1, 2), 1: (2, 3)}).encode(), make_parents=True)
    zk.create(TopicZnode.path("odd"), b"not json")
    found = [TopicPartition(*name) for name in (("a", 0), ("a", 1), ("a", 2), ("gone", 0), ("odd", 0))]
    assert find_strays(zk, 1, found) == {found[1], found[2], found[3]}
    assert find_strays(zk, 3, found[:2]) == {found[0]}
    assert find_strays(zk, 1, []) == set()
