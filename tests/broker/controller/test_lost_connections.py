"""ZooKeeper stays away for longer than one asks again, in the middle of an event; the session may live on."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.znodes import ControllerZnode, ReassignmentZnode
from tests.broker.controller.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)
_CALLS = ("get", "get_many", "children", "children_many", "commit_many")


class Cuts:
    """Breaks the controller's connection at its ``number``-th call from now on, once."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self._left = number
        session = cluster.brokers[cluster.controller_id].session
        for name in _CALLS:
            setattr(session, name, self._counted(getattr(session, name)))

    @property
    def happened(self) -> bool:
        return self._left <= 0

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise ConnectionLostError("lost")
            return call(*arguments)

        return counted


@pytest.mark.spec("CTL-18", "CTL-21", "CTL-39", "CTL-121")
def test_a_brokers_death_is_dealt_with_though_the_connection_breaks_at_any_point() -> None:
    for number in range(1, 100):
        cluster = FakeCluster(1, 2, 3)
        cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [2, 3, 1]})
        cuts = Cuts(cluster, number)
        cluster.kill(2)
        cluster.run()
        assert cluster.leaders("t") == [3, 3, 3], number
        assert cluster.state("t").isr == (3,), number
        assert cluster.brokers[3].roles[T0].leader == 3, number
        assert (cluster.controller_id, cluster.controller_epoch) == (1, 2 if cuts.happened else 1), "a new term"
        if not cuts.happened:
            assert number > 4
            return
    raise AssertionError("handling it never came to an end")


@pytest.mark.spec("CTL-21", "CTL-98")
def test_a_reassignment_is_finished_though_the_connection_breaks_at_any_point() -> None:
    for number in range(1, 200):
        cluster = FakeCluster(1, 2, 3, 4)
        cluster.create_topic("t", {0: [2, 3]})
        cuts = Cuts(cluster, number)
        cluster.reassign({T0: [3, 4]})
        assert cluster.assignment("t") == {0: (3, 4)}, number
        assert set(cluster.state("t").isr) == {3, 4}, number
        assert not cluster.exists(ReassignmentZnode.PATH), number
        # A cut behind step 10 may leave the old replica where it is, as a crash does: nobody knows of it any more.
        if not cuts.happened:
            assert T0 not in cluster.brokers[2].roles
            assert number > 10
            return
    raise AssertionError("the reassignment never came to an end")


@pytest.mark.spec("CTL-21", "CTL-69")
def test_a_topic_comes_online_though_the_connection_breaks_at_any_point() -> None:
    for number in range(1, 100):
        cluster = FakeCluster(1, 2)
        cuts = Cuts(cluster, number)
        cluster.create_topic("t", {0: [2, 1]})
        assert cluster.brokers[1].roles[T0].leader == cluster.brokers[2].roles[T0].leader == 2, number
        if not cuts.happened:
            assert number > 3
            return
    raise AssertionError("handling it never came to an end")


@pytest.mark.spec("CTL-6", "CTL-7")
def test_a_controller_that_could_not_delete_its_node_rules_again_when_zookeeper_is_back() -> None:
    cluster = FakeCluster(1, 2)
    worker, session = cluster.controller, cluster.brokers[1].session

    def lost(path: str, watch: object = None) -> None:
        raise ConnectionLostError("lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "get", lost)
        worker.step_down()
    assert worker.term is None and worker.known_id is None and cluster.exists(ControllerZnode.PATH)
    node = cluster.zk.get(ControllerZnode.PATH)
    assert node is not None
    cluster.zk.set(ControllerZnode.PATH, node.data, -1)  # its watch fires, as it does after a reconnection
    cluster.run()
    assert cluster.controller is worker
    assert cluster.controller_epoch == 2
    after = cluster.zk.get(ControllerZnode.PATH)
    assert after is not None and after.czxid > node.czxid, "the old one was deleted"
