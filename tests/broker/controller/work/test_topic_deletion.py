"""Topics go when nothing stands in the way, and only then."""

import dataclasses
import logging
from collections.abc import Collection, Mapping

import pytest

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.states import ReplicaStatus
from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import Delete, Op, SetData
from kafkatool.core.zookeeper.znodes import (
    ConfigZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    PartitionsZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
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


def context(cluster: FakeCluster) -> ControllerContext:
    term = cluster.controller.term
    assert term is not None
    return term.context


def names(found: object, topic: str) -> bool:
    if isinstance(found, Mapping):
        return any(names(entry, topic) for entry in found.items())
    if isinstance(found, Collection) and not isinstance(found, str):
        return any(names(entry, topic) for entry in found)
    return found == topic


def fields_about(found: ControllerContext, topic: str) -> set[str]:
    """Return the fields of the context that name the topic or a partition of it."""
    return {field.name for field in dataclasses.fields(found) if names(getattr(found, field.name), topic)}


def deletions_of(cluster: FakeCluster, broker: int) -> list[ControlRequest]:
    """Take the requests to delete replicas that are under way to that broker off the network."""
    found = [
        (channel, request)
        for channel, request in cluster.network
        if channel.broker.id == broker and isinstance(m := request.message, StopReplicaRequest) and m.delete_partitions
    ]
    for entry in found:
        cluster.network.remove(entry)
    return [request for _, request in found]


@pytest.mark.spec("CTL-55", "CTL-56", "CTL-57", "CTL-76", "CTL-81", "CTL-83", "CTL-85")
def test_a_topic_is_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    cluster.create_topic("stays", {0: [1, 2]})
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert gone(cluster)
    assert not any(s.topic == "t" for _, s in cluster.leader_and_isr())
    for broker in (1, 2, 3):
        first = next(m for b, m in cluster.sent if b == broker)
        assert isinstance(first, UpdateMetadataRequest), "before any replica is stopped"
        assert [(s.topic, s.partition, s.leader) for s in first.partition_states] == [("t", 0, -2), ("t", 1, -2)]
        assert [p for p in cluster.brokers[broker].metadata if p.topic == "t"] == []
        mine = [d for b, d, _ in cluster.stops() if b == broker]
        assert mine == sorted(mine)  # every stop before the first delete
    for delete in (False, True):
        stops = sorted((b, p.topic, p.partition) for b, d, p in cluster.stops() if d is delete)
        assert stops == [(1, "t", 0), (2, "t", 0), (2, "t", 1), (3, "t", 1)]
    deletes = [m for _, m in cluster.sent if isinstance(m, StopReplicaRequest) and m.delete_partitions]
    assert all(len(m.partitions) == 1 for m in deletes)
    assert cluster.state("stays").leader == 1


@pytest.mark.spec("CTL-82")
def test_the_state_shrinks_to_one_member_without_leader_before_it_goes() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2, 3]})
    shown: list[LeaderAndIsr] = []

    def look(session: MemoryZooKeeper, op: Op) -> None:
        if op.path == PartitionStateZnode.path(T0) and isinstance(op, SetData):
            shown.append(PartitionStateZnode.decode(T0, op.data))

    cluster.ensemble.on_write = look
    cluster.delete_topic("t")
    assert shown == [LeaderAndIsr(None, 1, (1,), 1)]
    assert gone(cluster)


@pytest.mark.spec("CTL-85")
def test_the_end_of_a_deletion_step_by_step() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]}, retention_ms="5")
    cluster.log.lines.clear()
    deleted: list[str] = []
    ends: list[str] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal ends
        if isinstance(op, Delete):
            if not deleted:
                ends = [line.rpartition(" ")[2] for line in cluster.log.told("Changed ")]
            deleted.append(op.path)

    cluster.ensemble.on_write = note
    cluster.delete_topic("t")
    topic = TopicZnode.path("t")
    assert deleted == [
        f"{topic}/partitions/0/state",
        f"{topic}/partitions/0",
        f"{topic}/partitions",
        topic,
        ConfigZnode.path("topics", "t"),
        DeleteTopicsZnode.topic_path("t"),
    ]
    last = ["NonExistentReplica", "NonExistentReplica", "OfflinePartition", "NonExistentPartition"]
    assert ends[-4:] == last and set(ends[:-4]).isdisjoint(last), "all before the first node goes"
    assert len(cluster.log.told("Changed ")) == len(ends)
    assert not cluster.is_watched(topic)
    assert fields_about(context(cluster), "t") == set()
    assert (context(cluster).assignments, context(cluster).leadership) == ({}, {})
    cluster.create_topic("u", {0: [1, 2]})
    assert {s.topic for s in cluster.metadata()[-1][1].partition_states} == {"u"}


