"""Brokers that died and came back while no controller ruled: what the next one makes of their places in ISRs."""

import dataclasses
from collections.abc import Sequence

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Node, Watch
from kafkatool.core.zookeeper.znodes import (
    DeleteTopicsZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


def cluster_of(*brokers: int, **properties: str) -> FakeCluster:
    """Start brokers: 1 is the controller; preferred leaders are elected on request only."""
    others = {name.replace("_", "."): value for name, value in properties.items()}
    return FakeCluster(*brokers, properties={"auto.leader.rebalance.enable": "false", **others})


def shrink(cluster: FakeCluster, partition: TopicPartition) -> None:
    """Shrink the ISR as its leader does when nobody else keeps up, and leave it so."""
    cluster.catching_up = False
    path = PartitionStateZnode.path(partition)
    node = cluster.zk.get(path)
    assert node is not None
    state = PartitionStateZnode.decode(partition, node.data)
    assert state.leader is not None
    alone = dataclasses.replace(state, isr=(state.leader,))
    cluster.zk.set(path, PartitionStateZnode.encode(alone), node.version)


def bounce_unseen(cluster: FakeCluster, broker: int) -> None:
    """Let it die with the controller, and be back before the next one rules."""
    cluster.kill(*{1, broker})
    cluster.start(broker, slow_election=True)


@pytest.mark.spec("CTL-35", "CTL-24", "CTL-43", "CTL-63", "CTL-68")
@pytest.mark.parametrize("bounced", [1, 2])
def test_a_broker_that_bounced_while_nobody_ruled_leads_nothing_of_its_former_life(bounced: int) -> None:
    """Its log may have lost its end: whoever lived on has it."""
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", {0: [bounced, 3], 1: [3, bounced], 2: [bounced]})
    bounce_unseen(cluster, bounced)
    cluster.sent.clear()
    cluster.log.lines.clear()
    cluster.run()
    (led,) = cluster.log.told("Changed partition t-")
    assert led.startswith("Changed partition t-0 from OfflinePartition to OnlinePartition"), "its leader counts as dead"
    first_of = {0: "ReplicaDeletionIneligible", 1: "ReplicaDeletionIneligible", 2: "OnlineReplica"}
    for number, status in first_of.items():
        first = cluster.log.told(f"Changed state of replica {bounced} for partition t-{number}")[0]
        assert f" from {status} to " in first, "as on a dead broker, but where nobody else was in sync"
    assert {s.leader for _, s in cluster.leader_and_isr() if s.partition == 0} == {3}, "nobody is told of another first"
    assert cluster.leaders("t") == [3, 3, bounced]
    assert [cluster.state("t", n).isr for n in range(3)] == [(3, bounced), (3, bounced), (bounced,)]
    assert cluster.state("t", 0).leader_epoch > 0
    roles = cluster.brokers[bounced].roles
    assert roles[T0].leader == 3  # and it knows


@pytest.mark.spec("CTL-24")
def test_a_cluster_that_was_down_as_a_whole_leads_on_as_before() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 1]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    cluster.kill(1, 2, 3)
    for broker in (1, 2, 3):
        cluster.start(broker, slow_election=True)
    cluster.run()
    assert cluster.leaders("t") == [3, 3]
    assert [cluster.state("t", n).isr for n in range(2)] == [(3, 2), (3, 1)]


@pytest.mark.spec("CTL-35", "CTL-43")
def test_one_that_alone_was_in_sync_leads_on_whatever_is_known_of_its_other_partitions() -> None:
    """Even where an unclean election is allowed: everybody else certainly has less."""
    cluster = cluster_of(1, 2, 3, 4)
    cluster.create_topic("t", {0: [2, 4], 1: [2, 3]}, unclean_leader_election_enable="true")
    shrink(cluster, T0)
    before = cluster.state("t")
    bounce_unseen(cluster, 2)
    cluster.run()
    assert cluster.state("t") == before
    assert cluster.leaders("t") == [2, 3]


