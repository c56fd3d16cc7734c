"""A broker that dies: what is decided on which state, what is written, and who is told of it."""

import logging

import pytest

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, PartitionStateZnode
from tests.broker.controller.fake_cluster import FakeCluster

STABLE = {"auto.leader.rebalance.enable": "false"}
T0 = TopicPartition("t", 0)


def put(cluster: FakeCluster, partition: TopicPartition, state: LeaderAndIsr) -> None:
    """Write a state of which the controller hears nothing."""
    cluster.zk.set(PartitionStateZnode.path(partition), PartitionStateZnode.encode(state), -1)


@pytest.mark.spec("CTL-38", "CTL-40", "CTL-47")
def test_what_a_death_changes_are_the_partitions_with_a_replica_there_but_for_topics_being_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties={**STABLE, "delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [3, 4]})
    cluster.create_topic("doomed", {0: [2, 4, 3]})
    cluster.kill(4)
    cluster.run()
    cluster.delete_topic("doomed")  # waits for 4
    before = {p: cluster.state(*p) for p in [("doomed", 0), ("t", 2)]}
    cluster.log.lines.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t", 0) == LeaderAndIsr(3, 1, (3,), 1)
    assert cluster.state("t", 1) == LeaderAndIsr(3, 1, (3,), 1), "its leader lives and stays"
    assert {line.split()[2] for line in cluster.log.told("Changed partition")} == {"t-0"}, "and is not elected again"
    assert {p: cluster.state(*p) for p in before} == before


@pytest.mark.spec("CTL-40", "CTL-47")
def test_a_leader_that_lives_stays_though_the_preferred_one_is_in_sync() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.state("t") == LeaderAndIsr(3, 1, (3, 4, 2), 1)
    cluster.log.lines.clear()
    cluster.kill(4)
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(3, 2, (3, 2), 1)
    assert cluster.log.told("Changed partition") == [], "nobody was elected"


@pytest.mark.spec("CTL-39", "CTL-23", "CTL-62", "CTL-65", "CTL-66")
def test_the_order_of_a_death_is_in_the_log() -> None:
    cluster = FakeCluster(1, 2, 3, properties={**STABLE, "delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [9]})
    cluster.create_topic("doomed", {0: [2, 3]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("doomed"))
    cluster.work(1)  # both replicas are to be deleted, and neither has heard of it
    cluster.log.lines.clear()
    cluster.kill(2)
    cluster.work(1)
    assert cluster.log.told("Changed", "Controller 1 epoch 1 ") == [
        "Changed partition t-0 state from OnlinePartition to OfflinePartition",
        "Changed partition t-0 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=3, leaderEpoch=1, isr=List(3), zkVersion=1)",
        "Controller 1 epoch 1 failed to change state for partition t-2 from NewPartition to OnlinePartition",
        "Changed state of replica 2 for partition t-0 from OnlineReplica to OfflineReplica",
        "Changed state of replica 2 for partition t-1 from OnlineReplica to OfflineReplica",
        "Changed state of replica 2 for partition doomed-0 from ReplicaDeletionStarted to ReplicaDeletionIneligible",
    ]


@pytest.mark.spec("CTL-39", "CTL-57")
def test_where_no_leader_is_lost_all_brokers_are_told_who_is_left() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.sent.clear()
    cluster.kill(3)
    cluster.run()
    assert [(b, m.partition_states, [x.id for x in m.live_brokers]) for b, m in cluster.metadata()] == [
        (1, [], [1, 2]),
        (2, [], [1, 2]),
    ]
    assert [b for b, m in cluster.sent if not isinstance(m, UpdateMetadataRequest)] == []


@pytest.mark.spec("CTL-41")
def test_a_decision_rests_on_the_node_and_not_on_what_the_controller_remembers() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4], 1: [4, 2, 3]})
    cluster.catching_up = False
    put(cluster, T0, LeaderAndIsr(2, 0, (2, 4), 1))  # 3 has left, which nobody has told the controller
    put(cluster, TopicPartition("t", 1), LeaderAndIsr(4, 5, (4, 3), 1))
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t", 0) == LeaderAndIsr(4, 1, (4,), 1)
    assert cluster.state("t", 1) == LeaderAndIsr(4, 5, (4, 3), 1), "2 was not in sync: nothing to write"


@pytest.mark.spec("CTL-14", "Z-38")
def test_a_change_of_a_newer_controllers_state_costs_one_error_and_no_request(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    term = cluster.controller.term
    assert term is not None
    foreign = LeaderAndIsr(3, 7, (3, 2), 2)  # one above ours
    put(cluster, T0, foreign)
    cluster.catching_up = False
    cluster.sent.clear()
    error = "partition t-0 is left alone: its state was written by controller epoch 2, ours is 1"
    cluster.elect_preferred(T0)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [error]
    assert cluster.sent == []
    caplog.clear()
    with term.batch.filling():
        assert term.partitions.raise_epochs({T0: (2, 3)}) == {}, "nor is its epoch raised for a reassignment"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [error]
    assert not cluster.network and cluster.state("t") == foreign
    caplog.clear()
    with term.batch.filling():
        assert term.replicas.move({T0: [2]}, ReplicaStatus.OFFLINE) == {}, "nor does its follower leave the ISR"
    assert cluster.state("t") == foreign
    assert not cluster.network and not cluster.stops()
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


@pytest.mark.spec("CTL-43")
def test_an_unclean_election_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [2, 4, 3]}, unclean_leader_election_enable="true")
    cluster.catching_up = False
    put(cluster, T0, LeaderAndIsr(2, 0, (2,), 1))
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(4, 1, (4,), 1), "the first live one of AR, alone"
    (warning,) = [r.getMessage() for r in caplog.records if "uncleanly" in r.getMessage()]
    assert "partition t-0" in warning and "records may be lost" in warning
    assert [r.levelno for r in caplog.records if "uncleanly" in r.getMessage()] == [logging.WARNING]