@pytest.mark.spec("CTL-85")
def test_what_changes_in_a_topic_while_its_nodes_are_deleted_is_not_taken_up() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]})
    controller = cluster.brokers[1].session
    deleted: list[str] = []
    sent: list[int] = []

    def grow(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and session is controller:
            deleted.append(op.path)
            if len(deleted) == 1:
                assert cluster.is_watched(TopicZnode.path("t"))
                cluster.zk.set(TopicZnode.path("t"), TopicZnode({0: (1, 2), 1: (2, 3)}).encode(), -1)
                sent.append(len(cluster.sent) + len(cluster.network))

    cluster.ensemble.on_write = grow
    cluster.delete_topic("t")
    assert deleted and gone(cluster)
    assert not cluster.is_watched(TopicZnode.path("t")) and fields_about(context(cluster), "t") == set()
    assert sent == [len(cluster.sent)], "nobody is told anything of it"


@pytest.mark.spec("CTL-55", "CTL-81")
def test_every_update_metadata_names_a_topic_being_deleted_as_such_until_it_is_gone() -> None:
    """Whatever it is sent for, and by whichever controller; a broker that starts must not send clients there either."""
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2]})
    cluster.brokers[3].stop_error = 56
    cluster.sent.clear()
    cluster.delete_topic("t")
    cluster.create_topic("u", {0: [2, 4]})  # of another topic
    cluster.elect_preferred(TopicPartition("u", 0))
    cluster.kill(4)  # an election, the list of brokers
    cluster.run()
    cluster.restart(4)
    cluster.kill(1)  # failover
    cluster.run()
    cluster.restart(1)
    cluster.create_topic("v", {0: [2, 4]})
    assert cluster.exists(TopicZnode.path("t"))
    told = cluster.metadata()
    assert len({m.controller_epoch for _, m in told}) == 2 and len(told) > 20
    for _, request in told:
        of_topic = {s.partition: s.leader for s in request.partition_states if s.topic == "t"}
        assert of_topic == {0: -2, 1: -2}
    assert not [p for b in cluster.brokers.values() for p in b.metadata if p.topic == "t"]
    cluster.kill(3)
    cluster.run()
    cluster.restart(3)
    assert gone(cluster)
    cluster.sent.clear()
    cluster.create_topic("w", {0: [2]})
    assert {s.topic for _, m in cluster.metadata() for s in m.partition_states} == {"w"}


@pytest.mark.spec("CTL-80", "TOP-18", "Z-20")
def test_with_deletion_disabled_the_entry_has_no_effect_until_a_controller_with_it_takes_over() -> None:
    cluster = FakeCluster(1, 2, properties={"delete.topic.enable": "false"})
    cluster.create_topic("t", {0: [1, 2]})
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert not cluster.sent
    assert cluster.exists(DeleteTopicsZnode.topic_path("t"))
    assert not cluster.is_watched(DeleteTopicsZnode.PATH)
    cluster.kill(1)
    cluster.run()
    assert cluster.state("t").leader == 2
    assert {s.leader for _, m in cluster.metadata() for s in m.partition_states} >= {2}
    assert not cluster.stops()
    cluster.restart(1)
    cluster.elect_preferred(T0)
    assert cluster.state("t").leader == 1
    node = cluster.zk.get(TopicZnode.path("t"))
    assert node is not None
    cluster.zk.set(TopicZnode.path("t"), TopicZnode({0: (1, 2), 1: (2, 1)}).encode(), node.version)
    cluster.run()
    cluster.reassign({TopicPartition("t", 1): [2]})
    assert cluster.assignment("t") == {0: (1, 2), 1: (2,)} and cluster.leaders("t") == [1, 2]
    assert -2 not in {s.leader for _, m in cluster.metadata() for s in m.partition_states}
    cluster.reassign({T0: [1], TopicPartition("t", 1): [1]})
    assert cluster.assignment("t") == {0: (1,), 1: (1,)}
    cluster.properties = DELETES
    cluster.kill(1)
    cluster.run()
    cluster.restart(1)
    assert cluster.zk.children(DeleteTopicsZnode.PATH) == ["t"] and not cluster.is_watched(DeleteTopicsZnode.PATH)
    assert cluster.controller_id == 2 and cluster.leaders("t") == [1, 1], "the one with deletion is not controller yet"
    cluster.kill(2)
    cluster.run()
    assert gone(cluster), "by the failover itself"


