"""A broker that starts, or comes back: who is told what, and what is left as it is."""

import logging

import pytest

from kafkatool.broker.controller.deciding.replica_machine import Replicas
from kafkatool.broker.controller.states import ReplicaStatus
from kafkatool.core.model.values import BrokerInfo, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.znodes import BrokerZnode, ConfigZnode, DeleteTopicsZnode, PartitionStateZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster

NO_REBALANCE = {"auto.leader.rebalance.enable": "false"}


@pytest.mark.spec("CTL-31", "CTL-32", "CTL-53", "CTL-54", "CTL-57", "CTL-120")
def test_everybody_learns_of_a_start_and_the_started_broker_of_all_its_replicas_with_a_state() -> None:
    cluster = FakeCluster(1, 2, 3, properties={**NO_REBALANCE, "delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [2, 3], 1: [1, 2], 2: [3, 1], 3: [2, 3, 1]})
    cluster.kill(3)
    cluster.run()
    cluster.create_topic("u", {0: [3, 9]})  # has no state, and gets none
    cluster.delete_topic("u")
    topics = {p: n for p, n in cluster.ensemble.nodes.items() if p in (TopicZnode.path("t"), TopicZnode.path("u"))}
    cluster.sent.clear()
    cluster.catching_up = False
    cluster.restart(3)
    for broker in (1, 2, 3):
        first = next(m for b, m in cluster.sent if b == broker)
        assert isinstance(first, UpdateMetadataRequest)
        assert {(s.topic, s.partition) for s in first.partition_states if s.leader != -2} == {
            ("t", n) for n in range(4)
        }
        assert [b.id for b in first.live_brokers] == [1, 2, 3]
    roles = [m for b, m in cluster.sent if b == 3 and isinstance(m, LeaderAndIsrRequest)]
    assert [(s.topic, s.partition) for m in roles for s in m.partition_states] == [("t", 0), ("t", 2), ("t", 3)]
    assert not [s for m in roles for s in m.partition_states if s.is_new], "it has had them before"
    assert {b for b, _ in cluster.leader_and_isr()} == {3}, "the others have nothing to learn"
    assert not cluster.stops()
    term = cluster.controller.term
    assert term is not None
    statuses = [term.context.replica_status_of(TopicPartition("t", n), 3) for n in (0, 2, 3)]
    assert statuses == [ReplicaStatus.ONLINE] * 3
    assert all(cluster.ensemble.nodes[path] == node for path, node in topics.items()), "it gets no replica by itself"


@pytest.mark.spec("CTL-33", "CTL-79")
def test_new_and_offline_partitions_are_tried_again_but_for_topics_being_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, properties={**NO_REBALANCE, "delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [3, 4], 1: [5]}, unclean_leader_election_enable="true")
    cluster.create_topic("doomed", {0: [3, 4]}, unclean_leader_election_enable="true")
    cluster.catching_up = False
    cluster.kill(3)
    cluster.run()
    cluster.delete_topic("doomed")
    before = cluster.state("doomed")
    assert (cluster.state("t").leader, before.leader) == (None, None)
    cluster.restart(4)
    assert cluster.state("t") == LeaderAndIsr(4, 2, (4,), 1)
    assert cluster.state("doomed") == before
    cluster.restart(5)
    assert cluster.state("t", 1) == LeaderAndIsr(5, 0, (5,), 1)


@pytest.mark.spec("CTL-33", "CTL-44")
def test_a_start_tries_every_offline_partition_also_where_the_started_broker_has_no_replica() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [3, 2]}, unclean_leader_election_enable="false")
    cluster.kill(2)
    cluster.run()
    cluster.catching_up = False
    cluster.restart(2)
    cluster.kill(3)
    cluster.run()
    assert cluster.state("t").leader is None
    cluster.zk.set(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"unclean.leader.election.enable": "true"}), -1)
    cluster.restart(4)
    assert cluster.state("t").leader == 2


