"""Reassignments against a real ZooKeeper: what is refused, what is written, and how the end is seen."""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from kafkatool.core.errors import NodeExistsError, RefusedError, VersionConflictError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import requests as reassignment
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.requests import Progress, Status
from kafkatool.core.planner.plan_files import Moves, dashed
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode, PreferredElectionZnode, ReassignmentZnode
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import link_of

NINE = {0: (1,), 1: (2,), 2: (3,), 3: (1,), 4: (2,), 5: (3,), 6: (1,), 7: (2,), 8: (3,)}


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def plan(moves: Mapping[int, Sequence[int]], topic: str = "t") -> dict[TopicPartition, tuple[int, ...]]:
    return {tp(p, topic): tuple(r) for p, r in moves.items()}


def config(zk: ZooKeeper, entity_type: str, name: str) -> dict[str, str] | None:
    path = ConfigZnode.path(entity_type, name)
    node = zk.get(path)
    return ConfigZnode.decode(path, node.data) if node else None


def changes(zk: ZooKeeper) -> list[str]:
    names = sorted(zk.children(ConfigChangeZnode.PATH) or [])
    found = zk.get_many([f"{ConfigChangeZnode.PATH}/{n}" for n in names])
    return [ConfigChangeZnode.decode(node.data) for node in found if node]


# --- generate --------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-3", "ASG-10")
def test_generate_spreads_the_topic_over_the_listed_brokers_and_writes_nothing(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    proposals = [
        reassignment.generate(zk, ["t"], [3, 2], rack_aware=True, rng=random.Random(seed)) for seed in range(20)
    ]
    wanted = plan({p: (3 - p % 2,) for p in range(9)})
    assert all(proposal.current == plan(NINE) for proposal in proposals)
    assert any(proposal.proposed == wanted for proposal in proposals)  # start 1: the seed's plan
    assert not any(proposal.uneven_topics for proposal in proposals)
    assert zk.get(ReassignmentZnode.PATH) is None and not changes(zk)


@pytest.mark.spec("RSN-3")
def test_generate_names_topics_of_uneven_replica_counts_and_takes_partition_0s(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1,)}})
    found = reassignment.generate(zk, ["t"], [1, 2, 3], rack_aware=True, rng=random.Random(1))
    assert found.uneven_topics == ("t",)
    assert {len(r) for r in found.proposed.values()} == {2}


