"""Preferred elections against a real ZooKeeper, with the seeds' tables as golden data."""

import threading
import time
from collections.abc import Sequence

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.operations.election import election
from kafkatool.core.operations.election.election import ElectionResult, Outcome
from kafkatool.core.planner.plan_files import split_election
from kafkatool.core.zookeeper.cluster_view import read_cluster, read_states
from kafkatool.core.zookeeper.session import Create, Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    DeleteTopicsZnode,
    PartitionStateZnode,
    PartitionsZnode,
    PartitionZnode,
    PreferredElectionZnode,
    TopicZnode,
)
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import count_round_trips
from tests.waiting import eventually

AR = {0: (1, 3, 4), 1: (2, 4, 5), 2: (3, 5, 6), 3: (4, 6, 7), 4: (5, 7, 0), 5: (6, 0, 1), 6: (7, 1, 2), 7: (0, 2, 3)}
COLUMN_C = {
    0: (3, (3, 1)),
    1: (5, (5,)),
    2: (6, (5, 3, 6)),
    3: (7, (7, 6)),
    4: (5, (5, 7, 0)),
    5: (6, (0, 6, 1)),
    6: (7, (7, 1)),
    7: (0, (0, 3)),
}
COLUMN_E = {
    0: (1, (3, 1, 4)),
    1: (5, (5, 2, 4)),
    2: (3, (5, 3, 6)),
    3: (7, (7, 6, 4)),
    4: (5, (5, 7, 0)),
    5: (6, (0, 6, 1)),
    6: (7, (7, 1, 2)),
    7: (0, (0, 3, 2)),
}


def t(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", n) for n in numbers]


def seed_cluster(zk: ZooKeeper, column: dict[int, tuple[int, tuple[int, ...]]], brokers: Sequence[int]) -> None:
    states = {TopicPartition("t", p): state for p, state in column.items()}
    nodes.make_cluster(zk, brokers=brokers, topics={"t": AR}, states=states)


def run(connect: str, zk: ZooKeeper, live: Sequence[int], wanted: list[TopicPartition] | None = None) -> ElectionResult:
    with nodes.controller(connect, PreferredElectionZnode.PATH, lambda own: nodes.elect(own, live)):
        selection = election.select(read_cluster(zk), wanted)
        return election.run(zk, selection, [selection.partitions], timeout_s=60, on_batch=lambda _: None)


@pytest.mark.spec("ELE-9", "ELE-7", "ELE-1", "ELE-16X")
@pytest.mark.parametrize(
    ("column", "live", "changed"),
    [(COLUMN_C, (0, 1, 3, 5, 6, 7), {0: 1, 2: 3}), (COLUMN_E, tuple(range(8)), {1: 2, 3: 4})],
    ids=["D", "F"],
)
def test_the_seeds_table(
    zk_connect: str,
    zk: ZooKeeper,
    column: dict[int, tuple[int, tuple[int, ...]]],
    live: tuple[int, ...],
    changed: dict[int, int],
) -> None:
    seed_cluster(zk, column, live)
    result = run(zk_connect, zk, live)
    after = {p.partition: s.leader_and_isr for p, s in read_states(zk, t(*AR)).items()}
    assert {p: (s.leader, s.isr) for p, s in after.items()} == {
        p: (changed.get(p, leader), isr) for p, (leader, isr) in column.items()
    }
    assert {p: s.leader_epoch for p, s in after.items()} == {p: int(p in changed) for p in AR}
    expected = {p: Outcome.ELECTED if p in changed else Outcome.ALREADY_PREFERRED for p in AR}
    if column is COLUMN_C:
        expected |= {1: Outcome.PREFERRED_DOWN, 3: Outcome.PREFERRED_DOWN}
    assert {item.partition.partition: item.status for item in result.items} == expected
    assert result.all_led_by_preferred is (column is COLUMN_E)


@pytest.mark.spec("ELE-10")
def test_the_seeds_three_brokers(zk_connect: str, zk: ZooKeeper) -> None:
    three = {0: (1, 2, 0), 1: (2, 0, 1), 2: (0, 1, 2)}
    states = {TopicPartition("t", p): (leader, three[p]) for p, leader in {0: 1, 1: 0, 2: 0}.items()}
    nodes.make_cluster(zk, brokers=(0, 1, 2), topics={"t": three}, states=states)
    run(zk_connect, zk, (0, 1, 2))
    assert [s.leader_and_isr.leader for s in read_states(zk, t(0, 1, 2)).values()] == [1, 2, 0]


@pytest.mark.spec("ELE-7", "ELE-16X")
def test_each_outcome_has_its_name(zk_connect: str, zk: ZooKeeper) -> None:
    topics = {"t": {0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (9, 2), 5: (1, 2)}}
    states = {
        TopicPartition("t", 0): (2, (1, 2)),
        TopicPartition("t", 2): (2, (2,)),
        TopicPartition("t", 3): (2, (2,)),
        TopicPartition("t", 5): (2, (1, 2)),
    }
    nodes.make_cluster(zk, topics=topics, states=states)
    refusing = t(5)
    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, lambda own: nodes.elect(own, (1, 2), fail=refusing)):
        selection = election.select(read_cluster(zk), t(0, 1, 2, 3, 4, 5))
        result = election.run(zk, selection, [selection.partitions], timeout_s=60, on_batch=lambda _: None)
    assert {item.partition.partition: item.status for item in result.items} == {
        0: Outcome.ELECTED,
        1: Outcome.ALREADY_PREFERRED,
        2: Outcome.NOT_IN_ISR,
        3: Outcome.PREFERRED_DOWN,
        4: Outcome.UNKNOWN,
        5: Outcome.FAILED,
    }
    assert not result.all_led_by_preferred


