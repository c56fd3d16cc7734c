"""Bytes of a reassignment: counted from readings that are incomplete, late or gone; watched on brokers that answer."""

import pytest

from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.operations.reassignment import replica_sizes
from kafkatool.core.operations.reassignment.copy_progress import (
    Copied,
    CopyCount,
    CopyWatch,
    Replica,
    ToCopy,
    largest_share,
    to_copy,
)
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.reassignment.test_replica_sizes import A, B, sized
from tests.core.operations.verification.fake_broker import FakeBroker, fake_cluster
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import eventually

TWO = {Replica(A, 3), Replica(B, 4)}
BOTH = frozenset({A, B})


@pytest.mark.spec("RSN-33X")
def test_copied_and_wanted_are_summed_over_the_new_replicas_and_the_rate_is_between_readings() -> None:
    count = CopyCount(TWO)
    count.add({1: {A: 1000, B: 500}, 3: {}, 4: {B: 100}}, BOTH, 10.0)
    assert count.copied(BOTH) == Copied(100, 1500, None)
    count.add({1: {A: 1200, B: 500}, 3: {A: 300}, 4: {B: 400}}, BOTH, 15.0)
    counted = count.copied(BOTH)
    assert counted == Copied(700, 1700, 120.0, 40.0)
    assert counted.remaining_s == pytest.approx(1000 / (120 - 40))


@pytest.mark.spec("RSN-33X")
def test_a_copy_that_gets_no_nearer_to_its_end_has_no_eta() -> None:
    assert Copied(500, 1000, 10.0, 9.0).remaining_s == 500
    assert Copied(500, 1000, 10.0, 10.0).remaining_s is None
    assert Copied(1000, 1000, 10.0, 10.0).remaining_s == 0  # it keeps up


@pytest.mark.spec("RSN-24X")
def test_the_largest_share_is_that_of_the_broker_that_lacks_most() -> None:
    what = ToCopy(frozenset({Replica(A, 3), Replica(A, 4), Replica(B, 4), Replica(TopicPartition("new", 0), 5)}), {})
    assert largest_share(what, {1: {A: 1000, B: 500}}) == (4, 1500)
    assert largest_share(what, {1: {A: 1000, B: 500}, 4: {A: 900, B: 0}}) == (3, 1000)  # 4 has copied some
    assert largest_share(what, {1: {A: 1000}, 3: {A: 1000}, 4: {A: 1000}}) is None
    assert largest_share(what, {}) is None


@pytest.mark.spec("RSN-33X")
def test_a_partition_that_has_finished_counts_in_full_whoever_still_holds_it() -> None:
    count = CopyCount(TWO)
    count.add({1: {A: 1000, B: 500}, 3: {A: 10}, 4: {B: 100}}, BOTH, 0.0)
    assert count.copied({B}) == Copied(1100, 1500, None)
    assert count.copied(()) == Copied(1500, 1500, None)


@pytest.mark.spec("RSN-33X")
def test_a_partition_that_finished_before_anybody_told_its_size_counts_when_it_is_told() -> None:
    count = CopyCount(TWO)
    assert count.unknown() == BOTH
    count.add({2: {B: 500}, 4: {B: 100}}, {B}, 0.0)
    assert count.copied({B}) is None  # not 100 of 500
    assert count.unknown() == {A}
    count.add({2: {B: 500}, 3: {A: 1000}, 4: {B: 200}}, {B}, 1.0)
    assert count.copied({B}) == Copied(1200, 1500, None)
    assert count.unknown() == frozenset()


@pytest.mark.spec("RSN-33X")
def test_how_much_there_is_tells_no_replica_that_is_being_copied() -> None:
    count = CopyCount({Replica(A, 3)})
    count.add({3: {A: 10}}, {A}, 0.0)
    assert count.copied({A}) is None  # not 10 of 10
    count.add({1: {A: 1000}, 3: {A: 20}}, {A}, 1.0)
    assert count.copied({A}) == Copied(20, 1000, None)


@pytest.mark.spec("RSN-33X")
def test_a_broker_that_never_told_makes_bytes_unknown_and_one_that_falls_silent_counts_as_last_told() -> None:
    count = CopyCount(TWO)
    count.add({1: {A: 1000, B: 500}, 3: {A: 10}}, BOTH, 0.0)
    assert count.copied(BOTH) is None  # nobody knows how much broker 4 has
    count.add({1: {A: 1000, B: 500}, 3: {A: 20}, 4: {B: 50}}, BOTH, 1.0)
    count.add({3: {A: 30}}, BOTH, 2.0)
    assert count.copied(BOTH) == Copied(80, 1500, 10.0)
    assert CopyCount(()).copied(()) is None


@pytest.mark.spec("RSN-33X")
def test_the_rate_is_that_of_the_last_half_minute_and_none_moving_has_no_eta() -> None:
    count = CopyCount({Replica(A, 3)})
    for second, size in ((0, 0), (60, 9_000), (90, 9_030), (100, 9_030)):
        count.add({1: {A: 10_000}, 3: {A: size}}, {A}, second)
    assert count.copied({A}) == Copied(9_030, 10_000, 3.0 / 4, still_s=10.0)
    for second in (120, 140, 160):
        count.add({1: {A: 10_000}, 3: {A: 9_030}}, {A}, second)
    counted = count.copied({A})
    assert counted == Copied(9_030, 10_000, 0.0, still_s=70.0) and counted.remaining_s is None


@pytest.mark.spec("RSN-33X")
def test_to_copy_are_the_replicas_of_the_plan_that_are_not_in_sync(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(1, 2, 3), topics={"t": {0: (1, 2), 1: (2,)}}, states={B: (2, (2,))})
    found = to_copy(zk, {A: (2, 1), B: (9, 2), TopicPartition("none", 0): (3,)})
    assert found.replicas == {Replica(B, 9)}  # turning an assignment round copies nothing
    assert sorted(found.brokers) == [2]  # 9 is not registered: it tells nothing


@pytest.mark.spec("RSN-33X")
def test_a_watch_reads_until_it_ends_and_survives_a_broker_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_sizes, "TIMEOUT_MS", 60_000)  # one that is only slow is not silent
    monkeypatch.setattr(FakeBroker, "answer", lambda broker, key, version, request: sized(broker, key))
    logs: dict[int, dict[TopicPartition, list[bytes]]] = {b: {} for b in (1, 2, 3)}
    with fake_cluster(logs, down=[3]) as fakes:
        brokers = {
            b: BrokerInfo(b, (Endpoint("PLAINTEXT", "127.0.0.1", port),)) for b, port in fakes[1].addresses.items()
        }
        with CopyWatch(ToCopy(frozenset({Replica(A, 1)}), brokers), interval_s=0.01) as watch:
            eventually(lambda: (c := watch.copied({A})) is not None and c.bytes_per_second == 0, "two readings", 60)
            still = watch.copied({A})
            assert still is not None and still._replace(still_s=0.0) == Copied(700, 900, 0.0) and still.still_s > 0
        with CopyWatch(ToCopy(frozenset({Replica(B, 3)}), brokers), interval_s=0.01) as watch:
            assert watch.copied({B}) is None
        with CopyWatch(ToCopy(frozenset(), {})) as nothing:
            assert nothing.copied(()) is None
