"""A reassignment, a deletion and a failover that meet; each was found by the simulation (tests/simulation)."""

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Op
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, ReassignmentZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster
from tests.core.zookeeper.memory import MemoryZooKeeper

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PROPERTIES = {"auto.leader.rebalance.enable": "false", "delete.topic.enable": "true"}


@pytest.mark.spec("CTL-27", "CTL-78", "CTL-79", "CTL-98")
def test_at_failover_a_deletion_comes_before_a_reassignment_of_the_same_topic() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(1, 2)
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (3, 1)}), make_parents=True)
    cluster.run()
    assert not cluster.exists(ReassignmentZnode.PATH)
    cluster.restart(2)
    assert not cluster.exists(TopicZnode.path("t"))
    assert not cluster.exists(DeleteTopicsZnode.topic_path("t"))


@pytest.mark.spec("CTL-78", "CTL-79")
def test_a_reassignment_that_can_go_no_further_gives_way_to_the_deletion() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2]})
    cluster.kill(2)
    cluster.run()
    cluster.reassign({T0: [3]})  # waits: nobody leads, nobody can join the ISR
    cluster.delete_topic("t")  # and from now on nobody is elected
    assert not cluster.exists(ReassignmentZnode.PATH)
    cluster.restart(2)
    assert not cluster.exists(TopicZnode.path("t"))


@pytest.mark.spec("CTL-84")
def test_a_broker_that_had_deleted_its_replica_and_died_does_not_hold_the_deletion_up() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.brokers[3].stop_error = 56
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    cluster.kill(2)  # it has answered
    cluster.run()
    cluster.kill(3)
    cluster.restart(3)
    assert not cluster.exists(TopicZnode.path("t"))


@pytest.mark.spec("CTL-25", "CTL-88", "CTL-98")
def test_a_partition_made_while_the_failover_reads_is_reassigned_all_the_same() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2]})
    read = MemoryZooKeeper.get_many
    met: list[bool] = []

    def grow_behind(session: MemoryZooKeeper, paths: list[str], watch: object = None) -> object:
        nodes = read(session, paths, watch)  # type: ignore[arg-type]
        if TopicZnode.path("t") in paths and watch is not None and session is cluster.brokers[2].session and not met:
            met.append(True)
            grown = TopicZnode({0: (2,), 1: (2,)}).encode()
            cluster.zk.set(TopicZnode.path("t"), grown, -1)
            cluster.zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T1: (3,)}), make_parents=True)
        return nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryZooKeeper, "get_many", grow_behind)
        cluster.kill(1)
        cluster.run()
    assert met
    assert cluster.assignment("t") == {0: (2,), 1: (3,)}
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-91", "CTL-93", "BRK-110")
def test_the_old_replicas_stay_assigned_until_they_are_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2]})
    early: list[str] = []

    def look(session: MemoryZooKeeper, op: Op) -> None:
        if op.path == TopicZnode.path("t") and cluster.assignment("t") == {0: (3,)} and not cluster.brokers[2].deleted:
            early.append(op.path)

    cluster.ensemble.on_write = look
    cluster.reassign({T0: [3]})
    assert cluster.assignment("t") == {0: (3,)}
    assert T0 in cluster.brokers[2].deleted
    assert not early


@pytest.mark.spec("CTL-91", "CTL-34", "BRK-110")
def test_a_dead_broker_does_not_hold_a_reassignment_up_and_is_told_to_delete_when_it_returns() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.reassign({T0: [3]})
    assert cluster.assignment("t") == {0: (3,)}
    assert not cluster.exists(ReassignmentZnode.PATH)
    cluster.restart(2)
    assert cluster.brokers[2].deleted == [T0]


@pytest.mark.spec("CTL-84", "CTL-97")
def test_a_deletion_that_waits_for_a_broker_goes_on_when_the_topic_has_moved_away_from_it() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.catching_up = False
    cluster.reassign({T0: [2, 4]})
    cluster.brokers[3].stop_error = 56
    cluster.delete_topic("t")
    cluster.kill(3)
    cluster.run()
    assert cluster.exists(TopicZnode.path("t"))
    cluster.catching_up = True
    cluster.run()
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert not cluster.exists(TopicZnode.path("t"))


@pytest.mark.spec("CTL-91")
def test_a_topic_that_grows_at_any_write_of_a_move_keeps_both() -> None:
    """As Kafka's own tool lets it, which does not look whether the topic moves."""
    number, grew = 0, True
    while grew:
        number += 1
        cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
        cluster.create_topic("t", {0: [2, 3]})
        writes = [0]

        _grow_at_write(cluster, number, writes)
        cluster.reassign({T0: [3, 1]})
        cluster.run()
        grew = writes[0] >= number
        assert not cluster.exists(ReassignmentZnode.PATH), number
        assert cluster.assignment("t") == ({0: (3, 1), 1: (2,)} if grew else {0: (3, 1)}), number
        assert cluster.leaders("t") == ([3, 2] if grew else [3]), number
    assert number > 5


def _grow_at_write(cluster: FakeCluster, number: int, writes: list[int]) -> None:
    def grow(_: MemoryZooKeeper, __: Op) -> None:
        writes[0] += 1
        if writes[0] == number:
            node = cluster.zk.get(TopicZnode.path("t"))
            assert node is not None
            topic = TopicZnode.decode("t", node.data)
            cluster.zk.set(TopicZnode.path("t"), TopicZnode({**topic.assignment, 1: (2,)}).encode(), node.version)

    cluster.ensemble.on_write = grow