@pytest.mark.spec("ELE-5")
def test_unknown_partitions_and_those_that_never_had_a_leader_are_left_out(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2)}})
    zk.delete("/brokers/topics/t/partitions/1/state")
    selection = election.select(read_cluster(zk), t(0, 1, 2))
    assert list(selection.partitions) == t(0)
    assert list(selection.never_led) == t(1)
    assert list(selection.unknown) == t(2)


@pytest.mark.spec("ELE-6", "Z-22")
def test_an_election_that_runs_is_not_overwritten(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2)}})
    other = PreferredElectionZnode.encode(t(1, 0))
    zk.create(PreferredElectionZnode.PATH, other, make_parents=True)
    selection = election.select(read_cluster(zk), t(0))
    result = election.run(zk, selection, [selection.partitions], timeout_s=5, on_batch=lambda _: None)
    assert result.stopped == "Preferred replica leader election currently in progress for t-0,t-1. Aborting operation"
    node = zk.get(PreferredElectionZnode.PATH)
    assert node is not None and node.data == other


@pytest.mark.spec("ELE-16X")
def test_a_controller_that_never_ends_is_told_when_time_is_up(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}}, states={TopicPartition("t", 0): (2, (1, 2))})
    selection = election.select(read_cluster(zk))
    result = election.run(zk, selection, [selection.partitions], timeout_s=0.2, on_batch=lambda _: None)
    assert result.stopped and "has not finished the election after 0.2 s" in result.stopped
    assert result.items[0].status is Outcome.FAILED


@pytest.mark.spec("ELE-16X")
def test_without_waiting_the_outcome_is_pending(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}}, states={TopicPartition("t", 0): (2, (1, 2))})
    selection = election.select(read_cluster(zk))
    result = election.run(zk, selection, [selection.partitions], timeout_s=5, wait=False, on_batch=lambda _: None)
    assert [item.status for item in result.items] == [Outcome.PENDING]
    assert result.stopped is None
    zk.delete(PreferredElectionZnode.PATH)
    batches = [selection.partitions] * 2  # the second waits for the first, which nobody ends
    result = election.run(zk, selection, batches, timeout_s=0.2, wait=False, on_batch=lambda _: None)
    assert result.stopped and "has not finished the election" in result.stopped
    assert [item.status for item in result.items] == [Outcome.FAILED], "then the states are read again all the same"