@pytest.mark.spec("CTL-44")
@pytest.mark.parametrize("broker", [None, "true", "false"])
@pytest.mark.parametrize("topic", [None, "true", "false"])
def test_unclean_is_allowed_by_the_topic_else_the_broker_as_it_is_then(topic: str | None, broker: str | None) -> None:
    more = {} if broker is None else {"unclean.leader.election.enable": broker}
    cluster = FakeCluster(1, 2, 3, properties={**STABLE, **more})
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable="false" if topic == "true" else "true")
    cluster.catching_up = False
    put(cluster, T0, LeaderAndIsr(2, 0, (2,), 1))
    now = {} if topic is None else {"unclean.leader.election.enable": topic}
    cluster.zk.set(ConfigZnode.path("topics", "t"), ConfigZnode.encode(now), -1)  # changed since, and nobody was told
    cluster.kill(2)
    cluster.run()
    allowed = (topic or broker or "true") == "true"
    assert cluster.state("t").leader == (3 if allowed else None)


@pytest.mark.spec("CTL-45", "CTL-57")
def test_an_election_is_told_in_one_request_to_every_live_replica_and_to_all_by_metadata() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=STABLE)
    cluster.create_topic("t", {n: [2, 3, 4] for n in range(5)})
    cluster.create_topic("u", {0: [2, 3, 4], 1: [2, 3, 4]})
    cluster.catching_up = False
    partitions = [*(TopicPartition("t", n) for n in range(5)), *(TopicPartition("u", n) for n in range(2))]
    for partition in partitions:
        put(cluster, partition, LeaderAndIsr(2, 0, (2, 3), 1))  # 4 is live, and not in sync
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    told = [(b, m) for b, m in cluster.sent if isinstance(m, LeaderAndIsrRequest)]
    assert sorted(b for b, _ in told) == [3, 4]
    for _, request in told:
        states = sorted(request.partition_states, key=lambda s: (s.topic, s.partition))
        assert [(s.topic, s.partition, s.leader, s.leader_epoch, s.isr, s.zk_version) for s in states] == [
            (*partition, 3, 1, [3], 2) for partition in partitions
        ]
    metadata = cluster.metadata()
    assert sorted(b for b, _ in metadata) == [1, 3, 4, 5]
    for _, told_all in metadata:
        assert {(s.topic, s.partition): s.leader for s in told_all.partition_states} == dict.fromkeys(partitions, 3)
    assert not cluster.stops(), "but to the dead one, whom nothing reaches"


