"""Preferred election, rebalance, controlled shutdown, notifications."""

import pytest

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.znodes import (
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)
NO_REBALANCE = {"auto.leader.rebalance.enable": "false"}


def context(cluster: FakeCluster) -> ControllerContext:
    term = cluster.controller.term
    assert term is not None
    return term.context


@pytest.mark.spec("CTL-100", "CTL-101", "CTL-102", "CTL-103", "CTL-104", "CTL-57", "ELE-7", "ELE-8")
def test_preferred_election() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [4, 3]})
    cluster.kill(2, 4)
    cluster.run()
    cluster.restart(2)
    cluster.sent.clear()
    before = [cluster.state("t", n) for n in range(3)]
    cluster.elect_preferred(*(TopicPartition("t", n) for n in range(3)), TopicPartition("nope", 0))
    assert cluster.state("t", 0) == LeaderAndIsr(2, 2, (3, 2), 1)
    assert [cluster.state("t", n) for n in (1, 2)] == before[1:]  # led already; preferred one is dead
    assert not cluster.exists(PreferredElectionZnode.PATH)
    assert sorted((b, s.topic, s.partition) for b, s in cluster.leader_and_isr()) == [(2, "t", 0), (3, "t", 0)]
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3]


@pytest.mark.spec("CTL-106", "CTL-27")
def test_a_new_controller_finishes_an_election_it_finds() -> None:
    cluster = FakeCluster(9, 1, 2, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.kill(1)
    cluster.run()
    cluster.restart(1)
    cluster.kill(9)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0, TopicPartition("gone", 1)]))
    cluster.run()
    assert cluster.state("t").leader == 1
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("Z-35", "CTL-104")
def test_an_unreadable_election_is_deleted() -> None:
    cluster = FakeCluster(1)
    cluster.zk.create(PreferredElectionZnode.PATH, b"{")
    cluster.run()
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-107", "CTL-109", "ELE-12")
def test_the_rebalance_gives_leadership_back_by_itself() -> None:
    cluster = FakeCluster(1, 2, 3, properties={"leader.imbalance.check.interval.seconds": "60"})
    cluster.create_topic("t", {n: [2, 3] for n in range(4)})
    cluster.timer.advance(5000)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.leaders("t") == [3] * 4
    cluster.timer.advance(59_999)
    cluster.run()
    assert cluster.leaders("t") == [3] * 4
    cluster.timer.advance(1)
    cluster.run()
    assert cluster.leaders("t") == [2] * 4
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-107", "CTL-109", "ELE-12")
def test_the_rebalance_leaves_things_alone_during_a_reassignment_or_when_it_is_off() -> None:
    for properties in ({}, NO_REBALANCE):
        cluster = FakeCluster(1, 2, 3, 4, properties=properties)
        cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
        cluster.kill(2)
        cluster.run()
        cluster.restart(2)
        if not properties:
            cluster.catching_up = False
            cluster.reassign({T0: [3, 4]})
        cluster.timer.advance(400_000)
        cluster.run()
        assert cluster.state("t", 1).leader == 3


@pytest.mark.spec("CTL-112", "CTL-113", "CTL-114", "CTL-115", "CTL-116", "BRK-34", "CTL-57")
def test_controlled_shutdown_moves_leaders_and_empties_the_isr() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [2], 3: [2, 3, 1]})
    cluster.kill(1)  # not the one that stops, but the one whose replica is out of sync afterwards
    cluster.run()
    term = cluster.controller.term
    assert term is not None
    stopping = 3 if cluster.controller_id == 2 else 2
    other = 5 - stopping
    cluster.catching_up = False  # a broker that is stopping fetches no more
    cluster.sent.clear()
    code, remaining = term.controlled_shutdown.serve(stopping, cluster.brokers[stopping].epoch)
    cluster.run()
    assert (code, remaining) == (ErrorCode.NONE, [])
    assert [cluster.state("t", n).leader for n in (0, 1, 3)] == [other] * 3
    assert all(cluster.state("t", n).isr == (other,) for n in (0, 1, 3))
    assert cluster.state("t", 2) == LeaderAndIsr(2, 0, (2,), 1)  # alone: not touched
    assert {(b, d) for b, d, _ in cluster.stops()} == {(stopping, False)}
    assert stopping in {b for b, _ in cluster.metadata()}  # still registered, still told
    assert term.controlled_shutdown.serve(77, None) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
    assert term.controlled_shutdown.serve(2, 0) == (ErrorCode.STALE_BROKER_EPOCH, [])
    cluster.kill(stopping)
    cluster.run()
    cluster.restart(stopping)
    assert stopping in context(cluster).live_brokers


@pytest.mark.spec("CTL-116")
def test_the_answer_names_what_could_not_be_moved() -> None:
    cluster = FakeCluster(1, 2, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    term = cluster.controller.term
    assert term is not None
    assert term.controlled_shutdown.serve(2, None) == (ErrorCode.NONE, [T0])


@pytest.mark.spec("CTL-110", "Z-30")
def test_isr_changes_are_passed_on_to_all_brokers() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
    cluster.catching_up = False
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(LeaderAndIsr(2, 0, (2,), 1)), -1)
    cluster.sent.clear()
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}0", IsrChangeZnode.encode([T0]))
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}1", b"garbage")
    cluster.run()
    assert cluster.zk.children(IsrChangeZnode.PATH) == []
    told = {b: [(s.partition, s.isr, s.zk_version) for s in m.partition_states] for b, m in cluster.metadata()}
    assert told == {b: [(0, [2], 1)] for b in (1, 2, 3)}
    assert not cluster.leader_and_isr()


@pytest.mark.spec("CTL-122", "CTL-61", "Z-47")
def test_a_failed_log_directory_costs_its_replicas_their_roles_until_it_is_back() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [2, 3]})
    broken = cluster.brokers[2]
    broken.storage_errors = {T0, TopicPartition("t", 1)}
    cluster.sent.clear()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))
    cluster.run()
    assert cluster.zk.children(LogDirEventZnode.PATH) == []
    assert cluster.leaders("t") == [3, 3, 2]
    assert cluster.state("t", 1).isr == (3,)
    last = {s.partition: s.offline_replicas for _, m in cluster.metadata() for s in m.partition_states}
    assert last[0] == [2]
    assert last[1] == [2]
    broken.storage_errors = set()
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.state("t", 0).isr == (3, 2)