@pytest.mark.spec("ELE-14X", "ELE-3")
@pytest.mark.parametrize("wait", [True, False])
def test_each_batch_waits_for_the_one_before(zk_connect: str, zk: ZooKeeper, wait: bool) -> None:
    nodes.make_cluster(
        zk, topics={"t": dict.fromkeys(range(5), (1, 2))}, states=dict.fromkeys(t(0, 1, 2, 3, 4), (2, (1, 2)))
    )
    seen: list[list[TopicPartition]] = []

    def act(own: ZooKeeper) -> None:
        node = own.get(PreferredElectionZnode.PATH)
        assert node is not None
        seen.append(PreferredElectionZnode.decode(node.data))
        nodes.elect(own, (1, 2))

    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, act):
        selection = election.select(read_cluster(zk))
        batches = split_election(selection.partitions, max_bytes=512_000, max_count=2)
        told: list[Sequence[TopicPartition]] = []
        result = election.run(zk, selection, batches, timeout_s=60, wait=wait, on_batch=told.append)
        eventually(lambda: len(seen) == 3, "the last batch to be served")
    assert seen == told == [t(0, 1), t(2, 3), t(4)]
    assert result.stopped is None and result.all_led_by_preferred is wait


@pytest.mark.spec("ELE-13", "ELE-14X")
def test_batches_fill_up_to_the_bound_and_never_over_it() -> None:
    partitions = [TopicPartition("x" * 50, p) for p in range(1000)]
    batches = split_election(partitions, max_bytes=4096)
    sizes = [len(PreferredElectionZnode.encode(batch)) for batch in batches]
    assert [p for batch in batches for p in batch] == partitions
    assert max(sizes) <= 4096
    assert min(sizes[:-1]) > 4096 - 25 - 50 - 3 - 1
    exactly = len(PreferredElectionZnode.encode(partitions[:7]))
    assert [len(split_election(partitions[:8], max_bytes=exactly - less)[0]) for less in (0, 1)] == [7, 6]


@pytest.mark.spec("ELE-15X", "ELE-16X")
def test_only_imbalanced_keeps_what_an_election_would_change(zk: ZooKeeper) -> None:
    seed_cluster(zk, COLUMN_C, (0, 1, 3, 5, 6, 7))
    selection = election.select(read_cluster(zk), only_imbalanced=True)
    assert list(selection.partitions) == t(0, 2)
    assert dict(selection.skipped) == {Outcome.ALREADY_PREFERRED: 4, Outcome.PREFERRED_DOWN: 2}
    for never_led in (6, 7):
        zk.delete(f"/brokers/topics/t/partitions/{never_led}/state")
    selection = election.select(read_cluster(zk), only_imbalanced=True)
    assert (list(selection.partitions), selection.asked) == (t(0, 2), tuple(t(0, 2)))
    assert dict(selection.skipped) == {Outcome.ALREADY_PREFERRED: 2, Outcome.PREFERRED_DOWN: 2, "never_led": 2}


@pytest.mark.spec("ELE-15X")
def test_only_imbalanced_leaves_out_a_preferred_replica_that_is_alive_and_behind(zk: ZooKeeper) -> None:
    seed_cluster(zk, COLUMN_C, tuple(range(8)))
    selection = election.select(read_cluster(zk), only_imbalanced=True)
    assert list(selection.partitions) == t(0, 2)
    assert dict(selection.skipped) == {Outcome.ALREADY_PREFERRED: 4, Outcome.NOT_IN_ISR: 2}


@pytest.mark.spec("ELE-19X")
def test_partitions_that_prefer_one_broker(zk: ZooKeeper) -> None:
    seed_cluster(zk, COLUMN_C, (0, 1, 3, 5, 6, 7))
    assert list(election.select(read_cluster(zk), preferring=3).partitions) == t(2)


@pytest.mark.spec("ELE-20X")
def test_no_controller_or_a_running_reassignment_refuses(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}}, controller=None)
    with pytest.raises(RefusedError, match="no controller is elected"):
        election.check_can_start(election.select(read_cluster(zk)))
    zk.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}')
    election.check_can_start(election.select(read_cluster(zk)))
    zk.create("/admin/reassign_partitions", b'{"version":1,"partitions":[]}')
    with pytest.raises(RefusedError, match="a reassignment of 0 partitions is running"):
        election.check_can_start(election.select(read_cluster(zk)))


