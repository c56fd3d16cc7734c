"""Moves that clients ask for: what is stored, where they end, and that the next controller ends them in the same place."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import orjson
import pytest

from kafkatool.broker.controller.moves import MoveOutcome, WantedMoves
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import Op, SetData
from kafkatool.core.zookeeper.znodes import (
    DeleteTopicsZnode,
    PartitionStateZnode,
    PartitionsZnode,
    PartitionZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster
from tests.core.zookeeper.ensemble import Crash
from tests.core.zookeeper.memory import MemoryZooKeeper

T0 = TopicPartition("t", 0)
PROPERTIES = {"auto.leader.rebalance.enable": "false", "delete.topic.enable": "true"}
Deed = Callable[[FakeCluster], None]


def alter(
    cluster: FakeCluster, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
) -> Mapping[TopicPartition, MoveOutcome]:
    """Ask, without anything else happening."""
    term = cluster.controller.term
    assert term is not None
    targets: WantedMoves = {p: None if r is None else tuple(r) for p, r in wanted.items()}
    return term.requested_moves.alter(targets, may_change_factor=may_change_factor)


def move(cluster: FakeCluster, target: Sequence[int] | None, partition: TopicPartition = T0) -> None:
    assert alter(cluster, {partition: target}) == {partition: MoveOutcome()}


def node(cluster: FakeCluster, topic: str = "t") -> dict[str, object]:
    found = cluster.zk.get(TopicZnode.path(topic))
    assert found is not None
    value: dict[str, object] = orjson.loads(found.data)
    return value


def ongoing(cluster: FakeCluster) -> dict[TopicPartition, StoredMove]:
    term = cluster.controller.term
    assert term is not None
    return dict(term.requested_moves.ongoing(None))


@pytest.fixture
def cluster() -> FakeCluster:
    """t-0 on 1, 2 and 3; followers catch up when they are let. Broker 6 rules, no replica is there."""
    made = FakeCluster(6, 1, 2, 3, 4, 5, properties=PROPERTIES)
    made.create_topic("t", {0: [1, 2, 3]})
    made.catching_up = False
    return made


@pytest.mark.spec("ADM-65", "ADM-70", "ADM-73", "Z-13")
def test_a_move_is_stored_with_what_it_adds_and_removes_and_ends_as_asked(cluster: FakeCluster) -> None:
    topic = cluster.zk.get(TopicZnode.path("t"))
    assert topic is not None
    kept = {**orjson.loads(topic.data), "topic_id": "abc", "own": 7}
    cluster.zk.set(TopicZnode.path("t"), orjson.dumps(kept), topic.version)
    cluster.run()
    move(cluster, [4, 2, 1])
    stored = {"partitions": {"0": [4, 2, 1, 3]}, "adding_replicas": {"0": [4]}, "removing_replicas": {"0": [3]}}
    assert node(cluster) == {"version": 2, "topic_id": "abc", "own": 7, **stored}
    assert ongoing(cluster) == {T0: StoredMove((4, 2, 1, 3), (4,), (3,))}
    cluster.run()
    assert cluster.state("t").isr == (1, 2, 3)
    assert node(cluster)["adding_replicas"] == {"0": [4]}, "4 has not caught up"
    seen: list[dict[str, object]] = []
    conditions: list[tuple[int, bool]] = []

    def written(_: MemoryZooKeeper, op: object) -> None:
        seen.append(node(cluster))
        if isinstance(op, SetData) and op.path == TopicZnode.path("t"):
            conditions.append((op.version, T0 in cluster.brokers[3].deleted))

    cluster.ensemble.on_write = written
    before = cluster.zk.get(TopicZnode.path("t"))
    assert before is not None
    cluster.catching_up = True
    cluster.run()
    cluster.ensemble.on_write = lambda *_: None
    at_rest = {"partitions": {"0": [4, 2, 1]}, "adding_replicas": {}, "removing_replicas": {}}
    kept_whole = [{"version": 2, "topic_id": "abc", "own": 7, **lists} for lists in (stored, at_rest)]
    assert [value for value in kept_whole if value in seen] == kept_whole
    assert all(value in kept_whole for value in seen), "the assignment and both lists change in one write"
    assert conditions == [(before.version, True)], "on the version that was read, after what is removed was deleted"
    assert node(cluster) == {"version": 2, "topic_id": "abc", "own": 7, **at_rest}
    assert set(cluster.state("t").isr) == {4, 2, 1}
    assert (3, True, T0) in cluster.stops() and T0 in cluster.brokers[3].deleted
    assert ongoing(cluster) == {}


@pytest.mark.spec("ADM-70")
def test_a_later_version_of_the_node_stays_and_a_move_by_node_adds_no_keys(cluster: FakeCluster) -> None:
    topic = cluster.zk.get(TopicZnode.path("t"))
    assert topic is not None
    cluster.zk.set(TopicZnode.path("t"), orjson.dumps({**orjson.loads(topic.data), "version": 3}), topic.version)
    cluster.run()
    move(cluster, [4, 2, 1])
    assert node(cluster)["version"] == 3
    cluster.catching_up = True
    cluster.run()
    assert (node(cluster)["version"], node(cluster)["partitions"]) == (3, {"0": [4, 2, 1]})
    cluster.create_topic("u", {0: [1, 2]})
    before, cluster.catching_up = node(cluster, "u"), False
    cluster.reassign({TopicPartition("u", 0): [3, 1]})
    assert node(cluster, "u") == {**before, "partitions": {"0": [1, 2, 3]}}
    cluster.catching_up = True
    cluster.run()
    assert node(cluster, "u") == {**before, "partitions": {"0": [3, 1]}}


@pytest.mark.spec("ADM-74")
def test_a_target_that_dies_is_waited_for(cluster: FakeCluster) -> None:
    move(cluster, [4, 2, 1])
    cluster.run()
    cluster.kill(4)
    cluster.catching_up = True
    cluster.run()
    assert node(cluster)["adding_replicas"] == {"0": [4]} and list(ongoing(cluster)) == [T0]
    assert not cluster.brokers[3].deleted
    cluster.restart(4)
    cluster.run()
    assert cluster.assignment("t")[0] == (4, 2, 1) and cluster.brokers[3].deleted == [T0]


@pytest.mark.spec("ADM-74")
def test_a_topic_marked_for_deletion_while_it_moves_is_deleted_once_it_has(cluster: FakeCluster) -> None:
    move(cluster, [4, 2, 1])
    cluster.run()
    cluster.zk.create(DeleteTopicsZnode.topic_path("t"))
    cluster.run()
    assert node(cluster)["adding_replicas"] == {"0": [4]}
    seen: list[bool] = []
    cluster.ensemble.on_write = lambda *_: seen.append(
        (found := cluster.zk.get(TopicZnode.path("t"))) is not None
        and orjson.loads(found.data)["partitions"] == {"0": [4, 2, 1]}
    )
    cluster.catching_up = True
    cluster.run()
    cluster.ensemble.on_write = lambda *_: None
    assert any(seen), "first it came to where it was to go"
    assert cluster.zk.get(TopicZnode.path("t")) is None
    assert cluster.zk.get(DeleteTopicsZnode.topic_path("t")) is None


@pytest.mark.spec("ADM-65", "ADM-73")
def test_a_replaced_move_keeps_its_origin_and_what_it_drops_is_deleted(cluster: FakeCluster) -> None:
    move(cluster, [4, 2, 1])
    cluster.run()
    cluster.sent.clear()
    move(cluster, [5, 1])
    assert node(cluster)["partitions"] == {"0": [5, 1, 2, 3]}
    assert node(cluster)["adding_replicas"] == {"0": [5]}
    assert node(cluster)["removing_replicas"] == {"0": [2, 3]}
    assert node(cluster)["dropped_replicas"] == {"0": [4]}
    cluster.run()
    assert "dropped_replicas" not in node(cluster)
    assert cluster.brokers[4].deleted == [T0]
    assert not cluster.brokers[2].deleted and not cluster.brokers[3].deleted, "they are in the origin"
    cluster.catching_up = True
    cluster.run()
    assert node(cluster)["partitions"] == {"0": [5, 1]}
    assert cluster.brokers[2].deleted == cluster.brokers[3].deleted == [T0]


@pytest.mark.spec("ADM-73")
def test_what_a_replacement_drops_is_named_until_it_has_been_stopped(cluster: FakeCluster) -> None:
    """Its broker is down when it should be told."""
    move(cluster, [4, 2, 1])
    cluster.run()
    cluster.kill(4)
    cluster.run()
    move(cluster, [5, 1])
    cluster.run()
    assert node(cluster)["dropped_replicas"] == {"0": [4]}
    cluster.restart(4)
    cluster.run()
    assert cluster.brokers[4].deleted == [T0] and "dropped_replicas" not in node(cluster)


@pytest.mark.spec("ADM-65", "ADM-72", "ADM-73")
@pytest.mark.parametrize("by_znode", [False, True], ids=["request", "znode"])
def test_a_cancel_goes_back_to_the_origin_at_once(cluster: FakeCluster, by_znode: bool) -> None:
    if by_znode:
        cluster.reassign({T0: [4, 5, 1]})
    else:
        move(cluster, [4, 5, 1])
        cluster.run()
    assert set(cluster.assignment("t")[0]) == {1, 2, 3, 4, 5}
    cluster.sent.clear()
    move(cluster, None)
    assert cluster.assignment("t")[0] == (1, 2, 3) and ongoing(cluster) == {}
    assert not cluster.exists(ReassignmentZnode.PATH)
    cluster.run()
    assert "dropped_replicas" not in node(cluster)
    assert cluster.brokers[4].deleted == cluster.brokers[5].deleted == [T0]
    assert [b for b, delete, _ in cluster.stops() if delete and b in (1, 2, 3)] == []
    told = [s for b, s in cluster.leader_and_isr() if b == 1]
    assert list(told[-1].replicas) == [1, 2, 3]
    assert alter(cluster, {T0: None})[T0].error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.spec("ADM-65")
def test_another_order_is_done_at_once_and_what_is_so_already_changes_nothing(cluster: FakeCluster) -> None:
    before = cluster.state("t")
    move(cluster, [3, 1, 2])
    assert cluster.assignment("t")[0] == (3, 1, 2) and ongoing(cluster) == {}
    assert cluster.state("t").leader == before.leader
    assert cluster.state("t").leader_epoch == before.leader_epoch + 1
    cluster.run()
    nodes = (TopicZnode.path("t"), PartitionStateZnode.path(T0))
    at_rest = [cluster.zk.get(path) for path in nodes]
    move(cluster, [3, 1, 2])
    cluster.run()
    assert [cluster.zk.get(path) for path in nodes] == at_rest
    move(cluster, [4, 3, 1])
    cluster.run()
    running = [cluster.zk.get(path) for path in nodes]
    move(cluster, [4, 3, 1])
    cluster.run()
    assert [cluster.zk.get(path) for path in nodes] == running


@pytest.mark.spec("ADM-64")
def test_each_partition_is_refused_for_its_own_reason_and_the_others_go_on(cluster: FakeCluster) -> None:
    cluster.create_topic("u", {n: [1, 2] for n in range(6)})
    cluster.create_topic("gone", {0: [5]})
    cluster.create_topic("half", {0: [1, 5]})
    cluster.kill(5)
    cluster.run()
    cluster.zk.create(DeleteTopicsZnode.topic_path("gone"))
    cluster.run()
    u, half = [TopicPartition("u", n) for n in range(7)], TopicPartition("half", 0)
    outcomes = alter(
        cluster,
        {
            u[0]: [], u[1]: [1, 1], u[2]: [1, -1], u[3]: [1, 5, 9], u[4]: None, u[5]: [2, 3], u[6]: [1],
            TopicPartition("nope", 0): [1], TopicPartition("gone", 0): [1], half: [1, 5, 2],
        },
    )  # fmt: skip
    bad, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes == {
        u[0]: (bad, "Empty replica list specified in partition reassignment."),
        u[1]: (bad, "Duplicate replica ids in partition reassignment replica list: [1, 1]"),
        u[2]: (bad, "Invalid broker id in replica list: [1, -1]"),
        u[3]: (bad, "Replica assignment has brokers that are not alive. Replica list: [5, 9], "
               "live broker list: [1, 2, 3, 4, 6]"),
        u[4]: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        u[5]: (ErrorCode.NONE, None),
        u[6]: (unknown, "The partition does not exist."),
        TopicPartition("nope", 0): (unknown, "The partition does not exist."),
        TopicPartition("gone", 0): (unknown, "The partition does not exist."),
        half: (ErrorCode.NONE, None),  # 5 is not alive, and was there before
    }  # fmt: skip
    assert set(ongoing(cluster)) == {u[5], half}
    refused = alter(cluster, {T0: [1, 2], u[1]: [3, 4], u[5]: [2, 3, 4]}, may_change_factor=False)
    assert refused == {
        T0: (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 3 to 2"),
        u[1]: (ErrorCode.NONE, None),
        u[5]: (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 3"),
    }


@pytest.mark.spec("ADM-64")
def test_a_cancel_that_would_lose_what_only_an_added_replica_has_is_refused(cluster: FakeCluster) -> None:
    cluster.catching_up = True
    cluster.kill(5)
    cluster.run()
    move(cluster, [4, 1, 2, 3, 6])
    cluster.catching_up = False
    cluster.run()
    found = cluster.zk.get(PartitionStateZnode.path(T0))
    assert found is not None
    state = PartitionStateZnode.decode(T0, found.data)
    alone = orjson.dumps({**orjson.loads(found.data), "isr": [4], "leader": 4, "leader_epoch": state.leader_epoch + 1})
    cluster.zk.set(PartitionStateZnode.path(T0), alone, found.version)
    before = cluster.zk.get(TopicZnode.path("t"))
    assert alter(cluster, {T0: None})[T0].error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.zk.get(TopicZnode.path("t")) == before
    assert list(ongoing(cluster)) == [T0]


def test_a_partition_that_somebody_took_out_of_the_node_is_unknown_and_the_others_are_moved(
    cluster: FakeCluster,
) -> None:
    cluster.create_topic("u", {0: [1, 2], 1: [1, 2]})
    path = TopicZnode.path("u")
    found = cluster.zk.get(path)
    assert found is not None
    cluster.zk.set(path, TopicZnode({0: (1, 2)}).encode(), found.version)  # made anew by hand, say
    u0, u1 = TopicPartition("u", 0), TopicPartition("u", 1)
    outcome = alter(cluster, {T0: [4, 5, 6], u0: [3, 4], u1: [3, 4]})
    assert {p: one.error for p, one in outcome.items()} == {
        T0: ErrorCode.NONE,
        u0: ErrorCode.NONE,
        u1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set(ongoing(cluster)) == {T0, u0}


@pytest.mark.spec("ADM-72")
def test_a_request_takes_its_partition_out_of_the_node_in_one_transaction(cluster: FakeCluster) -> None:
    cluster.create_topic("u", {0: [1, 2]})
    other = TopicPartition("u", 0)
    cluster.reassign({T0: [4, 2, 3], other: [3, 4]})
    seen: list[tuple[bool, object]] = []

    def look(*_: object) -> None:
        request = cluster.zk.get(ReassignmentZnode.PATH)
        listed = request is not None and T0 in ReassignmentZnode.decode(request.data)
        seen.append((listed, node(cluster).get("adding_replicas")))

    cluster.ensemble.on_write = look
    move(cluster, [5, 2, 3])
    cluster.ensemble.on_write = lambda *_: None
    assert (True, {"0": [5]}) not in seen and (False, None) not in seen and (False, {"0": [5]}) in seen
    request = cluster.zk.get(ReassignmentZnode.PATH)
    assert request is not None and ReassignmentZnode.decode(request.data) == {other: (3, 4)}
    cluster.catching_up = True
    cluster.run()
    assert cluster.assignment("t")[0] == (5, 2, 3) and cluster.assignment("u")[0] == (3, 4)
    assert not cluster.exists(ReassignmentZnode.PATH) and cluster.brokers[4].deleted == [T0]


@pytest.mark.spec("ADM-64", "ADM-72")
@pytest.mark.parametrize("gone", ["request", "topic"])
def test_a_node_deleted_between_reading_and_writing_is_read_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    cluster.reassign({T0: [4, 2, 3]})
    term = cluster.controller.term
    assert term is not None
    commit = term.zookeeper.commit
    paths = [ReassignmentZnode.PATH]
    if gone == "topic":
        of_partitions = (PartitionStateZnode.path(T0), PartitionZnode.path(T0), PartitionsZnode.path("t"))
        paths = [*of_partitions, TopicZnode.path("t")]

    def after_deletion(ops: Sequence[Op]) -> list[int | None]:
        while paths:
            cluster.zk.delete(paths.pop(0))
        return commit(ops)

    monkeypatch.setattr(term.zookeeper, "commit", after_deletion)
    outcome = alter(cluster, {T0: [5, 2, 3]})[T0]
    if gone == "request":
        assert outcome == MoveOutcome() and node(cluster)["adding_replicas"] == {"0": [5]}
    else:
        assert outcome == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


@pytest.mark.spec("ADM-72")
def test_an_entry_for_a_partition_on_the_move_replaces_its_target(cluster: FakeCluster) -> None:
    move(cluster, [4, 2, 1])
    cluster.run()
    cluster.reassign({T0: [5, 2, 1]})
    assert node(cluster)["partitions"] == {"0": [5, 2, 1, 3]}
    assert node(cluster)["adding_replicas"] == {"0": [5]}
    assert cluster.exists(ReassignmentZnode.PATH)
    cluster.catching_up = True
    cluster.run()
    assert cluster.assignment("t")[0] == (5, 2, 1)
    assert not cluster.exists(ReassignmentZnode.PATH) and cluster.brokers[4].deleted == [T0]


@pytest.mark.spec("ADM-72")
def test_a_node_move_of_an_earlier_term_cannot_be_cancelled_as_its_origin_is_not_known(cluster: FakeCluster) -> None:
    cluster.reassign({T0: [4, 2, 3]})
    cluster.kill(6)
    cluster.run()
    refused = alter(cluster, {T0: None})[T0]
    assert refused.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert "not known" in (refused.message or "")
    cluster.catching_up = True
    cluster.run()
    assert cluster.assignment("t")[0] == (4, 2, 3)


@pytest.mark.spec("ADM-66")
def test_moves_of_both_kinds_are_listed_and_no_others(cluster: FakeCluster) -> None:
    cluster.create_topic("u", {0: [1, 2], 1: [2, 3]})
    cluster.reassign({TopicPartition("u", 0): [3, 1]})
    move(cluster, [4, 2, 1])
    cluster.run()
    expected = {TopicPartition("u", 0): StoredMove((3, 1, 2), (3,), (2,)), T0: StoredMove((4, 2, 1, 3), (4,), (3,))}
    assert ongoing(cluster) == expected
    term = cluster.controller.term
    assert term is not None
    asked = [T0, TopicPartition("u", 1), TopicPartition("nope", 0)]
    assert term.requested_moves.ongoing(asked) == {T0: expected[T0]}


@pytest.mark.spec("ADM-74")
def test_only_replicas_in_sync_end_a_move_also_where_replicas_are_only_removed(cluster: FakeCluster) -> None:
    cluster.kill(2)
    cluster.run()
    move(cluster, [1, 2])
    cluster.run()
    assert node(cluster)["removing_replicas"] == {"0": [3]} and not cluster.brokers[3].deleted
    cluster.catching_up = True
    cluster.restart(2)
    assert cluster.assignment("t")[0] == (1, 2) and cluster.brokers[3].deleted == [T0]


def move_to(*target: int) -> Deed:
    return lambda cluster: move(cluster, target)


def by_node(*target: int) -> Deed:
    return lambda cluster: cluster.reassign({T0: target})


def dies_behind(cluster: FakeCluster, writes: int) -> list[None]:
    """Have the controller die behind so many of its writes; returns those that are left."""
    left: list[None] = [None] * writes
    dying = cluster.brokers[6].session

    def count(session: MemoryZooKeeper, _: object) -> None:
        if session is dying and left:
            left.pop()
            if not left:
                session.crash()
                raise Crash

    cluster.ensemble.on_write = count
    return left


def cancel(cluster: FakeCluster) -> None:
    move(cluster, None)


STORIES: list[tuple[str, list[Deed], tuple[int, ...]]] = [
    ("move", [move_to(4, 5, 1)], (4, 5, 1)),
    ("shrink", [move_to(2, 1)], (2, 1)),
    ("reorder", [move_to(3, 2, 1)], (3, 2, 1)),
    ("replacement", [move_to(4, 5, 1), move_to(1, 2, 4)], (1, 2, 4)),
    ("cancel", [move_to(4, 5), cancel], (1, 2, 3)),
    ("node, then request", [by_node(4, 2, 3), move_to(5, 2, 3)], (5, 2, 3)),
    ("request, then node", [move_to(5, 2, 3), by_node(4, 2, 3)], (4, 2, 3)),
    ("cancel of a node's", [by_node(4, 5), cancel], (1, 2, 3)),
]


@pytest.mark.spec("ADM-73", "Z-12")
@pytest.mark.parametrize(("deeds", "end"), [story[1:] for story in STORIES], ids=[story[0] for story in STORIES])
def test_a_controller_that_dies_behind_any_write_is_followed_by_one_that_ends_in_the_same_place(
    deeds: list[Deed], end: tuple[int, ...]
) -> None:
    """Followers catch up once the last wish is stored; the dying one may take that wish with it, but never half of it."""
    writes = 0
    while writes < 200:
        writes += 1
        cluster = FakeCluster(6, 1, 2, 3, 4, 5, properties=PROPERTIES)
        cluster.create_topic("t", {0: [1, 2, 3]})
        cluster.catching_up = False
        for deed in deeds[:-1]:
            deed(cluster)
            cluster.run()
        left = dies_behind(cluster, writes)
        with contextlib.suppress(Crash):
            deeds[-1](cluster)
        cluster.catching_up = True
        if not left and 6 in cluster.brokers:
            cluster.kill(6)
            cluster.sent.clear()
        cluster.run()
        assert left or {b for b, _ in cluster.metadata()} >= set(cluster.brokers), "the next one tells all brokers"
        assert cluster.assignment("t")[0] == end, writes
        value = node(cluster)
        assert (
            not value.get("adding_replicas") and not value.get("removing_replicas") and "dropped_replicas" not in value
        )
        assert not cluster.exists(ReassignmentZnode.PATH)
        assert set(cluster.state("t").isr) == set(end) and cluster.state("t").leader in end
        kept = {b for b, broker in cluster.brokers.items() if T0 in broker.roles}
        assert kept == set(end), "stray replicas"
        if left:
            return
