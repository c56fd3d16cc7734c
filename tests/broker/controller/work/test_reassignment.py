"""Twelve steps, watched from outside, and interrupted after every single write."""

import itertools
import logging
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.controller.work.reassignment import union, why_unusable
from kafkatool.core.model.moves import minus
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.zookeeper.session import Create, Delete, Op, SetData
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
    assert all([d for b, d, _ in cluster.stops() if b == old] == [False, True] for old in (1, 2, 3))


@pytest.mark.spec("RSN-11", "CTL-90", "Z-21")
def test_the_request_loses_each_partition_as_it_ends_and_goes_with_the_last() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {n: [1, 2] for n in range(3)})
    cluster.kill(4)
    cluster.run()
    cluster.reassign({T0: [2, 3], TopicPartition("t", 1): [3, 4], TopicPartition("t", 2): [3, 1]})
    node = cluster.zk.get(ReassignmentZnode.PATH)
    assert node is not None and node.version > 0
    assert ReassignmentZnode.decode(node.data) == {TopicPartition("t", 1): (3, 4)}  # 4 is down
    assert {n: cluster.assignment("t")[n] for n in (0, 2)} == {0: (2, 3), 2: (3, 1)}
    cluster.restart(4)
    assert cluster.assignment("t")[1] == (3, 4)
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-91", "CTL-53", "CTL-57")
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
    assert {b for b, _ in cluster.metadata()} == set(range(1, 9))
    assert {(b, p) for b, _, p in cluster.stops()} == {(1, T0), (2, T0), (3, T0)}
    last = cluster.metadata()[-1][1]
    assert [(s.topic, s.partition, s.leader, s.replicas) for s in last.partition_states] == [("t", 0, 4, [4, 5, 6])]


def writes_of(cluster: FakeCluster, broker_id: int) -> list[str]:
    """Note from now on what that broker's controller writes of the reassignment, in short."""
    noted: list[str] = []
    session = cluster.brokers[broker_id].session

    def note(writer: MemoryZooKeeper, op: Op) -> None:
        if writer is not session or isinstance(op, Create):
            return
        if op.path == PartitionStateZnode.path(T0) and isinstance(op, SetData):
            state = PartitionStateZnode.decode(T0, op.data)
            noted.append(f"epoch {state.leader_epoch}: {state.leader} of {sorted(state.isr)}")
        elif op.path == TopicZnode.path("t"):
            noted.append(f"replicas {list(cluster.assignment('t')[0])}")
        elif op.path == ReassignmentZnode.PATH:
            noted.append("request " + ("deleted" if isinstance(op, Delete) else "changed"))

    cluster.ensemble.on_write = note
    return noted


@pytest.mark.spec("CTL-91", "CTL-94")
def test_what_is_written_step_by_step() -> None:
    cluster = FakeCluster(8, 1, 2, 3, 4, 5, 6, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    noted = writes_of(cluster, 8)
    cluster.reassign({T0: [4, 5, 6]})
    assert noted == [
        "replicas [1, 2, 3, 4, 5, 6]",
        "epoch 1: 1 of [1, 2, 3]",
        "epoch 2: 4 of [1, 2, 3, 4, 5, 6]",
        "epoch 3: 4 of [4, 5, 6]",
        "replicas [4, 5, 6]",
        "request deleted",
    ]


@pytest.mark.spec("CTL-88", "CTL-90", "CTL-91", "CTL-94")
def test_with_all_targets_in_sync_already_nothing_is_prepared() -> None:
    """No AR := OAR + RAR, no epoch before the one of step 7, no replica that is new."""
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    noted = writes_of(cluster, 1)
    cluster.sent.clear()
    cluster.reassign({T0: [3, 2]})
    assert noted == ["epoch 1: 3 of [1, 2, 3]", "epoch 2: 3 of [2, 3]", "replicas [3, 2]", "request deleted"]
    assert not any(s.is_new for _, s in cluster.leader_and_isr())
    cluster.reassign({T0: [2, 3]})  # only the order changes: nobody goes
    assert noted[4:] == ["epoch 3: 3 of [2, 3]", "replicas [2, 3]", "request deleted"]


@pytest.mark.spec("CTL-90")
def test_the_isr_is_watched_before_anything_is_written() -> None:
    cluster = six_brokers()
    cluster.catching_up = False
    watched: list[bool] = []
    controller = cluster.brokers[1].session

    def look(session: MemoryZooKeeper, op: Op) -> None:
        if session is controller:
            watched.append(cluster.is_watched(PartitionStateZnode.path(T0)))

    assert not cluster.is_watched(PartitionStateZnode.path(T0))
    cluster.ensemble.on_write = look
    cluster.reassign({T0: [4, 5, 9]})  # 9 is down: it waits at step 4
    assert watched[0]
    for isr in ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5)):
        cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(LeaderAndIsr(1, 1, isr, 1)), -1)
        assert not cluster.is_watched(PartitionStateZnode.path(T0)), "it has fired"
        cluster.run()
        assert cluster.is_watched(PartitionStateZnode.path(T0)), "after each growth of the ISR"