@pytest.mark.spec("RSN-17X")
@pytest.mark.parametrize(
    ("topics", "brokers", "message"),
    [
        (["t", "x"], [1], "List of topics to reassign contains topics that do not exist: x"),
        (["t"], [1, 9, 8], "Broker list contains brokers that are not registered: 8,9 (registered: 1,2,3)"),
    ],
)
def test_generate_refuses_what_kafka_drops_silently(
    zk: ZooKeeper, topics: list[str], brokers: list[int], message: str
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    with pytest.raises(RefusedError) as refused:
        reassignment.generate(zk, topics, brokers, rack_aware=True, rng=random.Random(1))
    assert str(refused.value) == message


# --- execute ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-16", "RSN-9", "RSN-18X")
def test_the_znode_holds_all_nine_entries_also_those_that_change_nothing(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    prepared = reassignment.prepare(zk, plan({p: (3 - p % 2,) for p in range(9)}))
    assert prepared.unchanged == [tp(1), tp(2), tp(7), tp(8)]
    assert zk.get(ReassignmentZnode.PATH) is None
    reassignment.start(zk, prepared)
    node = zk.get(ReassignmentZnode.PATH)
    assert node is not None and node.ephemeral_owner == 0
    entries = [{"topic": "t", "partition": p, "replicas": [3 - p % 2]} for p in range(9)]
    assert json.loads(node.data) == {"version": 1, "partitions": entries}
    assert nodes.assignment(zk, "t") == NINE and not changes(zk)


@pytest.mark.spec("RSN-18X")
def test_unchanged_entries_can_be_left_out(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    prepared = reassignment.prepare(zk, plan({0: (2,), 1: (2,)}), skip_unchanged=True)
    assert list(prepared.moves) == [tp(0)]
    nothing = reassignment.prepare(zk, plan({1: (2,)}), throttle=5000, skip_unchanged=True)
    assert not nothing.ops
    reassignment.start(zk, nothing)
    assert zk.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-6")
def test_a_plan_may_change_the_number_of_replicas(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    reassignment.start(zk, reassignment.prepare(zk, plan({4: (2, 3)})))
    assert reassignment.running(zk) == plan({4: (2, 3)})


@pytest.mark.spec("RSN-7", "RSN-30X", "RSN-24X")
@pytest.mark.parametrize(
    ("moves", "throttle", "message"),
    [
        ({0: (2,), 9: (1,), 10: (1,)}, None, "The proposed assignment contains non-existent partitions: t-9, t-10"),
        ({0: (2, 77), 1: (9,)}, None, "The proposed assignment contains non-existent brokerIDs: 9,77"),
        ({0: (2,)}, 1023, "a throttle of 1023 B/s may never let the move end: give at least 1024, or add --force"),
    ],
)
def test_a_plan_that_does_not_fit_the_cluster_is_refused(
    zk: ZooKeeper, moves: dict[int, tuple[int, ...]], throttle: int | None, message: str
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    with pytest.raises(RefusedError) as refused:
        reassignment.prepare(zk, plan(moves), throttle=throttle, name_of=dashed)
    assert str(refused.value) == message


@pytest.mark.spec("RSN-30X")
def test_a_running_election_of_a_plan_partition_stops_it_unless_forced(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([tp(0), tp(3)]), make_parents=True)
    reassignment.prepare(zk, plan({1: (3,)}))
    with pytest.raises(RefusedError, match=r"election is under way for \[t,0\];"):
        reassignment.prepare(zk, plan({0: (3,)}))
    assert reassignment.prepare(zk, plan({0: (77,)}), force=True).moves == plan({0: (77,)})


@pytest.mark.spec("RSN-31X", "RSN-7")
def test_of_two_that_start_together_one_wins_and_the_other_is_told(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    plans = [plan({0: (2,)}), plan({0: (3,), 3: (3,)})]
    prepared = [reassignment.prepare(zk, p) for p in plans]
    refused: list[str] = []
    gate = threading.Barrier(2)

    def go(index: int) -> None:
        with ZooKeeper(zk_connect) as own:
            gate.wait(60)
            try:
                reassignment.start(own, prepared[index])
            except RefusedError as e:
                refused.append(str(e))

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    winner = reassignment.running(zk)
    assert winner in plans
    names = ",".join(p.bracketed for p in winner or {})
    assert refused == [f"Partition reassignment currently in progress for {names}. Aborting operation"]


# --- throttles -------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-14")
def test_the_throttle_names_old_replicas_for_leaders_and_new_ones_for_followers(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"big": {0: (1, 2), 1: (2, 1), 2: (2, 3)}}, brokers=(1, 2, 3, 4))
    zk.create("/config/topics/big", ConfigZnode.encode({"retention.ms": "5"}))
    reassignment.start(zk, reassignment.prepare(zk, plan({0: (3, 4), 1: (2, 3), 2: (3, 2)}, "big"), throttle=2000))
    assert config(zk, "topics", "big") == {
        "retention.ms": "5",
        "leader.replication.throttled.replicas": "0:1,0:2,1:2,1:1",
        "follower.replication.throttled.replicas": "0:3,0:4,1:3",
    }
    rates = {"leader.replication.throttled.rate": "2000", "follower.replication.throttled.rate": "2000"}
    assert all(config(zk, "brokers", str(b)) == rates for b in (1, 2, 3, 4))
    assert changes(zk) == ["brokers/1", "brokers/2", "brokers/3", "brokers/4", "topics/big"]


@pytest.mark.spec("RSN-14")
def test_both_lists_are_empty_texts_when_no_partition_gains_a_replica(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (3,)}})
    reassignment.start(zk, reassignment.prepare(zk, plan({0: (2, 1)}), throttle=2000))
    assert config(zk, "topics", "t") == dict.fromkeys(throttles.REPLICAS, "")
    assert config(zk, "brokers", "3") is not None  # in the current assignment of the plan's topic


@pytest.mark.spec("RSN-10")
def test_while_another_runs_only_rates_are_written_for_the_brokers_of_the_given_plan(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE, "small": {0: (1,)}}, brokers=(1, 2, 3, 4))
    reassignment.start(zk, reassignment.prepare(zk, plan({0: (2,)})))
    before = zk.get(ReassignmentZnode.PATH)
    prepared = reassignment.prepare(zk, plan({0: (4,)}, "small"), throttle=3000)
    assert prepared.running == plan({0: (2,)})
    reassignment.start(zk, prepared)
    assert zk.get(ReassignmentZnode.PATH) == before
    assert config(zk, "topics", "small") is None and config(zk, "topics", "t") is None
    assert [config(zk, "brokers", b) is not None for b in "1234"] == [True, False, False, True]


@pytest.mark.spec("RSN-31X", "RSN-23X")
def test_the_loser_of_the_race_takes_its_throttles_back(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    zk.create("/config/brokers/2", ConfigZnode.encode({"leader.replication.throttled.rate": "77777"}))
    prepared = reassignment.prepare(zk, plan({0: (2,)}), throttle=2000)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({3: (3,)})), make_parents=True)
    with pytest.raises(RefusedError):
        reassignment.start(zk, prepared)
    assert config(zk, "brokers", "2") == {"leader.replication.throttled.rate": "77777"}
    assert config(zk, "brokers", "1") == {} == config(zk, "topics", "t")


@pytest.mark.spec("RSN-14")
def test_a_config_that_somebody_else_changed_meanwhile_is_not_overwritten(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    prepared = reassignment.prepare(zk, plan({0: (2,)}), throttle=2000)
    theirs = ConfigZnode.encode({"leader.replication.throttled.rate": "1"})
    zk.create("/config/brokers/3", theirs)
    with pytest.raises(VersionConflictError):
        reassignment.start(zk, prepared)
    node = zk.get("/config/brokers/3")
    assert node is not None and node.data == theirs
    assert config(zk, "brokers", "1") == {} and reassignment.running(zk) is None


# --- verify, list, wait ----------------------------------------------------------------------------------------


@pytest.mark.spec("RSN-12", "RSN-11")
def test_each_partition_has_its_status(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2), 2: (1, 2)}})
    reassignment.start(zk, reassignment.prepare(zk, plan({0: (1, 2)})))
    found = reassignment.verify(zk, plan({0: (1, 2), 1: (1, 2), 2: (2, 1), 9: (1,)}))
    assert [(m.partition.partition, m.status, m.current) for m in found.items] == [
        (0, Status.IN_PROGRESS, (1, 2)),
        (1, Status.COMPLETED, (1, 2)),
        (2, Status.FAILED, (1, 2)),
        (9, Status.FAILED, ()),
    ]
    assert not found.completed and not found.removal