@pytest.mark.spec("CTL-76", "Z-20")
@pytest.mark.parametrize("data", [b"null", b"{", b"\xff"])
def test_whatever_a_mark_holds_is_ignored(data: bytes) -> None:
    cluster = FakeCluster(1, 2, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"), data)
    cluster.run()
    assert gone(cluster)


@pytest.mark.spec("CTL-77")
def test_an_entry_for_an_unknown_topic_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, properties=DELETES)
    cluster.delete_topic("nothing")
    assert not cluster.exists(DeleteTopicsZnode.topic_path("nothing"))
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning == "marked for deletion, but there is no such topic: nothing"


@pytest.mark.spec("CTL-86", "Z-35")
@pytest.mark.parametrize("data", [b"", b"{", b"[]"])
@pytest.mark.parametrize("marked_for", ["the next controller", "this one"])
def test_a_topic_whose_node_cannot_be_read_is_not_deleted_without_its_replicas(
    data: bytes, marked_for: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(1, 2, properties=DELETES)
    cluster.create_topic("t", {0: [2]})
    path, mark = TopicZnode.path("t"), DeleteTopicsZnode.topic_path("t")
    whole = cluster.zk.get(path)
    assert whole is not None and cluster.controller_id == 1
    cluster.kill(1)
    cluster.zk.set(path, data, whole.version)
    if marked_for == "the next controller":
        cluster.zk.create(mark)
    cluster.run()
    assert cluster.controller_id == 2
    if marked_for == "this one":
        cluster.delete_topic("t")
    assert cluster.exists(mark) and cluster.exists(path) and cluster.exists(PartitionStateZnode.path(T0))
    assert not cluster.stops()
    (told,) = [r.getMessage() for r in caplog.records if "marked for deletion" in r.getMessage()]
    assert told.startswith("marked for deletion, but not deleted, as their nodes in /brokers/topics cannot be read: t;")
    cluster.zk.set(path, whole.data, whole.version + 1)
    cluster.restart(1)
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert gone(cluster) and (2, True, T0) in cluster.stops()


@pytest.mark.spec("CTL-76", "CTL-77")
def test_each_of_many_marks_is_served_and_those_of_no_topic_alone_are_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    for topic, replicas in {"t": [1, 2], "u": [2], "held": [2, 3]}.items():
        cluster.create_topic(topic, {0: replicas})
    cluster.kill(3)
    cluster.run()
    for topic in ("t", "nothing", "u", "neither", "held"):
        cluster.zk.create(DeleteTopicsZnode.topic_path(topic))
    cluster.run()
    assert cluster.zk.children(DeleteTopicsZnode.PATH) == ["held"]
    assert cluster.zk.children(TopicsZnode.PATH) == ["held"]
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "marked" in r.getMessage()]
    assert told == ["marked for deletion, but there is no such topic: neither, nothing"]


@pytest.mark.spec("CTL-78", "CTL-34", "CTL-79", "CTL-81", "CTL-116")
@pytest.mark.parametrize("number", [0, 1])
def test_deletion_waits_for_a_replica_of_any_partition_on_a_dead_broker(number: int) -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {number: [2, 3], 1 - number: [2, 1]})
    cluster.kill(3)
    cluster.run()
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    assert not cluster.sent
    status = context(cluster).replica_status_of(TopicPartition("t", number), 3)
    assert status is ReplicaStatus.DELETION_INELIGIBLE
    assert context(cluster).ineligible == {"t"}
    states = [cluster.state("t", n) for n in (0, 1)]
    term = cluster.controller.term
    assert term is not None
    assert term.controlled_shutdown.serve(2, None) == (ErrorCode.NONE, []), "its stop moves nothing of the topic"
    cluster.kill(2)
    cluster.run()
    assert [cluster.state("t", n) for n in (0, 1)] == states, "no elections for it any more"
    assert [s.leader for s in states] == [2, 2]
    cluster.restart(2)
    cluster.restart(4)
    assert not cluster.stops() and cluster.exists(TopicZnode.path("t")), "3 is still away"
    cluster.restart(3)
    assert gone(cluster)