@pytest.mark.spec("CTL-33", "CTL-34")
def test_replicas_come_online_before_partitions_are_tried_and_moves_and_deletions_go_on_behind_both() -> None:
    cluster = FakeCluster(1, 2, 3, properties={**NO_REBALANCE, "delete.topic.enable": "true"})
    cluster.create_topic("new", {0: [4]})
    cluster.create_topic("moved", {0: [2, 3]})
    cluster.create_topic("doomed", {0: [2, 4]})
    cluster.reassign({TopicPartition("moved", 0): [2, 4]})
    cluster.delete_topic("doomed")  # both wait for 4
    cluster.log.lines.clear()
    cluster.start(4)
    cluster.work(1)
    of_start = [f"Changed state of replica 4 for partition {topic}-0" for topic in ("new", "doomed", "moved")]
    *replicas, elected, driven, _, stopped, _, deleted = cluster.log.told("Changed ", "Sent ")
    assert [line.partition(" from ")[0] for line in replicas] == of_start
    assert {line.rpartition(" ")[2] for line in replicas} == {"OnlineReplica"}
    assert elected.startswith("Changed partition new-0 from NewPartition to OnlinePartition")
    assert driven.startswith("Sent LeaderAndIsr request") and driven.endswith("being reassigned moved-0")
    assert (stopped, deleted) == (
        f"{of_start[1]} from OnlineReplica to OfflineReplica",
        f"{of_start[1]} from OfflineReplica to ReplicaDeletionStarted",
    )


@pytest.mark.spec("CTL-36")
def test_a_returning_broker_follows_who_leads_and_leads_only_what_nobody_leads() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [2]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.leaders("t") == [3, 2]
    assert {p.partition: r.leader for p, r in cluster.brokers[2].roles.items()} == {0: 3, 1: 2}
    assert 2 in cluster.state("t").isr
    before = [cluster.state("t", n) for n in (0, 1)]
    cluster.restart(4)
    cluster.kill(4)
    cluster.run()
    assert [cluster.state("t", n) for n in (0, 1)] == before, "nor when others come and go"


@pytest.mark.spec("CTL-30")
def test_channels_are_opened_to_the_new_and_closed_to_the_dead(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = FakeCluster(1, 2, 3)
    term = cluster.controller.term
    assert term is not None
    calls: list[tuple[str, int]] = []
    opened, closed = term.channels.open, term.channels.close
    move = term.replicas.move

    def note_open(broker: BrokerInfo) -> None:
        if broker.id in (4, 5):
            calls.append(("open", broker.id))
        opened(broker)

    def note_close(broker: int) -> None:
        if broker in (2, 3):
            calls.append(("close", broker))
        closed(broker)

    def note_replicas(replicas: Replicas, target: ReplicaStatus) -> dict[TopicPartition, list[int]]:
        calls.append((target.value, 0))
        return move(replicas, target)

    term.channels.open, term.channels.close = note_open, note_close  # type: ignore[method-assign]
    term.replicas.move = note_replicas  # type: ignore[method-assign]
    cluster.kill(2, 3)
    cluster.start(5)
    cluster.start(4)
    cluster.work(1)
    nodes = {b: cluster.zk.get(BrokerZnode.path(b)) for b in (1, 4, 5)}
    known = {b: (info.endpoints[0].host, info.epoch) for b, info in term.context.brokers.items()}
    assert known == {b: (f"host{b}", node and node.czxid) for b, node in nodes.items()}
    assert [b in term.channels for b in (1, 2, 3, 4, 5)] == [True, False, False, True, True]
    started = calls.index(("OnlineReplica", 0))
    assert started < calls.index(("OfflineReplica", 0)), "the new before the dead"
    assert {call for call in calls[:started] if call[1]} == {("close", 2), ("close", 3), ("open", 4), ("open", 5)}
    assert "New broker startup callback for 4,5" in [r.getMessage() for r in caplog.records], "ascending"


@pytest.mark.spec("CTL-37")
def test_a_node_deleted_by_hand_is_a_death_though_the_process_lives() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.zk.delete(BrokerZnode.path(2))
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(3, 1, (3,), 1)


@pytest.mark.spec("CTL-55", "CTL-57")
def test_as_long_as_a_topic_waits_for_its_deletion_every_metadata_request_says_so() -> None:
    cluster = FakeCluster(1, 2, 3, properties={**NO_REBALANCE, "delete.topic.enable": "true"})
    cluster.create_topic("doomed", {0: [2, 3], 1: [3, 2]})
    cluster.kill(3)
    cluster.run()
    cluster.delete_topic("doomed")
    assert cluster.exists(DeleteTopicsZnode.topic_path("doomed")), "it waits for broker 3"
    cluster.sent.clear()
    cluster.create_topic("t", {0: [1, 2]})  # news of another topic,
    cluster.start(4)  # a broker's start,
    cluster.run()
    cluster.kill(4)  # its death,
    cluster.run()
    cluster.kill(1)  # and a failover
    cluster.run()
    requests = cluster.metadata()
    assert len(requests) >= 10
    for _, request in requests:
        told = {(s.topic, s.partition): s.leader for s in request.partition_states}
        assert (told[("doomed", 0)], told[("doomed", 1)]) == (-2, -2)
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("doomed", 7)))
    assert all(("doomed", n) not in cluster.brokers[2].metadata for n in (0, 1))