@pytest.mark.spec("RSN-13", "RSN-24X")
def test_when_all_completed_throttles_go_from_every_broker_and_the_plans_topics(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}, "u": {0: (1, 2)}})
    rates = dict.fromkeys(throttles.RATES, "5")
    lists = dict.fromkeys(throttles.REPLICAS, "0:1")
    for path, stored in {
        "brokers/1": rates,
        "brokers/9": {**rates, "x": "y"},  # not registered
        "brokers/2": {"x": "y"},
        "topics/t": {**lists, "retention.ms": "5"},
        "topics/u": lists,
    }.items():
        zk.create(f"/config/{path}", ConfigZnode.encode(stored), make_parents=True)
    found = reassignment.verify(zk, plan({0: (1, 2)}))
    assert found.completed
    throttles.apply(zk, found.removal)
    assert config(zk, "brokers", "1") == {}
    assert config(zk, "brokers", "9") == {"x": "y"}
    assert config(zk, "topics", "t") == {"retention.ms": "5"}
    assert config(zk, "topics", "u") == lists
    assert changes(zk) == ["brokers/1", "brokers/9", "topics/t"]
    assert not reassignment.verify(zk, plan({0: (1, 2)})).removal
    zk.set("/config/topics/t", ConfigZnode.encode(lists), 1)
    assert not reassignment.verify(zk, plan({0: (1, 2)}), preserve_throttles=True).removal