@pytest.mark.spec("CTL-79", "CTL-114", "CTL-115", "CTL-116")
def test_what_a_stopping_broker_has_of_a_topic_being_deleted_is_left_alone_and_not_waited_for() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3, 4], 1: [3, 2, 4]})
    cluster.kill(4)
    cluster.run()
    cluster.delete_topic("t")  # waits for 4
    cluster.sent.clear()
    paths = [PartitionStateZnode.path(TopicPartition("t", n)) for n in (0, 1)]
    before = [cluster.zk.get(path) for path in paths]
    term = cluster.controller.term
    assert term is not None and cluster.leaders("t") == [2, 3], "it leads one and follows in the other"
    assert term.controlled_shutdown.serve(2, None) == (ErrorCode.NONE, [])
    cluster.run()
    assert not cluster.sent and [cluster.zk.get(path) for path in paths] == before


@pytest.mark.spec("CTL-105")
def test_a_pass_is_noted_as_long_as_it_lasts_so_that_the_topic_is_not_deleted() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    noted: list[list[TopicPartition]] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        if op.path == PartitionStateZnode.path(T0):
            noted.append(list(context(cluster).electing))

    cluster.ensemble.on_write = note
    cluster.elect_preferred(TopicPartition("t", 1), T0)
    assert noted == [[TopicPartition("t", 1), T0]] and not context(cluster).electing


@pytest.mark.spec("CTL-78", "CTL-105")
def test_deletion_waits_as_long_as_a_preferred_election_of_the_topic_runs() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
    cluster.create_topic("u", {0: [2, 3]})
    context(cluster).electing[TopicPartition("t", 1)] = None
    cluster.sent.clear()
    cluster.delete_topic("t")
    assert not cluster.sent and not gone(cluster)
    cluster.delete_topic("u")
    assert not cluster.exists(TopicZnode.path("u")), "of another topic"
    cluster.sent.clear()
    cluster.elect_preferred(TopicPartition("t", 1))  # the end of its pass
    assert not context(cluster).electing and gone(cluster)


@pytest.mark.spec("CTL-61", "CTL-78", "CTL-83", "CTL-84")
def test_a_broker_that_dies_in_the_middle_deletes_after_its_return() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.brokers[3].stop_error = 56
    cluster.delete_topic("t")
    assert cluster.exists(TopicZnode.path("t"))
    assert cluster.brokers[2].deleted == [T0]
    cluster.sent.clear()
    cluster.elect_preferred(T0)  # after which deletions are looked at
    cluster.restart(4)
    assert not cluster.stops(), "not before broker 3 has started anew"
    cluster.kill(3)
    cluster.run()
    assert cluster.exists(TopicZnode.path("t"))
    cluster.restart(3)
    assert gone(cluster)
    assert cluster.brokers[3].deleted == [T0]
    assert cluster.brokers[2].deleted == [T0]  # not asked again