@pytest.mark.spec("CTL-35", "CTL-43")
def test_a_leader_with_a_new_session_that_shrinks_its_isr_while_the_failover_reads_is_not_replaced_uncleanly() -> None:
    """It has lived on, and acknowledged what nobody else has; another partition of the topic may well lose its leader."""
    cluster = cluster_of(1, 2, 3, 4)
    cluster.create_topic("t", {0: [2, 3], 1: [4, 3]}, unclean_leader_election_enable="true")
    shrink(cluster, TopicPartition("t", 1))
    cluster.kill(4)
    cluster.run()
    cluster.zk.set(PartitionStateZnode.path(TopicPartition("t", 1)), b'{"controller_epoch":1,"leader":4,"version":1,'
                   b'"leader_epoch":0,"isr":[4]}', -1)  # fmt: skip  # nobody was elected for it yet
    bounce_unseen(cluster, 2)
    session = cluster.brokers[3].session
    read = session.get_many
    shrunk: list[bool] = []

    def shrinking(paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes = read(paths, watch)
        if PartitionStateZnode.path(T0) in paths and not shrunk:
            shrunk.append(True)
            shrink(cluster, T0)
        return nodes

    session.get_many = shrinking  # type: ignore[method-assign]
    cluster.run()
    assert shrunk and cluster.controller_id == 3
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    assert cluster.brokers[2].roles[T0].leader == 2
    assert cluster.state("t", 1).leader == 3


@pytest.mark.spec("CTL-24", "CTL-35")
def test_what_the_bounce_does_not_concern_is_left_as_it_is_and_clients_see_the_broker_all_the_time() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [2]})
    before = cluster.state("t", 1)
    cluster.sent.clear()
    bounce_unseen(cluster, 2)
    cluster.run()
    assert cluster.state("t", 1) == before
    assert all({b.id for b in m.live_brokers} == {2, 3} for _, m in cluster.metadata())


@pytest.mark.spec("CTL-35", "CTL-38")
def test_a_topic_that_waits_for_its_deletion_tells_nothing_of_a_bounce() -> None:
    """Its states are left as they are when a broker dies, so they are old though that death was seen."""
    cluster = cluster_of(1, 2, 3, 4, delete_topic_enable="true")
    cluster.create_topic("doomed", {0: [2, 3, 4]})
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(4)
    cluster.run()
    cluster.delete_topic("doomed")
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    cluster.elect_preferred(T0)
    before = cluster.state("t")
    assert before.leader == 2
    cluster.kill(1)
    cluster.run()
    assert cluster.state("t") == before
    assert cluster.exists(DeleteTopicsZnode.topic_path("doomed"))


@pytest.mark.spec("CTL-35", "CTL-98")
@pytest.mark.parametrize("wanted", [[3, 2], [2, 4], [4, 2], [3, 4], [4, 5]])
def test_a_reassignment_to_or_from_the_bounced_broker_is_finished(wanted: Sequence[int]) -> None:
    cluster = cluster_of(1, 2, 3, 4, 5)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(1, 2)
    request = ReassignmentZnode.encode({T0: tuple(wanted)})
    cluster.zk.create(ReassignmentZnode.PATH, request, make_parents=True)
    cluster.start(2, slow_election=True)
    cluster.run()
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert cluster.assignment("t")[0] == tuple(wanted)
    assert set(cluster.state("t").isr) == set(wanted)
    for broker in cluster.brokers.values():
        assert (T0 in broker.roles) == (broker.id in wanted)
        assert (T0 in broker.deleted) == (broker.id in (2, 3) and broker.id not in wanted)
        assert broker.metadata[T0] == cluster.state("t").leader


@pytest.mark.spec("CTL-35", "CTL-103")
def test_a_preferred_election_that_the_next_controller_finds_gives_it_nothing_back_before_it_has_caught_up() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(1, 2)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0]))
    cluster.start(2, slow_election=True)
    cluster.run()
    assert not cluster.exists(PreferredElectionZnode.PATH)
    assert cluster.state("t").leader == 3
    assert cluster.state("t").isr == (3, 2)
    cluster.elect_preferred(T0)
    assert cluster.state("t").leader == 2


@pytest.mark.spec("CTL-35")
def test_a_topic_on_the_bounced_broker_is_deleted() -> None:
    cluster = cluster_of(1, 2, 3, delete_topic_enable="true")
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(1, 2)
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.start(2, slow_election=True)
    cluster.run()
    assert not cluster.exists(DeleteTopicsZnode.topic_path("t"))
    assert all(cluster.brokers[b].deleted == [T0] for b in (2, 3))