@pytest.mark.spec("RSN-34X")
def test_verify_reads_four_round_trips_deep_whatever_the_size(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.make_cluster(zk, topics={t: dict.fromkeys(range(20), (1, 2)) for t in "abcde"})
    zk.create("/config/brokers/1", ConfigZnode.encode(dict.fromkeys(throttles.RATES, "5")))
    trips: list[str] = []
    for name in ("get", "children", "get_many", "children_many"):
        monkeypatch.setattr(zk, name, counting(trips, getattr(zk, name)))
    wanted = {tp(p, t): (1, 2) for t in "abcde" for p in range(20)}
    assert len(reassignment.verify(zk, wanted).removal) == 1
    assert len(trips) <= 4


def counting(trips: list[str], read: Callable[..., object]) -> Callable[..., object]:
    def counted(*args: object, **kwargs: object) -> object:
        trips.append(read.__name__)
        return read(*args, **kwargs)

    return counted


@pytest.mark.spec("RSN-38X")
def test_list_shows_targets_current_replicas_and_isr(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (2, 3)}}, states={tp(1): (3, (3,))})
    assert reassignment.list_running(zk) == ()
    reassignment.start(zk, reassignment.prepare(zk, plan({1: (1, 2)})))
    (move,) = reassignment.list_running(zk)
    assert (move.partition, move.current, move.target, move.isr) == (tp(1), (2, 3), (1, 2), (3,))


@pytest.mark.spec("RSN-33X")
def test_waiting_ends_when_the_znode_is_gone_and_tells_how_far_it_is(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2)}})
    moves = plan({0: (1, 3), 1: (1, 2)})
    reassignment.start(zk, reassignment.prepare(zk, moves))
    told: list[Progress] = []
    go = threading.Event()

    def act(own: ZooKeeper) -> None:
        go.wait(60)
        nodes.reassign(own)

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        go.set()

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        assert reassignment.wait(zk, moves, timeout_s=60, on_progress=on_progress)
    first, last = told[0], told[-1]
    assert (first.finished, first.total, first.in_sync, first.wanted) == (0, 2, 3, 4)
    assert (last.finished, last.in_sync, last.remaining_s) == (2, 4, 0)
    assert first.remaining_s is None
    assert nodes.assignment(zk, "t") == {0: (1, 3), 1: (1, 2)}


@pytest.mark.spec("RSN-33X")
def test_waiting_past_the_deadline_leaves_the_reassignment_running(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    moves = plan({0: (1, 3)})
    reassignment.start(zk, reassignment.prepare(zk, moves))
    assert not reassignment.wait(zk, moves, timeout_s=0.2, on_progress=lambda _: None, poll_ms=50)
    assert reassignment.running(zk) == moves


@pytest.mark.spec("RSN-33X")
def test_waiting_leaves_one_watch_however_long_it_takes_as_a_client_keeps_each_until_it_fires(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    moves = plan({0: (1, 3)})
    reassignment.start(zk, reassignment.prepare(zk, moves))
    watches: list[int] = []

    def count(_: Progress) -> None:
        watches.append(link_of(zk).client.watch_count)
        if len(watches) == 5:
            zk.delete(ReassignmentZnode.PATH)

    assert reassignment.wait(zk, moves, timeout_s=60, on_progress=count, poll_ms=20)
    assert watches[:5] == [1] * 5


@pytest.mark.spec("RSN-19X")
def test_a_batch_waits_for_somebody_elses_reassignment_that_came_between(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2), 2: (1, 2)}})
    prepared = reassignment.prepare(zk, plan({0: (1, 3), 1: (1, 3)}), max_count=1)
    reassignment.start(zk, prepared)
    between = plan({2: (2, 3)})
    seen: list[Moves] = []

    def act(own: ZooKeeper) -> None:
        seen.append(reassignment.running(own) or {})
        nodes.reassign(own)
        if len(seen) == 1:
            with contextlib.suppress(NodeExistsError):
                own.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(between))

    with nodes.controller(zk_connect, ReassignmentZnode.PATH, act):
        followed = reassignment.follow(zk, prepared.batches, timeout_s=60, on_progress=lambda _: None, poll_ms=50)
    assert followed == (2, 2)
    assert seen[0] == plan({0: (1, 3)}) and plan({1: (1, 3)}) in seen
    assert nodes.assignment(zk, "t")[1] == (1, 3)


@pytest.mark.spec("RSN-20X")
def test_batches_depend_on_the_plan_and_the_bounds_alone(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    moves = plan({p: (3 - p % 2,) for p in range(9)})
    every = reassignment.prepare(zk, moves, max_count=4).batches
    changing = reassignment.prepare(zk, moves, max_count=4, skip_unchanged=True).batches
    assert [list(batch) for batch in every] == [[tp(p) for p in range(n, min(n + 4, 9))] for n in (0, 4, 8)]
    assert [list(batch) for batch in changing] == [[tp(0), tp(3)], [tp(4), tp(5), tp(6)]]