@pytest.mark.spec("CTL-79", "CTL-75", "CTL-100")
def test_nothing_else_is_done_for_a_topic_that_waits_for_its_deletion(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES | {"auto.leader.rebalance.enable": "true"})
    cluster.create_topic("t", {0: [2, 3], 1: [2, 4]})
    cluster.create_topic("u", {0: [4, 2]})
    for broker in (2, 4):
        cluster.kill(broker)
        cluster.run()
        cluster.restart(broker)
    cluster.kill(3)
    cluster.run()
    cluster.delete_topic("t")  # which waits for broker 3
    caplog.clear()
    before = [cluster.state("t", n) for n in (0, 1)]
    assert before[1].leader == 2 and cluster.state("u").leader == 2
    lead_by_4 = LeaderAndIsr(4, before[1].leader_epoch, (2, 4), 1)
    cluster.zk.set(PartitionStateZnode.path(TopicPartition("t", 1)), PartitionStateZnode.encode(lead_by_4), -1)
    cluster.controller.step_down()
    cluster.run()
    cluster.sent.clear()
    states = [cluster.zk.get(PartitionStateZnode.path(TopicPartition("t", n))) for n in (0, 1)]
    cluster.elect_preferred(TopicPartition("t", 1), TopicPartition("u", 0))
    assert cluster.state("u").leader == 4, "the others go on"
    node = cluster.zk.get(TopicZnode.path("t"))
    assert node is not None
    grown = TopicZnode({0: (2, 3), 1: (2, 4), 2: (2, 4)}).encode()
    cluster.zk.set(TopicZnode.path("t"), grown, node.version)
    cluster.timer.advance(400_000)  # the rebalance would elect 2 for t-1
    cluster.run()
    assert states == [cluster.zk.get(PartitionStateZnode.path(TopicPartition("t", n))) for n in (0, 1)]
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("t", 2)))
    assert context(cluster).partitions_of("t") == [T0, TopicPartition("t", 1)]
    assert {s.topic for _, s in cluster.leader_and_isr()} == {"u"}
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        "preferred election of partition t-1 is skipped: its topic is being deleted",
        "topic t is being deleted: its new partitions [2] are skipped",
    ], "the rebalance does not even try"


@pytest.mark.spec("CTL-78", "CTL-79", "CTL-90", "CTL-97", "CTL-88")
def test_deletion_waits_for_a_reassignment_and_admits_no_new_one(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES)
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
    assert cluster.state("t", 1) == LeaderAndIsr(1, 0, (1, 2), 1), "nothing of it was begun"
    refused = "reassignment of partition t-1 is refused: its topic is being deleted"
    assert (logging.ERROR, refused) in [(r.levelno, r.getMessage()) for r in caplog.records]
    assert not cluster.stops()
    cluster.zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (2, 4)}), -1)
    cluster.run()
    assert cluster.assignment("t") == {0: (1, 2, 3), 1: (1, 2)}, "nor does the one under way turn elsewhere"
    cluster.zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (3, 2)}), -1)
    stopped_before: list[int] = []
    ended_at: list[int] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and op.path == ReassignmentZnode.PATH:
            under_way = [c.broker.id for c, r in cluster.network if isinstance(r.message, StopReplicaRequest)]
            stopped_before.extend([b for b, _, _ in cluster.stops()] + under_way)
            ended_at.append(len(cluster.sent) + len(cluster.network))

    cluster.ensemble.on_write = note
    cluster.catching_up = True
    cluster.run()
    assert gone(cluster)
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert stopped_before == [1, 1], "the old replica alone: what the topic has now is deleted after the move's end"
    behind = [(b, type(m)) for b, m in cluster.sent[ended_at[0] :]]
    metadata = [(b, UpdateMetadataRequest) for b in (1, 2, 3, 4)]
    assert behind[:8] == metadata * 2, "of step 12, and then that of the deletion"
    assert {kind for _, kind in behind[8:]} == {StopReplicaRequest}