@pytest.mark.spec("CTL-91", "CTL-57", "CTL-94")
def test_what_is_told_when_the_leader_stays() -> None:
    cluster = six_brokers()
    cluster.create_topic("bystander", {0: [1, 2]})
    cluster.catching_up = False
    cluster.reassign({T0: [4, 1]})
    cluster.sent.clear()
    before_the_end: list[int] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        if op.path == ReassignmentZnode.PATH:
            before_the_end.append(len(cluster.sent) + len(cluster.network))

    cluster.ensemble.on_write = note
    cluster.catching_up = True
    cluster.run()
    told = [(b, s.leader_epoch, s.leader, s.replicas) for b, s in cluster.leader_and_isr()]
    step_5, step_7, step_8 = ([entry for entry in told if entry[1] == epoch] for epoch in (1, 2, 3))
    assert step_5 == [(1, 1, 1, [1, 2, 3, 4])], "4 is new and has been told"
    assert step_7 == [(b, 2, 1, [4, 1]) for b in (1, 2, 3, 4)], "not elected: to OAR + RAR"
    assert sorted(step_8) == [(1, 3, 1, [4, 1]), (4, 3, 1, [4, 1])]
    requests = [m for b, m in cluster.sent if b in (1, 2) and isinstance(m, LeaderAndIsrRequest | StopReplicaRequest)]
    kinds = [
        m.delete_partitions if isinstance(m, StopReplicaRequest) else m.partition_states[0].leader_epoch
        for m in requests
    ]
    assert kinds == [1, 2, 2, 3, False, True], "the leader hears of step 8 before the replicas that go are stopped"
    assert sorted(cluster.stops()) == [(b, delete, T0) for b in (2, 3) for delete in (False, True)]
    last = {b: m.partition_states for b, m in cluster.metadata()}
    assert sorted(last) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {(s.topic, s.leader, *s.replicas) for states in last.values() for s in states} == {("t", 1, 4, 1)}
    assert [type(m).__name__ for _, m in cluster.sent[-8:]] == ["UpdateMetadataRequest"] * 8
    assert before_the_end == [len(cluster.sent) - 8], "step 12 comes behind step 11"
    term = cluster.controller.term
    assert term is not None
    assert term.context.replica_status[T0].keys() == {1, 4}, "the others are NonExistent"


@pytest.mark.spec("CTL-91", "CTL-57", "CTL-64")
def test_all_targets_hear_of_the_election_also_one_that_is_about_to_stop() -> None:
    cluster = six_brokers()
    cluster.catching_up = False
    cluster.reassign({T0: [4, 5, 6]})
    term = cluster.controller.term
    assert term is not None
    term.context.shutting_down.add(4)
    cluster.sent.clear()
    cluster.catching_up = True
    cluster.run()
    elected = [(b, s.leader, s.replicas) for b, s in cluster.leader_and_isr() if s.leader_epoch == 2]
    assert elected == [(b, 5, [4, 5, 6]) for b in (4, 5, 6)]


