"""Twelve steps, watched from outside, and interrupted after every single write."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.controller.work.reassignment import minus, union, why_unusable
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import Delete, Op, SetData
from kafkatool.core.zookeeper.znodes import ControllerZnode, PartitionStateZnode, ReassignmentZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster
from tests.core.zookeeper.ensemble import Crash
from tests.core.zookeeper.memory import MemoryZooKeeper

T0 = TopicPartition("t", 0)
STABLE = {"auto.leader.rebalance.enable": "false"}


class Observer:
    """Every state of the partition that ZooKeeper ever showed: (AR, leader, ISR), epochs, in order."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.seen: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]] = []
        self.epochs: list[int] = []

    def look(self) -> None:
        state = self.cluster.state("t")
        row = (self.cluster.assignment("t")[0], state.leader, tuple(sorted(state.isr)))
        if not self.seen or self.seen[-1] != row:
            self.seen.append(row)
        self.epochs.append(state.leader_epoch)


def six_brokers() -> FakeCluster:
    cluster = FakeCluster(1, 2, 3, 4, 5, 6, 7, 8, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    return cluster


@pytest.mark.spec("CTL-87", "CTL-90", "CTL-91", "CTL-92", "CTL-93", "CTL-94")
def test_zookeeper_shows_the_documents_sequence() -> None:
    cluster = six_brokers()
    observer = Observer(cluster)
    observer.look()
    cluster.ensemble.on_write = lambda session, op: observer.look()
    cluster.sent.clear()
    cluster.reassign({T0: [4, 5, 6]})
    both = (1, 2, 3, 4, 5, 6)
    assert observer.seen == [
        ((1, 2, 3), 1, (1, 2, 3)),
        (both, 1, (1, 2, 3)),
        (both, 1, (1, 2, 3, 4)),
        (both, 1, (1, 2, 3, 4, 5)),
        (both, 1, both),
        (both, 4, both),
        (both, 4, (4, 5, 6)),
        ((4, 5, 6), 4, (4, 5, 6)),
    ]
    assert observer.epochs == sorted(observer.epochs)
    assert observer.epochs[-1] == 3  # steps 2, 7 and 8
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert {b for b, delete, _ in cluster.stops() if delete} == {1, 2, 3}
    assert [d for b, d, _ in cluster.stops() if b == 2] == [False, True]


@pytest.mark.spec("CTL-91", "CTL-53")
def test_what_brokers_are_told_step_by_step() -> None:
    cluster = six_brokers()
    cluster.catching_up = False
    cluster.sent.clear()
    cluster.reassign({T0: [4, 5, 6]})
    told = dict(cluster.leader_and_isr())
    assert sorted(told) == [1, 2, 3, 4, 5, 6]
    assert all(s.replicas == [1, 2, 3, 4, 5, 6] and s.leader_epoch == 1 for s in told.values())
    assert [b for b, s in sorted(told.items()) if s.is_new] == [4, 5, 6]
    cluster.sent.clear()
    cluster.catching_up = True
    cluster.run()
    entries = [(b, s.leader, s.leader_epoch, s.replicas) for b, s in cluster.leader_and_isr()]
    step_7 = [(b, leader, epoch) for b, leader, epoch, ar in entries if epoch == 2]
    assert step_7 == [(4, 4, 2), (5, 4, 2), (6, 4, 2)]
    assert all(ar == [4, 5, 6] for _, _, epoch, ar in entries if epoch >= 2)
    step_8 = [b for b, _, epoch, _ in entries if epoch == 3]
    assert step_8 == [4, 5, 6]
    last = cluster.metadata()[-1][1]
    assert [(s.topic, s.partition, s.leader, s.replicas) for s in last.partition_states] == [("t", 0, 4, [4, 5, 6])]


@pytest.mark.spec("CTL-91", "CTL-96")
def test_partitions_whose_replicas_are_gone_by_then_end_together() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", dict.fromkeys(range(5), (1, 2, 3)))
    cluster.slow_controller = True
    writes: list[Op] = []
    cluster.ensemble.on_write = lambda session, op: writes.append(op)
    cluster.reassign({TopicPartition("t", n): (1, 2, 4) for n in range(5)})
    assert set(cluster.assignment("t").values()) == {(1, 2, 4)}
    assert [d for b, d, _ in cluster.stops() if b == 3] == 5 * [False] + 5 * [True]
    assert [op.path for op in writes].count(TopicZnode.path("t")) == 2  # steps 1 and 10
    (_, removal) = [op for op in writes if op.path == ReassignmentZnode.PATH]
    assert isinstance(removal, Delete)
    assert removal.version == 0


@pytest.mark.spec("CTL-91", "CTL-97")
def test_a_topic_whose_node_is_damaged_by_then_does_not_hold_up_those_that_end_with_it() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    for topic in ("a", "damaged", "z"):
        cluster.create_topic(topic, {0: (1, 2, 3)})
    cluster.slow_controller = True
    path, states = TopicZnode.path("damaged"), 0

    def damage(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal states
        states += op.path == PartitionStateZnode.path(TopicPartition("damaged", 0))
        if states == 3:  # step 8
            node = cluster.ensemble.nodes[path]
            cluster.ensemble.nodes[path] = node._replace(data=b"{", version=node.version + 1)

    cluster.ensemble.on_write = damage
    cluster.reassign({TopicPartition(t, 0): (1, 2, 4) for t in ("a", "damaged", "z")})
    assert cluster.assignment("a") == cluster.assignment("z") == {0: (1, 2, 4)}
    left = cluster.ensemble.nodes[ReassignmentZnode.PATH]
    assert list(ReassignmentZnode.decode(left.data)) == [TopicPartition("damaged", 0)]


def reassignment_with_a_crash_after_write(
    number: int, wanted: Sequence[int], *, requests_are_lost: bool = False
) -> FakeCluster | None:
    """Have the controller (broker 8, without replicas) die right after its n-th write; None: it made fewer.

    Its requests under way arrive all the same, or are lost with it.
    """
    cluster = FakeCluster(8, 1, 2, 3, 4, 5, 6, 7, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    controller = cluster.brokers[8].session
    writes = 0

    def die(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal writes
        if session is controller:
            writes += 1
            if writes == number:
                controller.crash()
                if requests_are_lost:
                    cluster.network.clear()
                raise Crash

    cluster.ensemble.on_write = die
    cluster.reassign({T0: wanted})
    return cluster if writes >= number else None


@pytest.mark.spec("CTL-98", "CTL-99", "CTL-92")
@pytest.mark.parametrize("wanted", [(4, 5, 6), (3, 4), (1, 2, 3, 4), (2, 1, 3), (2, 3)])
def test_the_next_controller_finishes_after_a_crash_behind_every_write(wanted: tuple[int, ...]) -> None:
    crashes = 0
    while cluster := reassignment_with_a_crash_after_write(crashes + 1, wanted):
        crashes += 1
        assert cluster.controller_id != 8
        state = cluster.state("t")
        assert cluster.assignment("t") == {0: wanted}, crashes
        assert set(state.isr) == set(wanted), crashes
        assert state.leader in wanted
        assert not cluster.exists(ReassignmentZnode.PATH)
        for old in {1, 2, 3} - set(wanted):
            assert T0 in cluster.brokers[old].deleted or crashes >= 5, crashes
            assert T0 not in cluster.brokers[old].roles, crashes
        for broker in wanted:
            assert T0 in cluster.brokers[broker].roles, crashes
    assert crashes >= 3  # steps 7, 10 and 11 at least


@pytest.mark.spec("CTL-98", "CTL-99", "BRK-110")
@pytest.mark.parametrize("wanted", [(4, 5, 6), (3, 4), (2, 3)])
def test_no_broker_keeps_a_replica_when_the_order_to_delete_it_was_lost(wanted: tuple[int, ...]) -> None:
    survivors: list[FakeCluster] = []
    while cluster := reassignment_with_a_crash_after_write(len(survivors) + 1, wanted, requests_are_lost=True):
        assert cluster.assignment("t") == {0: wanted}
        survivors.append(cluster)
    assert len(survivors) >= 3
    survivors.pop()  # the last write removes the request: nothing is left to resume
    for number, cluster in enumerate(survivors, 1):
        for old in {1, 2, 3} - set(wanted):
            assert T0 in cluster.brokers[old].deleted, number
            assert T0 not in cluster.brokers[old].roles, number


@pytest.mark.spec("CTL-98", "CTL-99")
def test_raising_the_replication_factor_survives_a_crash_after_step_1() -> None:
    cluster = reassignment_with_a_crash_after_write(1, (1, 2, 3, 4))
    assert cluster is not None
    assert set(cluster.state("t").isr) == {1, 2, 3, 4}


@pytest.mark.spec("CTL-88", "CTL-96")
@pytest.mark.parametrize("bad", [(), (4, 4), (-1, 4), (1, 2, 3)])
def test_a_bad_entry_is_refused_and_the_others_go_on(bad: tuple[int, ...]) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3], 1: [1, 2]})
    cluster.reassign({T0: bad, TopicPartition("t", 1): [4, 3], TopicPartition("nope", 0): [1]})
    assert cluster.assignment("t") == {0: (1, 2, 3), 1: (4, 3)}
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-34", "CTL-89", "CTL-90")
def test_a_reassignment_waits_for_a_broker_that_is_down() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.reassign({T0: [2, 9]})
    assert cluster.assignment("t") == {0: (1, 2, 9)}
    assert cluster.exists(ReassignmentZnode.PATH)
    cluster.restart(9)
    assert cluster.assignment("t") == {0: (2, 9)}
    assert set(cluster.state("t").isr) == {2, 9}
    assert cluster.state("t").leader == 2
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-95")
def test_nothing_is_moved_when_none_of_the_wanted_replicas_can_lead() -> None:
    cluster = six_brokers()
    cluster.catching_up = False
    cluster.reassign({T0: [4, 5]})
    term = cluster.controller.term
    assert term is not None
    term.context.shutting_down = {4, 5}  # in sync, but about to go
    path = PartitionStateZnode.path(T0)
    in_sync = LeaderAndIsr(1, 1, (1, 2, 3, 4, 5), 1)
    cluster.zk.set(path, PartitionStateZnode.encode(in_sync), -1)
    cluster.run()
    assert cluster.assignment("t") == {0: (1, 2, 3, 4, 5)}
    assert cluster.exists(ReassignmentZnode.PATH)
    assert term.context.replicas(T0) == (1, 2, 3, 4, 5)
    assert cluster.state("t") == in_sync
    assert not cluster.stops()
    term.context.shutting_down = set()
    cluster.zk.set(path, PartitionStateZnode.encode(in_sync), -1)  # the watch of the ISR drives it on
    cluster.run()
    assert cluster.assignment("t") == {0: (4, 5)}


@pytest.mark.spec("Z-13")
def test_unknown_keys_of_the_topic_node_survive() -> None:
    cluster = six_brokers()
    path = TopicZnode.path("t")
    cluster.zk.set(path, b'{"version":3,"topic_id":"abc","partitions":{"0":[1,2,3]},"adding_replicas":{}}', -1)
    cluster.run()
    cluster.reassign({T0: [4, 5, 6]})
    node = cluster.zk.get(path)
    assert node is not None
    raw = TopicZnode.decode("t", node.data).raw
    assert raw["topic_id"] == "abc"
    assert raw["version"] == 3


@pytest.mark.spec("Z-13", "CTL-98")
@pytest.mark.parametrize("assigned", ["4,5,6,1,2,3", "4,5,6"], ids=["under way", "but for its end"])
def test_nothing_is_left_of_a_move_that_a_newer_kafka_began(assigned: str) -> None:
    """Its next controller would go on with it, whatever has been moved since."""
    cluster = six_brokers()
    cluster.zk.set(
        TopicZnode.path("t"),
        b'{"version":3,"partitions":{"0":[%s]},"adding_replicas":{"0":[4,5,6],"1":[9]},"removing_replicas":{"0":[1,2,3]}}'
        % assigned.encode(),
        -1,
    )
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.reassign({T0: [4, 5, 6]})  # there when the next one takes over
    node = cluster.zk.get(TopicZnode.path("t"))
    assert node is not None
    decoded = TopicZnode.decode("t", node.data)
    assert decoded.assignment == {0: (4, 5, 6)}
    assert (decoded.raw["adding_replicas"], decoded.raw["removing_replicas"]) == ({"1": [9]}, {})
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("Z-35")
def test_an_unreadable_request_is_left_for_the_operator() -> None:
    cluster = six_brokers()
    cluster.zk.create(ReassignmentZnode.PATH, b"{", make_parents=True)
    cluster.run()
    assert cluster.exists(ReassignmentZnode.PATH)
    assert cluster.controller_epoch == 1


@pytest.mark.spec("CTL-96")
def test_many_partitions_move_in_few_transactions() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {n: [1, 2] for n in range(200)})
    controller = cluster.brokers[1].session
    written = 0

    def count(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal written
        if session is controller and isinstance(op, SetData) and op.path == TopicZnode.path("t"):
            written += 1

    cluster.ensemble.on_write = count
    cluster.catching_up = False
    cluster.reassign({TopicPartition("t", n): [3, 4] for n in range(200)})
    assert written == 1
    cluster.catching_up = True
    cluster.run()
    assert set(cluster.assignment("t").values()) == {(3, 4)}


@pytest.mark.spec("CTL-91")
@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9), unique=True))
def test_the_old_replicas_are_always_found_again(old: list[int], wanted: list[int]) -> None:
    both = union(tuple(old), tuple(wanted))
    assert set(both) == {*old, *wanted}
    assert len(set(both)) == len(both)
    assert both[: len(old)] == tuple(old)
    assert set(minus(both, wanted)) == set(old) - set(wanted)
    assert (why_unusable(tuple(wanted)) is None) == bool(wanted)
