"""Topics appear, brokers die and return: what ZooKeeper shows and what brokers are told."""

import pytest

from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.znodes import ConfigZnode, PartitionStateZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster

EIGHT = {0: [1, 3, 4], 1: [2, 4, 5], 2: [3, 5, 6], 3: [4, 6, 7], 4: [5, 7, 0], 5: [6, 0, 1], 6: [7, 1, 2], 7: [0, 2, 3]}


@pytest.mark.spec("CTL-28", "CTL-52", "CTL-53", "CTL-69", "CTL-70", "CTL-71", "CTL-72", "Z-15", "Z-17")
def test_a_topic_is_created() -> None:
    cluster = FakeCluster(1, 2, 3, 4)
    cluster.sent.clear()
    cluster.create_topic("t", {0: [2, 1, 3]})
    assert cluster.state("t") == LeaderAndIsr(2, 0, (2, 1, 3), 1)
    told = cluster.leader_and_isr()
    assert sorted(b for b, _ in told) == [1, 2, 3]
    (entry,) = {id(s): s for _, s in told}.values()
    assert (entry.leader, entry.leader_epoch, entry.isr, entry.replicas) == (2, 0, [2, 1, 3], [2, 1, 3])
    assert entry.is_new
    assert entry.zk_version == 0
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3, 4]
    assert all(m.broker_epoch == cluster.brokers[b].epoch for b, m in cluster.metadata())


@pytest.mark.spec("CTL-45", "CTL-51", "CTL-57")
def test_one_event_is_one_leader_and_isr_and_one_update_metadata_per_broker() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.sent.clear()
    cluster.create_topic("t", {n: [n % 3 + 1, (n + 1) % 3 + 1, (n + 2) % 3 + 1] for n in range(50)})
    for broker in (1, 2, 3):
        kinds = [type(m) for b, m in cluster.sent if b == broker]
        assert kinds == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert len(cluster.leader_and_isr()) == 150


@pytest.mark.spec("CTL-71", "CTL-73", "CTL-33")
def test_a_partition_without_live_replica_waits_for_one() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [7, 8], 1: [7, 2]})
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("t", 0)))
    assert cluster.state("t", 1).isr == (2,)
    cluster.restart(8)
    assert cluster.state("t") == LeaderAndIsr(8, 0, (8,), 1)


@pytest.mark.spec("CTL-74")
def test_a_state_node_that_exists_is_not_overwritten() -> None:
    cluster = FakeCluster(1, 2)
    found = LeaderAndIsr(2, 9, (2,), 1)
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    for part in ("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
        cluster.zk.create(part, TopicZnode({0: (1, 2)}).encode() if part.endswith("/t") else b"")
    cluster.zk.create(path, PartitionStateZnode.encode(found))
    cluster.run()
    assert cluster.state("t") == found
    assert not cluster.leader_and_isr()


@pytest.mark.spec("CTL-75", "CTL-120")
def test_added_partitions_come_online_and_nothing_else_moves() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    before = cluster.state("t")
    cluster.restart(4)
    node = cluster.zk.get(TopicZnode.path("t"))
    assert node is not None
    grown = TopicZnode({0: (2, 1), 1: (3, 4)}).encode()
    cluster.zk.set(TopicZnode.path("t"), grown, node.version)
    cluster.run()
    assert cluster.state("t", 1) == LeaderAndIsr(3, 0, (3, 4), 1)
    assert cluster.state("t", 0) == before


@pytest.mark.spec("CTL-36", "CTL-40", "CTL-42", "CTL-43", "CTL-47", "CTL-48", "CTL-102")
def test_the_story_of_three_brokers_stopped_started_and_preferred() -> None:
    cluster = FakeCluster(*range(8), properties={"auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", EIGHT)
    assert cluster.leaders("t") == [1, 2, 3, 4, 5, 6, 7, 0]
    cluster.kill(1, 2, 4)
    cluster.run()
    assert cluster.leaders("t") == [3, 5, 3, 6, 5, 6, 7, 0]
    assert all(not {1, 2, 4} & set(cluster.state("t", n).isr) for n in range(8))
    cluster.restart(1)
    assert cluster.leaders("t") == [3, 5, 3, 6, 5, 6, 7, 0]
    assert [n for n in range(8) if 1 in cluster.state("t", n).isr] == [0, 5, 6]
    cluster.elect_preferred(*(TopicPartition("t", n) for n in range(8)))
    assert cluster.leaders("t") == [1, 5, 3, 6, 5, 6, 7, 0]
    cluster.restart(2, 4)
    cluster.elect_preferred(*(TopicPartition("t", n) for n in range(8)))
    assert cluster.leaders("t") == [1, 2, 3, 4, 5, 6, 7, 0]


@pytest.mark.spec("CTL-44", "CTL-46", "CTL-65")
@pytest.mark.parametrize("allowed", ["true", "false"])
def test_unclean_election_follows_the_topic(allowed: str) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable=allowed)
    cluster.kill(3)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(None, 2, (2,), 1)  # no candidate at all
    cluster.restart(3)
    if allowed == "true":
        assert cluster.state("t") == LeaderAndIsr(3, 3, (3,), 1)
        return
    assert cluster.state("t").leader is None
    cluster.restart(2)
    assert cluster.state("t").leader == 2


@pytest.mark.spec("CTL-46")
def test_when_all_die_at_once_the_former_leader_stays_in_the_isr() -> None:
    cluster = FakeCluster(1, 2, 3, 4)
    cluster.create_topic("t", {0: [3, 2, 4]})
    cluster.kill(2, 3, 4)
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(None, 1, (3,), 1)


@pytest.mark.spec("CTL-35", "Z-45")
def test_a_broker_that_bounced_between_two_reads_is_dead_and_then_new() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.start(2)
    cluster.run()
    assert cluster.state("t").leader == 3
    assert cluster.state("t").isr == (3, 2)
    assert all(m.broker_epoch == cluster.brokers[2].epoch for b, m in cluster.metadata()[-3:] if b == 2)


@pytest.mark.spec("CTL-31", "CTL-32", "CTL-54")
def test_a_started_broker_learns_the_cluster_first_and_then_its_replicas() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [1, 2]})
    cluster.kill(3)
    cluster.run()
    cluster.sent.clear()
    cluster.restart(3)
    first, second, *_ = (m for b, m in cluster.sent if b == 3)
    assert isinstance(first, UpdateMetadataRequest)
    assert len(first.partition_states) == 2
    assert [b.id for b in first.live_brokers] == [1, 2, 3]
    assert isinstance(second, LeaderAndIsrRequest)
    assert [s.partition for s in second.partition_states] == [0]
    assert [(leader.broker_id, leader.host) for leader in second.live_leaders] == [(2, "host2")]