@pytest.mark.spec("CTL-91")
def test_a_leader_among_the_targets_that_is_not_live_is_replaced_all_the_same() -> None:
    cluster = six_brokers()
    cluster.catching_up = False
    cluster.reassign({T0: [1, 4]})
    term = cluster.controller.term
    assert term is not None
    term.context.shutting_down.add(1)
    cluster.sent.clear()
    cluster.catching_up = True
    cluster.run()
    assert cluster.assignment("t") == {0: (1, 4)} and cluster.state("t") == LeaderAndIsr(4, 3, (1, 4), 1)
    elected = [(b, s.leader, s.replicas) for b, s in cluster.leader_and_isr() if s.leader_epoch == 2]
    assert elected == [(b, 4, [1, 4]) for b in (1, 4)]


@pytest.mark.spec("CTL-96")
def test_an_entry_goes_when_its_own_partition_is_done() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2], 2: [1, 2]})
    cluster.reassign({T0: [2, 9], TopicPartition("t", 1): [3, 4], TopicPartition("t", 2): [2, 1]})
    assert cluster.assignment("t") == {0: (1, 2, 9), 1: (3, 4), 2: (2, 1)}
    node = cluster.zk.get(ReassignmentZnode.PATH)
    assert node is not None and ReassignmentZnode.decode(node.data) == {T0: (2, 9)}


@pytest.mark.spec("CTL-87", "Z-44")
def test_what_is_under_way_is_not_begun_again_when_the_request_grows() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    cluster.catching_up = False
    cluster.reassign({T0: [3, 4]})
    begun = cluster.state("t", 0)
    cluster.sent.clear()
    grown = ReassignmentZnode.encode({T0: (3, 4), TopicPartition("t", 1): (3, 4)})
    cluster.zk.set(ReassignmentZnode.PATH, grown, -1)
    cluster.run()
    assert cluster.state("t", 0) == begun and cluster.state("t", 1).leader_epoch == 1
    assert {s.partition for _, s in cluster.leader_and_isr()} == {1}
    cluster.catching_up = True
    cluster.run()
    assert cluster.assignment("t") == {0: (3, 4), 1: (3, 4)}


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


