"""Replica assignment: the documents' tables, real Kafka's captures, and what holds for any numbers."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import add_partitions, alternate_racks, assign_replicas
from kafkatool.core.model.values import BrokerInfo

TWO_RACKS = {1: "r1", 2: "r2", 3: "r2", 4: "r1"}  # of the real Kafkas whose topics were captured
SEED_RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def brokers(*ids: int, racks: dict[int, str] | None = None) -> list[BrokerInfo]:
    return [BrokerInfo(i, (), (racks or {}).get(i)) for i in ids]


def spread(ids: list[BrokerInfo], partitions: int, factor: int, start: int, shift: int) -> list[tuple[int, ...]]:
    plan = assign_replicas(ids, partitions, factor, start_index=start, replica_shift=shift)
    assert list(plan) == list(range(partitions))
    return list(plan.values())


@pytest.mark.spec("ASG-1", "ASG-4", "ASG-5", "ASG-7", "ASG-16X")
def test_the_documents_table_of_ten_partitions_on_five_brokers() -> None:
    assert spread(brokers(*range(5)), 10, 3, 0, 0) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


@pytest.mark.spec("ASG-8", "ASG-16X")
def test_the_documents_table_of_eight_partitions_on_eight_brokers() -> None:
    assert spread(brokers(*range(8)), 8, 3, 1, 1) == [
        (1, 3, 4), (2, 4, 5), (3, 5, 6), (4, 6, 7), (5, 7, 0), (6, 0, 1), (7, 1, 2), (0, 2, 3),
    ]  # fmt: skip


@pytest.mark.spec("ASG-9")
@pytest.mark.parametrize(
    ("order", "plan"),
    [
        ((718, 973, 974), [(718, 973), (973, 974), (974, 718), (718, 974), (973, 718), (974, 973)]),
        ((973, 718, 974), [(973, 718), (718, 974), (974, 973), (973, 974), (718, 973), (974, 718)]),
    ],
)
def test_the_order_of_brokers_decides(order: tuple[int, ...], plan: list[tuple[int, ...]]) -> None:
    assert spread(brokers(*order), 6, 2, 0, 0) == plan


@pytest.mark.spec("ASG-5")
def test_one_broker_alone_has_every_partition() -> None:
    assert spread(brokers(7), 3, 1, 0, 0) == [(7,)] * 3
    assert add_partitions(brokers(7), {0: (7,)}, 3) == {1: (7,), 2: (7,)}


@pytest.mark.spec("ASG-10")
def test_one_replica_each_goes_round_two_brokers() -> None:
    assert spread(brokers(2, 3), 9, 1, 1, 1) == [(3,), (2,)] * 4 + [(3,)]


@pytest.mark.spec("ASG-11")
def test_racks_alternate_by_name_and_a_rack_that_ran_out_is_passed_over() -> None:
    assert alternate_racks(SEED_RACKS) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({1: "a", 2: "a", 3: "a", 4: "b"}) == [1, 4, 2, 3]
    assert alternate_racks({4: "b", 10: "a", 9: "a", 1: "a"}) == [1, 4, 9, 10], "ids ascend whatever their order was"


@pytest.mark.spec("ASG-1", "ASG-12", "ASG-13", "ASG-16X")
def test_rack_aware_table_of_kafka() -> None:
    assert spread(brokers(*range(6), racks=SEED_RACKS), 7, 3, 0, 0) == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


@pytest.mark.spec("ASG-6", "ASG-12", "ASG-13", "ASG-16X")
@pytest.mark.parametrize(
    ("start", "shift", "made", "grown"),
    [
        (3, 1, "341 132 214 423 341 132 214 423", "431 312"),
        (1, 0, "243 431 312 124 214 423 341 132", "214 423"),
        (3, 0, "312 124 243 431 341 132 214 423", "431 312"),
    ],
    ids=["0.10.2.2", "1.1.1", "2.8.2"],
)
def test_rack_aware_topics_that_real_kafka_made_and_grew(start: int, shift: int, made: str, grown: str) -> None:
    ids = brokers(1, 2, 3, 4, racks=TWO_RACKS)
    plan = assign_replicas(ids, 8, 3, start_index=start, replica_shift=shift)
    assert plan == dict(enumerate(lists(made)))
    assert add_partitions(ids, plan, 10) == dict(enumerate(lists(grown), start=8))


@pytest.mark.spec("ASG-4", "ASG-13")
@pytest.mark.parametrize(
    ("racks", "start", "shift", "plan"),
    [
        (TWO_RACKS, 3, 1, "341 132 214 423 341 132 214 423 312 124"),  # 52, 0.10.2.2
        (TWO_RACKS, 2, 0, "431 312 124 243 423 341 132 214 423 341"),  # 52, 1.1.1; 59, 0.10.2.2
        (TWO_RACKS, 3, 0, "312 124 243 431 341 132 214 423 341 132"),  # 52, 2.8.2
        (TWO_RACKS, 0, 1, "132 214 423 341 132 214 423 341 124 243"),  # 59, 1.1.1
        (TWO_RACKS, 1, 0, "243 431 312 124 214 423 341 132 214 423"),  # 59, 2.8.2
        ({}, 0, 1, "134 241 312 423 142 213 324 431"),  # 50, 0.10.2.2: racks ignored
        ({}, 3, 1, "423 134 241 312 431 142 213 324"),  # 50, 1.1.1
        ({}, 2, 0, "341 412 123 234 312 423 134 241"),  # 50, 2.8.2
        ({}, 1, 0, "234 341 412 123 241 312 423 134 213 324"),  # 53, 0.10.2.2
        ({}, 2, 0, "341 412 123 234 312 423 134 241 324 431"),  # 53, 1.1.1 and 2.8.2
    ],
)
def test_topics_that_real_kafka_made_and_plans_it_generated(
    racks: dict[int, str], start: int, shift: int, plan: str
) -> None:
    assert spread(brokers(1, 2, 3, 4, racks=racks), len(lists(plan)), 3, start, shift) == lists(plan)


def lists(text: str) -> list[tuple[int, ...]]:
    # 341 132: the replicas of one partition after the other, a digit each
    return [tuple(map(int, word)) for word in text.split()]


@pytest.mark.spec("ASG-1", "ASG-4", "ASG-6", "ASG-16X")
def test_added_partitions_carry_the_pattern_on() -> None:
    ids = brokers(*range(5))
    five = assign_replicas(ids, 5, 3, start_index=0, replica_shift=0)
    assert add_partitions(ids, five, 8) == {5: (0, 2, 3), 6: (1, 3, 4), 7: (2, 4, 0)}
    six = assign_replicas(ids, 6, 3, start_index=0, replica_shift=0)
    assert add_partitions(ids, six, 8) == {6: (1, 2, 3), 7: (2, 3, 4)}, "rounds before the first id do not count"
    second = assign_replicas(ids, 10, 3, start_index=2, replica_shift=2)  # the shift is the index of broker 2, too
    grown = add_partitions(ids, {p: second[p] for p in range(5)}, 10)
    assert grown == {p: second[p] for p in range(5, 10)}
    # Partition 0's first broker is gone: the next higher id takes its place, or the first of all.
    assert add_partitions(brokers(2, 4), {0: (3,)}, 2) == {1: (2,)}
    assert add_partitions(brokers(2, 4), {0: (9,)}, 2) == {1: (4,)}
    assert add_partitions(brokers(2, 4), {0: (2,), 1: (4, 2)}, 3) == {2: (2,)}, "as many replicas as partition 0 has"


@pytest.mark.spec("ASG-1", "TOP-7")
@pytest.mark.parametrize(
    ("partitions", "factor", "text"),
    [
        (0, 1, "number of partitions must be larger than 0"),
        (2**31 - 1, 1, "number of partitions must be at most 200000"),
        (1, 0, "replication factor must be larger than 0"),
        (-1, 1, "number of partitions must be larger than 0"),
        (1, -1, "replication factor must be larger than 0"),
        (1, 5, "replication factor: 5 larger than available brokers: 4"),
    ],
)
def test_numbers_out_of_range_are_refused(partitions: int, factor: int, text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        assign_replicas(brokers(1, 2, 3, 4), partitions, factor, start_index=0, replica_shift=0)
    assert str(refused.value) == text


@pytest.mark.spec("ASG-14")
def test_racks_on_some_brokers_only_are_refused_unless_racks_are_ignored() -> None:
    mixed = brokers(1, 2, racks={1: "r"})
    with pytest.raises(RefusedError) as refused:
        assign_replicas(mixed, 1, 1, start_index=0, replica_shift=0)
    assert str(refused.value) == (
        "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
        "without rack information."
    )
    with pytest.raises(RefusedError, match="Not all brokers have rack information"):
        add_partitions(mixed, {0: (1,)}, 2)
    plain = assign_replicas(mixed, 1, 1, start_index=0, replica_shift=0, rack_aware=False)
    assert plain == spread_of(brokers(1, 2), 1, 1)
    assert add_partitions(mixed, {0: (1,)}, 2, rack_aware=False) == {1: (2,)}
    racked, bare = brokers(1, 2, 3, 4, racks=TWO_RACKS), brokers(1, 2, 3, 4)
    ignored = assign_replicas(racked, 8, 2, start_index=0, replica_shift=0, rack_aware=False)
    assert ignored == spread_of(bare, 8, 2) != spread_of(racked, 8, 2)
    more = add_partitions(racked, spread_of(bare, 1, 2), 8, rack_aware=False)
    assert more == add_partitions(bare, spread_of(bare, 1, 2), 8)


def spread_of(ids: list[BrokerInfo], partitions: int, factor: int) -> dict[int, tuple[int, ...]]:
    return assign_replicas(ids, partitions, factor, start_index=0, replica_shift=0)


@st.composite
def clusters(draw: st.DrawFn, *, racks: bool) -> tuple[list[BrokerInfo], int, int, int]:
    ids = sorted(draw(st.sets(st.integers(0, 99), min_size=1, max_size=12)))
    names = draw(st.lists(st.sampled_from("abcd"), min_size=len(ids), max_size=len(ids))) if racks else []
    found = brokers(*ids, racks=dict(zip(ids, names, strict=True)) if racks else None)
    return found, draw(st.integers(1, len(ids))), draw(st.integers(0, 30)), draw(st.integers(0, 30))


@pytest.mark.spec("ASG-5", "ASG-15", "ASG-16X")
@given(clusters(racks=False), st.integers(1, 40), st.integers(1, 20))
def test_plain_assignment_is_even_also_after_growth(
    cluster: tuple[list[BrokerInfo], int, int, int], partitions: int, more: int
) -> None:
    ids, factor, start, shift = cluster
    plan = assign_replicas(ids, partitions, factor, start_index=start, replica_shift=shift)
    assert plan == assign_replicas(ids, partitions, factor, start_index=start, replica_shift=shift)
    if partitions % len(ids) == 0:
        held = Counter(b for replicas in plan.values() for b in replicas)
        assert set(held.values()) == {partitions * factor // len(ids)}
    added = add_partitions(ids, plan, partitions + more)
    assert added == add_partitions(ids, plan, partitions + more)
    grown = {**plan, **added}
    assert sorted(grown) == list(range(partitions + more))
    for replicas in grown.values():
        assert len(set(replicas)) == len(replicas) == factor
    for counted in (plan, grown):
        first = Counter({b.id: 0 for b in ids})
        first.update(replicas[0] for replicas in counted.values())
        assert max(first.values()) - min(first.values()) <= 1


@pytest.mark.spec("ASG-16X")
@pytest.mark.parametrize("racks", [None, SEED_RACKS])
def test_both_random_numbers_must_be_given_and_none_is_drawn_inside(racks: dict[int, str] | None) -> None:
    ids = brokers(*range(6), racks=racks)
    with pytest.raises(TypeError, match="'replica_shift'"):
        assign_replicas(ids, 7, 3, start_index=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'start_index'"):
        assign_replicas(ids, 7, 3, replica_shift=0)  # type: ignore[call-arg]
    before = random.getstate()
    add_partitions(ids, assign_replicas(ids, 7, 3, start_index=1, replica_shift=2), 9)
    assert random.getstate() == before


@pytest.mark.spec("ASG-12", "ASG-15", "ASG-16X")
@given(clusters(racks=True), st.integers(1, 40), st.integers(1, 20))
def test_rack_aware_assignment_uses_every_rack_it_can(
    cluster: tuple[list[BrokerInfo], int, int, int], partitions: int, more: int
) -> None:
    ids, factor, start, shift = cluster
    racks = {b.id: b.rack for b in ids}
    plan = assign_replicas(ids, partitions, factor, start_index=start, replica_shift=shift)
    assert plan == assign_replicas(ids, partitions, factor, start_index=start, replica_shift=shift)
    added = add_partitions(ids, plan, partitions + more)
    assert added == add_partitions(ids, plan, partitions + more)
    for replicas in (*plan.values(), *added.values()):
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks.values())))