@pytest.mark.spec("ELE-11", "ELE-18X")
def test_the_report_counts_leaders_led_elsewhere(zk: ZooKeeper) -> None:
    seed_cluster(zk, COLUMN_C, (0, 1, 3, 5, 6, 7))
    rows = {row.broker_id: row for row in election.report(read_cluster(zk))}
    assert (rows[1].preferred, rows[1].led_by_others, rows[1].imbalance) == (1, 1, 1.0)
    assert (rows[7].leaders, rows[7].preferred, rows[7].imbalance) == (2, 1, 0.0)
    assert not rows[2].registered and rows[2].imbalance == 1.0


@pytest.mark.spec("ELE-11", "ELE-18X")
def test_the_report_leaves_out_topics_that_are_being_deleted(zk: ZooKeeper) -> None:
    stays = {TopicPartition("stays", 0): (1, (1, 2))}
    goes = {TopicPartition("goes", p): (2, (1, 2)) for p in range(3)}
    nodes.make_cluster(
        zk, topics={"stays": {0: (1, 2)}, "goes": dict.fromkeys(range(3), (1, 2))}, states={**stays, **goes}
    )
    before = election.report(read_cluster(zk))
    assert [(row.leaders, row.preferred, row.led_by_others) for row in before[:2]] == [(1, 4, 3), (3, 0, 0)]
    zk.create(DeleteTopicsZnode.topic_path("goes"), make_parents=True)
    after = election.report(read_cluster(zk))
    assert [(row.leaders, row.preferred, row.led_by_others) for row in after[:2]] == [(1, 1, 0), (0, 0, 0)]


@pytest.mark.spec("ELE-11")
def test_a_partition_without_state_counts_only_below_the_line(zk: ZooKeeper) -> None:
    nodes.make_cluster(
        zk, topics={"t": {0: (1, 2), 1: (1, 2), 2: (1, 2)}}, states={TopicPartition("t", 1): (None, (1,))}
    )
    zk.delete("/brokers/topics/t/partitions/2/state")
    row = next(r for r in election.report(read_cluster(zk)) if r.broker_id == 1)
    assert (row.preferred, row.led_by_others, row.leaders) == (3, 1, 1)


@pytest.mark.spec("ELE-17X")
@pytest.mark.parametrize("partitions", [1, 300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_states_of_many_partitions_are_read_in_one_pass(zk: ZooKeeper, partitions: int) -> None:
    nodes.make_cluster(zk, topics={})
    zk.create(TopicZnode.path("t"), TopicZnode(dict.fromkeys(range(partitions), (1, 2))).encode())
    zk.create(PartitionsZnode.path("t"))
    state, made = PartitionStateZnode.encode(LeaderAndIsr(1, 0, (1, 2), 1)), list[Op]()
    for partition in t(*range(partitions)):
        made += [Create(PartitionZnode.path(partition)), Create(PartitionStateZnode.path(partition), state)]
    zk.commit_many([made[i : i + 500] for i in range(0, len(made), 500)])
    trips = count_round_trips(zk)
    assert len(read_cluster(zk).states) == partitions
    assert trips.count == 3  # names, nodes, states


@pytest.mark.spec("ELE-13")
def test_the_size_of_a_request_is_its_entries_and_13000_of_50_characters_fill_a_znode() -> None:
    partitions = [TopicPartition("x" * 50, p) for p in range(13_500)]
    sizes = [len(PreferredElectionZnode.encode(partitions[:count])) for count in (9, 10, 11, 13_000, 13_500)]
    assert sizes[1] - sizes[0] == 25 + 50 + 1 + 1
    assert sizes[2] - sizes[1] == 25 + 50 + 2 + 1
    assert sizes[3] < 1_048_575 < sizes[4]


@pytest.mark.spec("ELE-14X")
def test_between_batches_it_pauses(zk_connect: str, zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.make_cluster(zk, topics={"t": dict.fromkeys(range(3), (1, 2))})
    done: list[object] = []

    sleep = time.sleep

    def pause(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            sleep(seconds)
            return
        assert zk.get(PreferredElectionZnode.PATH) is None
        done.append(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, lambda own: nodes.elect(own, (1, 2))):
        selection = election.select(read_cluster(zk))
        batches = [[partition] for partition in selection.partitions]
        election.run(zk, selection, batches, timeout_s=60, interval_s=2.5, on_batch=done.extend)
    assert done == [*t(0), 2.5, *t(1), 2.5, *t(2)]