@pytest.mark.spec("CTL-91", "CTL-96")
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
) -> Observer | None:
    """Have the controller (broker 8, without replicas) die right after its n-th write; None: it made fewer.

    Its requests under way arrive all the same, or are lost with it. Every write is observed, by whomever.
    """
    cluster = FakeCluster(8, 1, 2, 3, 4, 5, 6, 7, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    controller = cluster.brokers[8].session
    observer = Observer(cluster)
    observer.look()
    writes = 0

    def die(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal writes
        observer.look()
        if session is controller:
            writes += 1
            if writes == number:
                controller.crash()
                if requests_are_lost:
                    cluster.network.clear()
                raise Crash

    cluster.ensemble.on_write = die
    cluster.reassign({T0: wanted})
    return observer if writes >= number else None


@pytest.mark.spec("CTL-89", "CTL-92", "CTL-94", "CTL-98", "CTL-99")
@pytest.mark.parametrize("wanted", [(4, 5, 6), (3, 4), (1, 2, 3, 4), (2, 1, 3), (2, 3)])
def test_the_next_controller_finishes_after_a_crash_behind_every_write(wanted: tuple[int, ...]) -> None:
    crashes, both = 0, union((1, 2, 3), wanted)
    leader = 1 if 1 in wanted else wanted[0]
    rows = [row for row, _ in itertools.groupby([((1, 2, 3), 1), (both, 1), (both, leader), (wanted, leader)])]
    while observer := reassignment_with_a_crash_after_write(crashes + 1, wanted):
        cluster = observer.cluster
        crashes += 1
        seen = [(assigned, leader) for assigned, leader, _ in observer.seen]
        assert [row for row, _ in itertools.groupby(seen)] == rows, crashes
        assert all(leader in isr and set(isr) <= set(assigned) for assigned, leader, isr in observer.seen), crashes
        assert observer.epochs == sorted(observer.epochs), crashes
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


BOTH = [1, 2, 3, 4, 5, 6]
LEFT_AND_DONE: list[tuple[tuple[list[int], int, int, list[int]], list[str]]] = [
    # after step 1: what is left (AR, leader epoch, leader, ISR), and what the next controller writes (CTL-99)
    (
        (BOTH, 0, 1, [1, 2, 3]),
        ["epoch 1: 1 of [1, 2, 3]", f"epoch 2: 4 of {BOTH}", "epoch 3: 4 of [4, 5, 6]"],
    ),
    ((BOTH, 1, 1, [1, 2, 3]), ["epoch 2: 1 of [1, 2, 3]", f"epoch 3: 4 of {BOTH}", "epoch 4: 4 of [4, 5, 6]"]),  # 2
    ((BOTH, 2, 4, BOTH), [f"epoch 3: 4 of {BOTH}", "epoch 4: 4 of [4, 5, 6]"]),  # 7
    ((BOTH, 3, 4, [4, 5, 6]), ["epoch 4: 4 of [4, 5, 6]"]),  # 8: of 5 to 8 the epoch of 7 is left
    (([4, 5, 6], 3, 4, [4, 5, 6]), []),  # 10
    (([4, 5, 6], 3, 4, [4, 5, 6]), []),  # 11
]


@pytest.mark.spec("CTL-57", "CTL-93", "CTL-98", "CTL-99")
@pytest.mark.parametrize("number", range(1, 7))
def test_what_a_crash_leaves_and_how_the_next_controller_goes_on(number: int) -> None:
    left, states = LEFT_AND_DONE[number - 1]
    cluster = FakeCluster(8, 7, 1, 2, 3, 4, 5, 6, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    controller = cluster.brokers[8].session
    found: list[tuple[list[int], int, int | None, list[int]]] = []
    noted: list[str] = []
    writes = 0

    def die(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal writes, noted
        writes += session is controller
        if writes == number and not found:
            state = cluster.state("t")
            found.append((list(cluster.assignment("t")[0]), state.leader_epoch, state.leader, sorted(state.isr)))
            noted = writes_of(cluster, 7)
            cluster.sent.clear()
            controller.crash()
            raise Crash

    cluster.ensemble.on_write = die
    cluster.reassign({T0: [4, 5, 6]})
    assert cluster.controller_id == 7 and found == [left]
    last = [] if number == 6 else ["request deleted"] if number == 5 else ["replicas [4, 5, 6]", "request deleted"]
    assert noted == states + last, "AR is not written again where it is OAR + RAR already"
    state = cluster.state("t")
    assert state.controller_epoch == (2 if states else 1), "each write has the writer's epoch"
    assert (cluster.assignment("t")[0], state.leader, sorted(state.isr)) == ((4, 5, 6), 4, [4, 5, 6])
    assert not cluster.exists(ReassignmentZnode.PATH)
    told = {b: m.partition_states for b, m in cluster.metadata()}
    assert sorted(told) == [1, 2, 3, 4, 5, 6, 7]
    assert {(s.leader, *s.replicas) for states in told.values() for s in states} == {(4, 4, 5, 6)}, "step 12"
    if number >= 5:  # done: whoever else may still have one is told, as long as the entry tells of it
        assert sorted(cluster.stops()) == [(b, True, T0) for b in (1, 2, 3, 7)] * (number == 5)


@pytest.mark.spec("CTL-98", "CTL-99")
@pytest.mark.parametrize("grown", [1, 2, 3])
def test_a_crash_while_the_isr_grows_leaves_the_rest_to_the_next_controller(grown: int) -> None:
    """Row 4, partly and done: with all in sync it goes on from step 5, and prepares nothing again."""
    cluster = FakeCluster(8, 7, 1, 2, 3, 4, 5, 6, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    leader = cluster.brokers[1].session
    noted: list[str] = []
    growths = 0

    def die(session: MemoryZooKeeper, op: Op) -> None:
        nonlocal growths, noted
        growths += session is leader and op.path == PartitionStateZnode.path(T0)
        if growths == grown and 8 in cluster.brokers and not cluster.brokers[8].session.crashed:
            cluster.network.clear()
            cluster.sent.clear()
            cluster.brokers[8].session.crash()
            noted = writes_of(cluster, 7)

    cluster.ensemble.on_write = die
    cluster.reassign({T0: [4, 5, 6]})
    assert cluster.controller_id == 7
    left = f"epoch 2: 1 of {BOTH[: 3 + grown]}"
    epoch = 2 if grown == 3 else 3
    assert noted == [
        *([] if grown == 3 else [left]),
        f"epoch {epoch}: 4 of {BOTH}",
        f"epoch {epoch + 1}: 4 of [4, 5, 6]",
        "replicas [4, 5, 6]",
        "request deleted",
    ]
    assert cluster.assignment("t") == {0: (4, 5, 6)}
    assert all(T0 in cluster.brokers[old].deleted for old in (1, 2, 3)), "OAR - RAR, found as AR - RAR"
    told = {b: m.partition_states for b, m in cluster.metadata()}
    assert sorted(told) == [1, 2, 3, 4, 5, 6, 7]
    assert {(s.leader, *s.replicas) for states in told.values() for s in states} == {(4, 4, 5, 6)}, "step 12"


@pytest.mark.spec("CTL-98", "CTL-99")
def test_a_request_that_nobody_has_begun_is_carried_out_by_the_next_and_one_of_a_topic_that_is_gone_dropped() -> None:
    cluster = FakeCluster(8, 7, 1, 2, 3, 4, 5, 6, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.kill(8)
    request = ReassignmentZnode.encode({T0: (4, 5, 6), TopicPartition("gone", 0): (1, 2)})
    cluster.zk.create(ReassignmentZnode.PATH, request)
    noted = writes_of(cluster, 7)
    cluster.run()
    assert noted[0] == f"replicas {BOTH}" and noted[-1] == "request deleted"
    assert cluster.assignment("t") == {0: (4, 5, 6)} and cluster.state("t").leader == 4
    assert sorted(cluster.state("t").isr) == [4, 5, 6] and not cluster.exists(ReassignmentZnode.PATH)
    assert all(T0 in cluster.brokers[old].deleted for old in (1, 2, 3))
    assert cluster.zk.children("/brokers/topics") == ["t"]


@pytest.mark.spec("CTL-98")
def test_what_the_next_controller_finds_is_done_only_in_the_order_that_is_wanted() -> None:
    cluster = FakeCluster(8, 7, 1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3], 1: [1, 2, 3]})
    cluster.kill(8)
    request = ReassignmentZnode.encode({T0: (2, 1, 3), TopicPartition("t", 1): (1, 2, 3)})
    cluster.zk.create(ReassignmentZnode.PATH, request)
    cluster.run()
    assert cluster.assignment("t") == {0: (2, 1, 3), 1: (1, 2, 3)}
    assert cluster.state("t", 0) == LeaderAndIsr(1, 1, (1, 2, 3), 2), "step 7: its leader hears of the new order"
    assert cluster.state("t", 1) == LeaderAndIsr(1, 0, (1, 2, 3), 1), "dropped"
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("CTL-93", "CTL-98", "CTL-99", "BRK-110")
@pytest.mark.parametrize("wanted", [(4, 5, 6), (3, 4), (2, 3)])
def test_no_broker_keeps_a_replica_when_the_order_to_delete_it_was_lost(wanted: tuple[int, ...]) -> None:
    survivors: list[FakeCluster] = []
    while observer := reassignment_with_a_crash_after_write(len(survivors) + 1, wanted, requests_are_lost=True):
        cluster = observer.cluster
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
    observer = reassignment_with_a_crash_after_write(1, (1, 2, 3, 4))
    assert observer is not None
    assert set(observer.cluster.state("t").isr) == {1, 2, 3, 4}


@pytest.mark.spec("CTL-88", "CTL-96")
@pytest.mark.parametrize("bad", [(), (4, 4), (-1, 4), (1, 2, 3)])
def test_a_bad_entry_is_refused_and_the_others_go_on(bad: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3], 1: [1, 2]})
    unknown = {TopicPartition("nope", 0): [1], TopicPartition("t", 2): [1]}
    cluster.reassign({T0: bad, TopicPartition("t", 1): [4, 3], **unknown})
    assert cluster.assignment("t") == {0: (1, 2, 3), 1: (4, 3)}
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert cluster.state("t", 0).leader_epoch == 0
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert [e for e in errors if e.startswith("reassignment of partition t-0 is refused: ")]
    for partition in unknown:
        assert f"reassignment of partition {partition} is refused: there is no such partition" in errors
    assert len(errors) == 3


@pytest.mark.spec("CTL-34", "CTL-89", "CTL-90", "CTL-120")
def test_a_reassignment_waits_for_a_broker_that_is_down() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.reassign({T0: [2, 9]})
    assert cluster.assignment("t") == {0: (1, 2, 9)}
    assert cluster.exists(ReassignmentZnode.PATH)
    cluster.restart(9)
    assert cluster.assignment("t") == {0: (2, 9)}
    assert set(cluster.state("t").isr) == {2, 9} and T0 in cluster.brokers[9].roles
    assert cluster.state("t").leader == 2
    assert not cluster.exists(ReassignmentZnode.PATH)


def ask_anew(cluster: FakeCluster, replicas: Sequence[int]) -> None:
    """Change what the request asks for, as kt reassign --cancel does."""
    cluster.zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: replicas}), -1)
    cluster.run()