@pytest.mark.spec("CTL-45", "CTL-57")
def test_an_election_is_told_to_all_replicas_but_to_one_that_is_about_to_stop_by_metadata_alone() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4, 5]}, unclean_leader_election_enable="false")
    cluster.catching_up = False
    put(cluster, T0, LeaderAndIsr(2, 0, (2,), 1))
    cluster.kill(2)
    cluster.run()
    term = cluster.controller.term
    assert term is not None
    term.context.shutting_down.add(3)
    cluster.sent.clear()
    cluster.restart(2)
    assert cluster.state("t") == LeaderAndIsr(2, 2, (2,), 1)
    assert sorted(b for b, s in cluster.leader_and_isr() if s.leader_epoch == 2) == [2, 4, 5]
    assert {b: s.leader for b, m in cluster.metadata() for s in m.partition_states} == dict.fromkeys(range(1, 6), 2)


@pytest.mark.spec("CTL-44", "CTL-43")
def test_of_two_topics_that_lose_their_leaders_at_once_each_has_its_own_rule() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.catching_up = False
    for topic, allowed in (("strict", "false"), ("t", "true"), ("default", "")):
        overrides = {"unclean_leader_election_enable": allowed} if allowed else {}
        cluster.create_topic(topic, {0: [2, 3]}, **overrides)
        put(cluster, TopicPartition(topic, 0), LeaderAndIsr(2, 0, (2,), 1))
    cluster.kill(2)
    cluster.run()
    assert [cluster.state(topic).leader for topic in ("strict", "t", "default")] == [None, 3, 3]


@pytest.mark.spec("CTL-46", "CTL-65")
def test_without_a_possible_leader_the_partition_stays_offline() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable="false")
    cluster.catching_up = False
    put(cluster, T0, LeaderAndIsr(2, 3, (2,), 1))
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(None, 4, (2,), 1)
    term = cluster.controller.term
    assert term is not None
    assert term.context.status_of(T0) is PartitionStatus.OFFLINE
    assert {s.leader for _, m in cluster.metadata() for s in m.partition_states} == {-1}, "clients are told"


@pytest.mark.spec("CTL-39", "CTL-47", "CTL-57")
@pytest.mark.parametrize("in_sync", [True, False])
def test_a_dead_follower_leaves_the_isr_and_the_others_are_told_in_any_case(in_sync: bool) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4, 1]})  # 1 is alive, and not in sync
    cluster.catching_up = False
    before = LeaderAndIsr(2, 0, (2, 3, 4) if in_sync else (2, 4), 1)
    put(cluster, T0, before)
    node = cluster.ensemble.nodes[PartitionStateZnode.path(T0)]
    cluster.sent.clear()
    cluster.kill(3)
    cluster.run()
    after = LeaderAndIsr(2, 1, (2, 4), 1) if in_sync else before
    assert cluster.state("t") == after
    assert cluster.ensemble.nodes[PartitionStateZnode.path(T0)].version == node.version + in_sync
    told = cluster.leader_and_isr()
    assert sorted(b for b, _ in told) == [1, 2, 4]
    assert all((s.leader, s.leader_epoch, s.isr) == (2, after.leader_epoch, [2, 4]) for _, s in told)
    assert sorted((b, [s.isr for s in m.partition_states]) for b, m in cluster.metadata()) == [
        (b, [[2, 4]]) for b in (1, 2, 4)
    ], "one for each, though no leader was lost"