@pytest.mark.spec("CTL-78", "CTL-105", "CTL-27", "CTL-106")
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
@pytest.mark.parametrize(
    "last",
    [
        PartitionStateZnode.path(T0),
        PartitionsZnode.path("t"),
        TopicZnode.path("t"),
        ConfigZnode.path("topics", "t"),
        DeleteTopicsZnode.topic_path("t"),
    ],
)
def test_a_deletion_cut_short_is_finished_by_the_next_controller(last: str) -> None:
    cluster = FakeCluster(9, 1, 2, properties=DELETES)
    cluster.create_topic("t", {0: [1, 2]})

    def die(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and op.path == last:
            cluster.sent.clear()
            cluster.ensemble.on_write = lambda session, op: None
            session.crash()
            raise Crash

    cluster.ensemble.on_write = die
    cluster.delete_topic("t")
    assert cluster.controller_id != 9
    assert gone(cluster)
    assert cluster.zk.children(TopicsZnode.PATH) == cluster.zk.children(DeleteTopicsZnode.PATH) == []
    assert not cluster.stops() or last.startswith(f"{TopicZnode.path('t')}/"), "without its node straight to the end"


@pytest.mark.spec("CTL-69")
def test_a_topic_whose_nodes_vanish_is_forgotten() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.create_topic("stays", {0: [2, 1]})
    stays = TopicPartition("stays", 0)
    cluster.reassign({T0: [2, 9]})  # waits for broker 9
    term = cluster.controller.term
    assert term is not None
    assert term.context.reassigning == {T0: (2, 9)}
    left = term.context
    state, statuses = left.leadership[stays], left.replica_status[stays]
    left.failed_replicas[T0] = {2}
    left.unreadable.add(T0)
    left.moves[T0], left.dropped[T0] = StoredMove((2, 9, 1), (9,), (1,)), (3,)
    left.deleting["t"] = None
    left.ineligible.add("t")
    about = {field.name for field in dataclasses.fields(left)} - {"broker_id", "epoch", "brokers", "shutting_down"}
    assert fields_about(left, "t") == about - {"bounced_replicas", "electing"}, "those two last for one event alone"
    term.zookeeper.delete_tree(TopicZnode.path("t"))
    cluster.sent.clear()
    cluster.run()
    assert not cluster.sent
    assert fields_about(left, "t") == set()
    assert (left.assignments, left.leadership) == ({"stays": {0: (2, 1)}}, {stays: state})
    assert (left.partition_status.keys(), left.replica_status) == ({stays}, {stays: statuses})
    assert (left.partitions_on(1), left.partitions_on(9)) == ([stays], [])


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


@pytest.mark.spec("CTL-81", "CTL-83", "CTL-84")
@pytest.mark.parametrize("where", ["request", "partition"])
def test_a_deletion_that_failed_is_tried_anew_when_all_are_answered_for_and_its_broker_is_back(where: str) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3, 4]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.work(1)
    (held,) = deletions_of(cluster, 2)
    cluster.brokers[3].stop_error = 56
    if where == "request":
        (asked,) = deletions_of(cluster, 3)
        assert asked.on_answer is not None
        asked.on_answer(StopReplicaResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, partitions=[]))
    cluster.run()
    status = context(cluster).replica_status
    assert status[T0] == {
        2: ReplicaStatus.DELETION_STARTED,
        3: ReplicaStatus.DELETION_INELIGIBLE,
        4: ReplicaStatus.DELETION_SUCCESSFUL,
    }
    assert context(cluster).ineligible == {"t"}
    cluster.kill(3)
    cluster.run()
    cluster.log.lines.clear()
    cluster.sent.clear()
    cluster.restart(3)
    assert not cluster.stops() and cluster.exists(TopicZnode.path("t")), "broker 2 has not answered yet"
    assert held.on_answer is not None
    held.on_answer(cluster.answer(cluster.brokers[2], held.message))
    cluster.run()
    assert gone(cluster)
    assert cluster.stops() == [(3, False, T0), (3, True, T0)], "the others are not asked again"
    assert {b for b, _ in cluster.leader_and_isr()} == {3}, "nor told of a leader when it stops: it was, at its start"
    steps = [line.rpartition(" ")[2] for line in cluster.log.told("Changed state of replica 3")]
    assert steps[0] == "OnlineReplica", "with its broker"
    assert steps[1:] == ["OfflineReplica", "ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "NonExistentReplica"]


@pytest.mark.spec("CTL-84")
def test_a_broker_that_dies_before_it_has_answered_fails_its_deletion_until_it_is_back() -> None:
    cluster = FakeCluster(1, 2, 3, properties=DELETES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.work(1)
    deletions_of(cluster, 3)  # never arrives
    cluster.kill(3)
    cluster.run()
    assert context(cluster).replica_status[T0] == {
        2: ReplicaStatus.DELETION_SUCCESSFUL,
        3: ReplicaStatus.DELETION_INELIGIBLE,
    }
    assert cluster.exists(TopicZnode.path("t")) and cluster.exists(DeleteTopicsZnode.topic_path("t"))
    cluster.restart(3)
    assert gone(cluster) and cluster.brokers[3].deleted == [T0]