@pytest.mark.spec("RSN-37X", "CTL-87", "CTL-90")
@pytest.mark.parametrize("dead", [(2, 9), (9,), (1, 2, 3, 9), (4, 9)])
@pytest.mark.parametrize("back", [(1, 2, 3), (3, 2, 1), (2, 4)])
def test_a_move_to_a_broker_that_is_down_turns_round_when_its_entry_changes(
    dead: tuple[int, ...], back: tuple[int, ...]
) -> None:
    cluster = FakeCluster(8, 1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.reassign({T0: dead})
    assert 9 in cluster.assignment("t")[0]
    ask_anew(cluster, back)
    assert cluster.assignment("t") == {0: back} and not cluster.exists(ReassignmentZnode.PATH)
    assert set(cluster.state("t").isr) == set(back) and cluster.state("t").leader in back
    for broker in (1, 2, 3, 4):
        assert (T0 in cluster.brokers[broker].roles) == (broker in back)
    cluster.reassign({T0: [4, 1]})  # the next request is seen
    assert cluster.assignment("t") == {0: (4, 1)}
    cluster.restart(9)
    assert T0 not in cluster.brokers[9].roles


@pytest.mark.spec("RSN-37X", "CTL-87")
def test_an_entry_that_changes_to_nonsense_while_its_move_is_under_way_changes_nothing() -> None:
    cluster = FakeCluster(1, 2, 3, properties=STABLE)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.reassign({T0: [2, 9]})
    ask_anew(cluster, (2, 2))
    assert cluster.assignment("t") == {0: (1, 2, 9)}
    ask_anew(cluster, (1, 2))
    assert cluster.assignment("t") == {0: (1, 2)} and not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("RSN-37X", "CTL-91", "CTL-99")
def test_turned_round_behind_every_write_it_ends_where_it_was_told_to() -> None:
    """Also behind those of steps 7 to 11, when the way there is completed first, and with a controller that dies then."""

    turned = False

    def turned_after(number: int, *, crash: bool) -> FakeCluster | None:
        nonlocal turned
        cluster = FakeCluster(8, 1, 2, 3, 4, 5, 6, properties=STABLE)
        cluster.create_topic("t", {0: [1, 2, 3]})
        controller, writes, turned = cluster.brokers[8].session, 0, False

        def turn(session: MemoryZooKeeper, op: Op) -> None:
            nonlocal writes, turned
            if session is not controller:
                return
            writes += 1
            if writes == number and cluster.exists(ReassignmentZnode.PATH):
                cluster.zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (1, 2, 3)}), -1)
                turned = True
                if crash:
                    controller.crash()
                    raise Crash

        cluster.ensemble.on_write = turn
        cluster.reassign({T0: (4, 5, 3)})
        return cluster if writes >= number else None

    for crash in (False, True):
        number = 0
        while cluster := turned_after(number + 1, crash=crash):
            number += 1
            assert not cluster.exists(ReassignmentZnode.PATH), number
            last = cluster.assignment("t")[0]
            assert last == ((1, 2, 3) if turned else (4, 5, 3)), number  # the last write removes the request
            assert set(cluster.state("t").isr) == set(last) and cluster.state("t").leader in last, number
            for broker in {1, 2, 3, 4, 5} - set(last):
                assert T0 not in cluster.brokers[broker].roles, number
        assert number >= 5 and not turned


