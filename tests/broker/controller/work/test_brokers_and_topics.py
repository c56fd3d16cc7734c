"""Topics appear, brokers die and return: what ZooKeeper shows and what brokers are told."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.states import PartitionStatus
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import Create, Op
from kafkatool.core.zookeeper.znodes import ConfigZnode, PartitionStateZnode, ReassignmentZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster

EIGHT = {0: [1, 3, 4], 1: [2, 4, 5], 2: [3, 5, 6], 3: [4, 6, 7], 4: [5, 7, 0], 5: [6, 0, 1], 6: [7, 1, 2], 7: [0, 2, 3]}


def context(cluster: FakeCluster) -> ControllerContext:
    term = cluster.controller.term
    assert term is not None
    return term.context


@pytest.mark.spec("CTL-52", "CTL-53", "CTL-57", "CTL-69", "CTL-71", "CTL-72", "Z-15", "Z-17")
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
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    node = cluster.zk.get(PartitionStateZnode.path(TopicPartition("t", 0)))
    assert node is not None and node.version > 0
    assert {s.zk_version for _, s in cluster.leader_and_isr()} == {node.version}, "the one after the write"


@pytest.mark.spec("CTL-70")
def test_all_partitions_and_replicas_are_new_before_the_first_is_online() -> None:
    cluster = FakeCluster(1, 2)
    cluster.log.lines.clear()
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    changes = [line.split() for line in cluster.log.told("Changed ")]
    order = [next(w for w in line[::-1] if w.startswith(("New", "Online"))) for line in changes]
    steps = [("NewPartition", 2), ("NewReplica", 4), ("OnlinePartition", 2), ("OnlineReplica", 4)]
    assert order == [status for status, count in steps for _ in range(count)]


@pytest.mark.spec("CTL-69")
def test_only_topics_that_are_new_are_created_and_their_data_is_watched() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.sent.clear()
    session = cluster.brokers[1].session
    asked: list[str] = []
    read = session.get_many

    def noted(paths: Sequence[str], watch: Any = None) -> Any:
        asked.extend(paths)
        return read(paths, watch)

    session.get_many = noted  # type: ignore[method-assign]
    cluster.create_topic("u", {0: [2, 1]})
    assert TopicZnode.path("u") in asked and TopicZnode.path("t") not in asked
    assert {s.topic for _, s in cluster.leader_and_isr()} == {"u"}
    assert {s.topic for _, m in cluster.metadata() for s in m.partition_states} == {"u"}
    assert cluster.is_watched(TopicZnode.path("t")) and cluster.is_watched(TopicZnode.path("u"))
    assert context(cluster).assignments == {"t": {0: (1, 2)}, "u": {0: (2, 1)}}


@pytest.mark.spec("Z-15", "CTL-71")
def test_the_parents_of_a_first_state_are_made_before_it_and_empty() -> None:
    cluster = FakeCluster(1, 2)
    made: list[tuple[type[Op], str]] = []
    cluster.ensemble.on_write = lambda session, op: made.append((type(op), op.path))
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    parents = f"{TopicZnode.path('t')}/partitions"
    below = [(kind, path) for kind, path in made if path.startswith(f"{TopicZnode.path('t')}/")]
    assert below == [
        (Create, parents),
        (Create, f"{parents}/0"),
        (Create, f"{parents}/0/state"),
        (Create, f"{parents}/1"),
        (Create, f"{parents}/1/state"),
    ]
    empty = [cluster.zk.get(path) for path in (parents, f"{parents}/0", f"{parents}/1")]
    assert [(n.data, n.version, n.ephemeral_owner) for n in empty if n] == [(b"", 0, 0)] * 3


@pytest.mark.spec("CTL-57", "CTL-64", "CTL-71", "CTL-72")
def test_a_new_partition_is_told_to_its_live_replicas_and_to_all_by_metadata() -> None:
    cluster = FakeCluster(1, 2, 3, 4)
    context(cluster).shutting_down.add(4)
    cluster.sent.clear()
    cluster.catching_up = False
    cluster.create_topic("t", {0: [9, 4, 3, 2]})
    told = cluster.leader_and_isr()
    assert sorted(b for b, _ in told) == [2, 3]
    assert all((s.leader, s.isr, s.replicas, s.is_new) == (3, [3, 2], [9, 4, 3, 2], True) for _, s in told)
    assert [(b, [s.partition for s in m.partition_states]) for b, m in cluster.metadata()] == [
        (b, [0]) for b in (1, 2, 3, 4)
    ]
    assert not cluster.stops()


@pytest.mark.spec("CTL-45", "CTL-51", "CTL-57")
def test_one_event_is_one_leader_and_isr_and_one_update_metadata_per_broker() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.sent.clear()
    cluster.create_topic("t", {n: [n % 3 + 1, (n + 1) % 3 + 1, (n + 2) % 3 + 1] for n in range(50)})
    for broker in (1, 2, 3):
        kinds = [type(m) for b, m in cluster.sent if b == broker]
        assert kinds == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert len(cluster.leader_and_isr()) == 150


@pytest.mark.spec("CTL-71", "CTL-73", "CTL-33", "CTL-65")
def test_a_partition_without_live_replica_waits_for_one() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [7, 8], 1: [7, 2]})
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("t", 0)))
    assert context(cluster).status_of(TopicPartition("t", 0)) is PartitionStatus.NEW
    assert cluster.state("t", 1) == LeaderAndIsr(2, 0, (2,), 1)
    assert {b for b, s in cluster.leader_and_isr() if s.topic == "t"} == {2}
    cluster.restart(3)
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("t", 0)))
    cluster.restart(8)
    assert cluster.state("t") == LeaderAndIsr(8, 0, (8,), 1)


@pytest.mark.spec("CTL-74", "Z-15")
def test_a_state_node_that_exists_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2)
    found = LeaderAndIsr(2, 9, (2,), 1)
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    for part in ("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
        cluster.zk.create(part, TopicZnode({0: (1, 2)}).encode() if part.endswith("/t") else b"")
    cluster.zk.create(path, PartitionStateZnode.encode(found))
    before = cluster.zk.get(path)
    cluster.sent.clear()
    cluster.run()
    assert cluster.zk.get(path) == before, "to the version"
    assert not cluster.sent
    assert context(cluster).status_of(TopicPartition("t", 0)) is PartitionStatus.NEW
    (error,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "partition t-0 got no first leader" in error.getMessage() and str(found) in error.getMessage()


@pytest.mark.spec("CTL-75", "CTL-120")
def test_added_partitions_come_online_and_nothing_else_moves() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    before, node = cluster.state("t"), cluster.zk.get(TopicZnode.path("t"))
    cluster.restart(4)
    assert node is not None and cluster.zk.get(TopicZnode.path("t")) == node, "as it was"
    assert not cluster.brokers[4].roles
    grown = TopicZnode({0: (2, 1), 1: (3, 4)}).encode()
    cluster.zk.set(TopicZnode.path("t"), grown, node.version)
    cluster.sent.clear()
    cluster.log.lines.clear()
    cluster.run()
    assert cluster.state("t", 1) == LeaderAndIsr(3, 0, (3, 4), 1)
    told = [(b, s.partition, s.leader, s.is_new) for b, s in cluster.leader_and_isr()]
    assert told == [(3, 1, 3, True), (4, 1, 3, True)]
    assert [(b, [s.partition for s in m.partition_states]) for b, m in cluster.metadata()] == [
        (b, [1]) for b in (1, 2, 3, 4)
    ]
    moved = [line.partition(" to ")[2].split()[0] for line in cluster.log.told("Changed ")]
    assert moved == ["NewPartition", *["NewReplica"] * 2, "OnlinePartition", *["OnlineReplica"] * 2]
    assert cluster.state("t", 0) == before
    assert context(cluster).assignments == {"t": {0: (1, 2), 1: (3, 4)}}, "the changed one is ignored"


@pytest.mark.spec("CTL-36", "CTL-40", "CTL-42", "CTL-43", "CTL-47", "CTL-48", "CTL-102")
def test_the_story_of_three_brokers_stopped_started_and_preferred() -> None:
    cluster = FakeCluster(*range(8), properties={"auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", EIGHT)

    def in_sync() -> list[set[int]]:
        return [set(cluster.state("t", n).isr) for n in range(8)]

    assert cluster.leaders("t") == [1, 2, 3, 4, 5, 6, 7, 0]
    cluster.kill(1, 2, 4)
    cluster.run()
    assert cluster.leaders("t") == [3, 5, 3, 6, 5, 6, 7, 0]
    assert in_sync() == [set(replicas) - {1, 2, 4} for replicas in EIGHT.values()]
    cluster.restart(1)
    assert cluster.leaders("t") == [3, 5, 3, 6, 5, 6, 7, 0]
    assert in_sync() == [set(replicas) - {2, 4} for replicas in EIGHT.values()]
    assert [n for n in range(8) if 1 in cluster.state("t", n).isr] == [0, 5, 6]
    cluster.elect_preferred(*(TopicPartition("t", n) for n in range(8)))
    assert cluster.leaders("t") == [1, 5, 3, 6, 5, 6, 7, 0]
    cluster.restart(2, 4)
    assert in_sync() == [set(replicas) for replicas in EIGHT.values()]
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
    former = cluster.brokers[2].epoch
    cluster.kill(2)
    cluster.start(2)
    cluster.sent.clear()
    cluster.run()
    assert cluster.state("t").leader == 3
    assert cluster.state("t").isr == (3, 2)
    told = [m for b, m in cluster.sent if b == 2]
    assert {type(m) for m in told} >= {LeaderAndIsrRequest, UpdateMetadataRequest}
    assert {m.broker_epoch for m in told} == {cluster.brokers[2].epoch} != {former}
    went = [line for line in cluster.log.told("Changed state of replica 2 for partition t-0") if "Offline" in line]
    assert [line.partition(" from ")[2] for line in went] == [
        "OnlineReplica to OfflineReplica",
        "OfflineReplica to OnlineReplica",
    ], "dead, and then new"


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
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.reassign({TopicPartition("t", 0): [1, 2]})  # all it had is moved away
    assert 3 not in (*cluster.assignment("t")[0], *cluster.state("t").isr)
    before = dict(cluster.ensemble.nodes)
    cluster.sent.clear()
    cluster.kill(3)
    cluster.run()
    assert {p: n for p, n in cluster.ensemble.nodes.items() if p.startswith("/brokers/topics")} == {
        p: n for p, n in before.items() if p.startswith("/brokers/topics")
    }
    assert [(b, [x.id for x in m.live_brokers]) for b, m in cluster.metadata()] == [(1, [1, 2]), (2, [1, 2])]


@pytest.mark.spec("CTL-14", "Z-38")
def test_a_state_written_by_a_newer_controller_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    foreign = LeaderAndIsr(2, 7, (2, 3), 2)  # one above ours
    cluster.zk.set(path, PartitionStateZnode.encode(foreign), -1)
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.controller_epoch == 1 and cluster.state("t") == foreign
    assert not cluster.leader_and_isr() and not cluster.stops()
    assert not [s for _, m in cluster.metadata() for s in m.partition_states]
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 2, "the election and the ISR, each once"


@pytest.mark.spec("CTL-14", "CTL-41", "CTL-42", "CTL-64", "Z-17", "Z-38")
@pytest.mark.parametrize("epoch", [1, 99], ids=["the leader's", "a newer controller's"])
def test_a_conflicting_change_is_read_again(epoch: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3, 1]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    cluster.catching_up = False
    controller = cluster.brokers[1].session
    read = controller.get_many
    interfered: list[bool] = []

    def interfering(paths: list[str], watch: object = None) -> object:
        nodes = read(paths)
        if path in paths and not interfered:  # the leader's last act, between the controller's read and its write
            interfered.append(True)
            state = LeaderAndIsr(2, 0, (2, 1), epoch)
            cluster.zk.set(path, PartitionStateZnode.encode(state), -1)
            cluster.sent.clear()
        return nodes

    controller.get_many = interfering  # type: ignore[method-assign, assignment]
    cluster.kill(2)
    cluster.run()
    assert interfered
    if epoch == 1:
        assert cluster.state("t") == LeaderAndIsr(1, 1, (1,), 1)  # not 3, which had left the ISR
    else:
        assert cluster.state("t") == LeaderAndIsr(2, 0, (2, 1), 99) and not cluster.leader_and_isr()
        assert "partition t-0 is left alone: its state was written by controller epoch 99, ours is 1" in caplog.text


@pytest.mark.spec("Z-35")
def test_unreadable_states_are_not_taken_for_new_partitions(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    cluster.zk.set(path, b"garbage", -1)
    cluster.kill(1)
    cluster.run()
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert any(path in e and "partition t-0 is skipped" in e for e in errors)
    node = cluster.zk.get(path)
    assert node is not None
    assert node.data == b"garbage"
    assert TopicPartition("t", 0) not in context(cluster).partition_status, "neither New nor anything else"
    assert cluster.zk.get(ConfigZnode.path("topics", "t")) is not None


@pytest.mark.spec("CTL-30", "CTL-37", "CTL-39", "CTL-40", "CTL-42")
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


@pytest.mark.spec("CTL-44")
@pytest.mark.parametrize(
    ("of_all", "of_controller", "of_topic", "leader"),
    [
        (None, None, {}, None),
        ("true", None, {}, 3),
        ("true", "false", {}, None),
        (None, "true", {}, 3),
        ("true", "true", {"unclean_leader_election_enable": "false"}, None),
        ("x", None, {}, None),
    ],
)
def test_the_default_for_unclean_elections_follows_what_was_set_while_the_brokers_run(
    of_all: str | None, of_controller: str | None, of_topic: dict[str, str], leader: int | None
) -> None:
    cluster = FakeCluster(1, 2, 3, properties={"unclean.leader.election.enable": "false"})
    cluster.create_topic("t", {0: [2, 3]}, **of_topic)
    for name, value in (("<default>", of_all), ("1", of_controller)):
        if value is not None:
            data = ConfigZnode.encode({"unclean.leader.election.enable": value})
            cluster.zk.create(ConfigZnode.path("brokers", name), data, make_parents=True)
    cluster.kill(3)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(3)
    assert cluster.leaders("t") == [leader]


@pytest.mark.spec("CTL-118", "CTL-30")
def test_the_line_about_a_change_of_brokers_has_the_children_as_text(caplog: pytest.LogCaptureFixture) -> None:
    """As the documents print them, in the order of text; the brokers in that of numbers."""
    caplog.set_level(logging.INFO)
    cluster = FakeCluster(1, 2)
    cluster.start(10)
    caplog.clear()
    cluster.run()
    said = [r.getMessage() for r in caplog.records]
    assert "Broker change listener fired for path /brokers/ids with children 1,10,2" in said
    assert "Newly added brokers: 10, deleted brokers: , all live brokers: 1,2,10" in said
    cluster.kill(2)
    cluster.start(16)  # a set has it before 9, and so has text
    cluster.start(9)
    cluster.run()
    said = [r.getMessage() for r in caplog.records]
    assert "Newly added brokers: 9,16, deleted brokers: 2, all live brokers: 1,9,10,16" in said
    assert "New broker startup callback for 9,16" in said
    cluster.kill(9, 16)
    cluster.run()
    said = [r.getMessage() for r in caplog.records]
    assert "Newly added brokers: , deleted brokers: 9,16, all live brokers: 1,10" in said


@pytest.mark.spec("Z-35", "Z-37")
def test_a_topic_or_broker_that_cannot_be_read_is_skipped_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(1, 2)
    cluster.zk.create(TopicZnode.path("bad"), b"rubbish")
    cluster.zk.create("/brokers/ids/7", b"rubbish")
    cluster.zk.create("/brokers/ids/abc", b"{}")
    cluster.create_topic("t", {0: [1, 7, 2]})
    for _ in range(2):
        assert cluster.state("t").isr == (1, 2)
        assert sorted(context(cluster).brokers) == [1, 2] and list(context(cluster).assignments) == ["t"]
        for told in ("/brokers/topics/bad", "/brokers/ids/7", "/brokers/ids/abc is no broker id"):
            assert told in caplog.text
        assert ("WARNING", "/brokers/ids/abc is no broker id: skipped") in [
            (r.levelname, r.getMessage()) for r in caplog.records
        ]
        caplog.clear()
        cluster.controller.step_down()
        cluster.run()
    assert [cluster.zk.get(p) is not None for p in ("/brokers/topics/bad", "/brokers/ids/7")] == [True, True]


@pytest.mark.spec("Z-35", "CTL-44")
def test_an_unreadable_config_has_no_overrides(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, properties={"unclean.leader.election.enable": "false"})
    cluster.create_topic("t", {0: [2, 3]})
    path = ConfigZnode.path("topics", "t")
    cluster.zk.set(path, b"rubbish", -1)
    for broker in (3, 2):
        cluster.kill(broker)
        cluster.run()
    cluster.restart(3)
    assert cluster.state("t").leader is None
    assert f"{path}" in caplog.text and "it counts as having no overrides" in caplog.text


@pytest.mark.spec("Z-36")
def test_nodes_without_content_are_absent_to_a_controller_and_end_no_event(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2)
    cluster.zk.create(TopicZnode.path("empty"), b"")
    cluster.zk.create("/brokers/ids/7", b"")
    cluster.zk.create(ReassignmentZnode.PATH, b"", make_parents=True)
    cluster.create_topic("t", {0: [1, 7, 2]})
    for _ in range(2):
        assert sorted(context(cluster).brokers) == [1, 2]
        assert cluster.state("t").isr == (1, 2)
        assert not cluster.exists("/brokers/topics/empty/partitions")
        cluster.controller.step_down()
        cluster.run()
    assert not [r.getMessage() for r in caplog.records if r.getMessage().startswith("Error while")]


@pytest.mark.spec("Z-36")
def test_a_topic_gone_when_it_is_read_is_absent() -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[1].session
    children = session.children

    def with_ghosts(path: str, watch: object = None) -> object:
        names = children(path, watch)  # type: ignore[arg-type]
        ghosts = {"/brokers/topics": "gone", "/brokers/ids": "7"}
        return [*(names or []), *([ghosts[path]] if path in ghosts else [])]

    session.children = with_ghosts  # type: ignore[method-assign, assignment]
    cluster.create_topic("t", {0: [1, 2]})
    cluster.restart(3)
    assert cluster.state("t").isr == (1, 2)
    assert list(context(cluster).assignments) == ["t"] and sorted(context(cluster).brokers) == [1, 2, 3]


@pytest.mark.spec("Z-36")
@pytest.mark.parametrize("data", [None, b""], ids=["gone", "empty"])
def test_a_state_that_is_gone_or_empty_when_it_is_read_keeps_no_other_partition_back(
    data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
    path = PartitionStateZnode.path(TopicPartition("t", 0))
    if data is None:
        cluster.zk.delete(path)
    else:
        cluster.zk.set(path, data, -1)
    term = cluster.controller.term
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t", 1) == LeaderAndIsr(3, 1, (3,), 1)
    node = cluster.zk.get(path)
    assert (node and node.data) == data, "nor is it written"
    assert [(b, s.partition) for b, s in cluster.leader_and_isr()] == [(3, 1)]
    assert cluster.controller.term is term
    assert not [r for r in caplog.records if r.getMessage().startswith("Error while")]