@pytest.mark.spec("CTL-38", "CTL-120")
def test_a_broker_without_replicas_changes_no_state() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    before = dict(cluster.ensemble.nodes)
    cluster.sent.clear()
    cluster.kill(3)
    cluster.run()
    assert {p: n for p, n in cluster.ensemble.nodes.items() if p.startswith("/brokers/topics")} == {
        p: n for p, n in before.items() if p.startswith("/brokers/topics")
    }
    assert [(b, [x.id for x in m.live_brokers]) for b, m in cluster.metadata()] == [(1, [1, 2]), (2, [1, 2])]


@pytest.mark.spec("CTL-14", "Z-38")
def test_a_state_written_by_a_newer_controller_is_left_alone() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    foreign = LeaderAndIsr(2, 7, (2, 3), 99)
    cluster.zk.set(path, PartitionStateZnode.encode(foreign), -1)
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t") == foreign
    assert not cluster.leader_and_isr()


@pytest.mark.spec("CTL-41", "CTL-42", "Z-38")
def test_a_conflicting_isr_change_is_read_again() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3, 1]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    controller = cluster.brokers[1].session
    read = controller.get_many
    interfered: list[bool] = []

    def interfering(paths: list[str], watch: object = None) -> object:
        nodes = read(paths)
        if path in paths and not interfered:  # the leader's last act, between the controller's read and its write
            interfered.append(True)
            state = LeaderAndIsr(2, 0, (2, 1), 1)
            cluster.zk.set(path, PartitionStateZnode.encode(state), -1)
        return nodes

    controller.get_many = interfering  # type: ignore[method-assign, assignment]
    cluster.kill(2)
    cluster.run()
    assert interfered
    state = cluster.state("t")
    assert (state.leader, state.leader_epoch) == (1, 1)  # not 3, which had left the ISR


@pytest.mark.spec("Z-35")
def test_unreadable_states_are_not_taken_for_new_partitions() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    cluster.zk.set(path, b"garbage", -1)
    cluster.kill(1)
    cluster.run()
    node = cluster.zk.get(path)
    assert node is not None
    assert node.data == b"garbage"
    assert cluster.zk.get(ConfigZnode.path("topics", "t")) is not None


@pytest.mark.spec("CTL-30", "CTL-37", "CTL-39")
def test_in_one_change_the_new_brokers_come_before_the_dead() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [3, 2], 1: [4, 2], 2: [2, 3]})
    cluster.kill(3)
    cluster.start(4)
    cluster.sent.clear()
    cluster.run()
    first = next(m for b, m in cluster.metadata() if b == 2)
    assert {s.leader for s in first.partition_states} == {3, 2}  # the dead broker's partitions are still its own
    assert [b.id for b in first.live_brokers] == [1, 2, 4]
    assert cluster.state("t", 0) == LeaderAndIsr(2, 1, (2,), 1)
    assert cluster.state("t", 1).isr == (2, 4)
    assert cluster.state("t", 2) == LeaderAndIsr(2, 1, (2,), 1)  # its leader lives: only the ISR shrinks
    last = {s.partition: s.leader for b, m in cluster.metadata() if b == 4 for s in m.partition_states}
    assert last == {0: 2, 1: 2, 2: 2}