@pytest.mark.spec("CTL-34", "CTL-95")
@pytest.mark.parametrize("occasion", ["the ISR changes", "a target has started", "a target dies and starts"])
def test_nothing_is_moved_when_none_of_the_wanted_replicas_can_lead(occasion: str) -> None:
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
    cluster.run()
    assert cluster.exists(ReassignmentZnode.PATH), "until something drives it on"
    if occasion == "the ISR changes":
        cluster.zk.set(path, PartitionStateZnode.encode(in_sync), -1)
    elif occasion == "a target has started":  # said alone, without what else its start brings
        term.reassignment.on_brokers_started([4])
    else:
        cluster.kill(4)
        cluster.run()
        assert cluster.assignment("t") == {0: (1, 2, 3, 4, 5)} and not cluster.stops()
        cluster.catching_up = True
        cluster.restart(4)
    cluster.run()
    assert cluster.assignment("t") == {0: (4, 5)} and cluster.state("t").leader == 4
    assert not cluster.exists(ReassignmentZnode.PATH)


@pytest.mark.spec("Z-13")
def test_unknown_keys_of_the_topic_node_survive() -> None:
    cluster = six_brokers()
    path = TopicZnode.path("t")
    found = {"version": 3, "topic_id": "abc", "adding_replicas": {}, "removing_replicas": {}, "unknown": [{"a": 1}]}
    cluster.zk.set(path, orjson.dumps({**found, "partitions": {"0": [1, 2, 3], "1": [2, 1]}}), -1)
    cluster.run()
    cluster.reassign({T0: [4, 5, 6]})
    node = cluster.zk.get(path)
    assert node is not None
    assert orjson.loads(node.data) == {**found, "partitions": {"0": [4, 5, 6], "1": [2, 1]}}


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
def test_an_unreadable_request_is_left_for_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    cluster = six_brokers()
    cluster.zk.create(ReassignmentZnode.PATH, b"{", make_parents=True)
    noted = writes_of(cluster, 1)
    cluster.run()
    assert cluster.exists(ReassignmentZnode.PATH) and not noted
    assert cluster.controller_epoch == 1
    assert [r.levelname for r in caplog.records if ReassignmentZnode.PATH in r.getMessage()] == ["ERROR"]


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
