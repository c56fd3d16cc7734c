"""Topics go when nothing stands in the way, and only then."""

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.session import Delete, Op
from kafkatool.core.zookeeper.znodes import (
    ConfigZnode,
    DeleteTopicsZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster
from tests.core.zookeeper.ensemble import Crash
from tests.core.zookeeper.memory import MemoryZooKeeper

T0 = TopicPartition("t", 0)
DELETES = {"delete.topic.enable": "true", "auto.leader.rebalance.enable": "false"}


def gone(cluster: FakeCluster) -> bool:
    nodes = (TopicZnode.path("t"), ConfigZnode.path("topics", "t"), DeleteTopicsZnode.topic_path("t"))
    return not any(cluster.exists(n) for n in nodes)


@pytest.mark.spec("CTL-55", "CTL-56", "CTL-57", "CTL-76", "CTL-81", "CTL-82", "CTL-83", "CTL-85", "Z-42")
def test_a_topic_is_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    cluster.create_topic("stays", {0: [1, 2]})
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert gone(cluster)
    assert not any(s.topic == "t" for _, s in cluster.leader_and_isr())
    for broker in (1, 2, 3):
        first = next(m for b, m in cluster.metadata() if b == broker)
        assert [(s.topic, s.partition, s.leader) for s in first.partition_states] == [("t", 0, -2), ("t", 1, -2)]
        assert [p for p in cluster.brokers[broker].metadata if p.topic == "t"] == []
        mine = [d for b, d, _ in cluster.stops() if b == broker]
        assert mine == sorted(mine)  # every stop before the first delete
    assert sorted((b, p.partition) for b, d, p in cluster.stops() if d) == [(1, 0), (2, 0), (2, 1), (3, 1)]
    deletes = [m for _, m in cluster.sent if isinstance(m, StopReplicaRequest) and m.delete_partitions]
    assert all(len(m.partitions) == 1 for m in deletes)
    assert cluster.state("stays").leader == 1


@pytest.mark.spec("CTL-80", "TOP-18", "Z-20")
def test_with_deletion_disabled_the_entry_has_no_effect_until_a_controller_with_it_takes_over() -> None:
    cluster = FakeCluster(1, 2, properties={"delete.topic.enable": "false"})
    cluster.create_topic("t", {0: [1, 2]})
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert not cluster.sent
    assert cluster.exists(DeleteTopicsZnode.topic_path("t"))
    cluster.kill(1)
    cluster.run()
    assert cluster.state("t").leader == 2
    assert {s.leader for _, m in cluster.metadata() for s in m.partition_states} >= {2}
    assert -2 not in {s.leader for _, m in cluster.metadata() for s in m.partition_states}
    cluster.properties = DELETES
    cluster.restart(1)
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert gone(cluster)


@pytest.mark.spec("CTL-77")
def test_an_entry_for_an_unknown_topic_is_removed() -> None:
    cluster = FakeCluster(1, properties=DELETES)
    cluster.delete_topic("nothing")
    assert not cluster.exists(DeleteTopicsZnode.topic_path("nothing"))


@pytest.mark.spec("CTL-78", "CTL-34", "CTL-79")
def test_deletion_waits_for_a_replica_on_a_dead_broker() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(3)
    cluster.run()
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    assert not any(d for _, d, _ in cluster.stops())
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t").leader == 2  # no elections for it any more
    cluster.restart(2)
    cluster.restart(3)
    assert gone(cluster)


@pytest.mark.spec("CTL-83", "CTL-84")
def test_a_broker_that_dies_in_the_middle_deletes_after_its_return() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.brokers[3].stop_error = 56
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    assert cluster.brokers[2].deleted == [T0]
    cluster.kill(3)
    cluster.run()
    assert cluster.exists(TopicZnode.path("t"))
    cluster.restart(3)
    assert gone(cluster)
    assert cluster.brokers[3].deleted == [T0]
    assert cluster.brokers[2].deleted == [T0]  # not asked again


@pytest.mark.spec("CTL-79", "CTL-97", "CTL-105", "CTL-88")
def test_deletion_waits_for_a_reassignment_and_admits_no_new_one() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    cluster.catching_up = False
    cluster.reassign({T0: [3, 2]})
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    data = ReassignmentZnode.encode({T0: (3, 2), TopicPartition("t", 1): (3, 2)})
    cluster.zk.set(ReassignmentZnode.PATH, data, -1)
    cluster.run()
    node = cluster.zk.get(ReassignmentZnode.PATH)
    assert node is not None
    assert list(ReassignmentZnode.decode(node.data)) == [T0]
    cluster.catching_up = True
    cluster.run()
    assert gone(cluster)
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-105", "CTL-27", "CTL-106")
def test_deletion_waits_for_a_preferred_election_found_at_failover() -> None:
    cluster = FakeCluster(9, 1, 2, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.kill(1)
    cluster.run()
    cluster.restart(1)
    cluster.kill(9)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0]))
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.sent.clear()
    stops_before: list[int] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and op.path == PreferredElectionZnode.PATH:
            stops_before.append(len(cluster.stops()))

    cluster.ensemble.on_write = note
    cluster.run()
    assert stops_before == [0], "nothing of the topic was stopped before the pass had ended"
    assert gone(cluster)
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-86", "CTL-24")
@pytest.mark.parametrize("last", [TopicZnode.path("t"), ConfigZnode.path("topics", "t")])
def test_a_deletion_cut_short_is_finished_by_the_next_controller(last: str) -> None:
    cluster = FakeCluster(9, 1, 2, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]})

    def die(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and op.path == last:
            cluster.ensemble.on_write = lambda session, op: None
            session.crash()
            raise Crash

    cluster.ensemble.on_write = die
    cluster.delete_topic("t")
    assert cluster.controller_id != 9
    assert gone(cluster)


@pytest.mark.spec("CTL-69")
def test_a_topic_whose_nodes_vanish_is_forgotten() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    term = cluster.controller.term
    assert term is not None
    term.zookeeper.delete_tree(TopicZnode.path("t"))
    cluster.sent.clear()
    cluster.run()
    assert not cluster.sent
    assert term.context.assignments == {}
    assert term.context.leadership == {}


@pytest.mark.spec("CTL-35", "CTL-83")
def test_what_a_broker_answers_for_its_former_life_does_not_end_the_deletion() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [3]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.work(1)
    (asked,) = [
        request
        for channel, request in cluster.network
        if channel.broker.id == 3 and isinstance(m := request.message, StopReplicaRequest) and m.delete_partitions
    ]
    cluster.kill(3)
    cluster.start(3)
    assert asked.on_answer is not None
    asked.on_answer(StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, partitions=[]))
    cluster.run()
    assert gone(cluster)
