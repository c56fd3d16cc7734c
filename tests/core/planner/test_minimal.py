"""The minimal plan: held against every possible plan on small clusters, against its promises on random large ones."""

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import SOME_RACKS, assign_replicas
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.planner.minimal import plan_minimal
from kafkatool.core.planner.plan_files import Moves

MANY = 10_000
LARGE_CPU_S = 30  # of processor time; some 3 s on the slow side, and the machine may be busy


def brokers(ids: Iterable[int], racks: str = "") -> list[BrokerInfo]:
    return [BrokerInfo(b, (), racks[b % len(racks)] if racks else None) for b in ids]


def partitions(*replicas: Sequence[int]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", p): tuple(r) for p, r in enumerate(replicas)}


def kafkas(ids: Sequence[int], count: int, factor: int, racks: str = "") -> dict[TopicPartition, tuple[int, ...]]:
    plan = assign_replicas(brokers(ids, racks), count, factor, start_index=0, replica_shift=0)
    return partitions(*plan.values())


def copies(current: Moves, plan: Moves) -> int:
    return sum(len(set(plan[p]) - set(current[p])) for p in plan)


def spread(loads: Mapping[int, int], ids: Iterable[int]) -> int:
    counts = [loads.get(b, 0) for b in ids]
    return max(counts) - min(counts)


def imbalance(plan: Moves, ids: Sequence[int]) -> tuple[int, int]:
    """Return the fullest broker's less the emptiest's, of replicas and of preferred replicas."""
    replicas = Counter(b for r in plan.values() for b in r)
    return spread(replicas, ids), spread(Counter(r[0] for r in plan.values()), ids)


# --- against every possible plan -------------------------------------------------------------------------------


def fewest_copies(current: Moves, ids: Sequence[int], factor: int) -> int:
    """Search every balanced plan, partition by partition: for each way the replicas and the leaders can be counted per
    broker, the fewest copies that lead there. It knows nothing of the planner's method."""
    best: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {((0,) * len(ids), (0,) * len(ids)): 0}
    for before in current.values():
        grown: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for (loads, leads), cost in best.items():
            for chosen in itertools.combinations(ids, factor):
                after = tuple(n + (b in chosen) for n, b in zip(loads, ids, strict=True))
                total = cost + len(set(chosen) - set(before))
                for leader in chosen:
                    key = (after, tuple(n + (b == leader) for n, b in zip(leads, ids, strict=True)))
                    if total < grown.get(key, total + 1):
                        grown[key] = total
        best = grown
    return min(cost for counts, cost in best.items() if all(max(c) - min(c) <= 1 for c in counts))


@st.composite
def small_clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], list[int], int]:
    """Draw replicas anywhere on brokers 0 to 3; up to four targets, which may be new, gone or the same; another factor."""
    before = draw(st.integers(1, 4))
    ids = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
    lists = st.permutations(range(4)).map(lambda r: tuple(r[:before]))
    current = partitions(*draw(st.lists(lists, min_size=1, max_size=6)))
    wanted = draw(st.sampled_from([before, *range(1, before)]))
    return current, sorted(ids), min(wanted, len(ids))


@pytest.mark.spec("RSN-26X", "RSN-28X")
@settings(max_examples=60, deadline=None)
@given(small_clusters())
def test_no_balanced_plan_moves_fewer_replicas(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], list[int], int],
) -> None:
    current, ids, factor = cluster
    plan = plan_minimal(brokers(ids), current, replication_factor=factor)
    assert all(len(set(r)) == len(r) == factor and set(r) <= set(ids) for r in plan.values())
    assert max(imbalance(plan, ids)) <= 1
    assert copies(current, plan) == fewest_copies(current, ids, factor)


@pytest.mark.spec("RSN-26X")
@pytest.mark.parametrize(("count", "factor", "length"), [(3, 2, 4), (4, 1, 6), (4, 2, 3), (4, 3, 2)])
def test_no_balanced_plan_moves_fewer_replicas_whatever_lies_where(count: int, factor: int, length: int) -> None:
    rows = list(itertools.permutations(range(count), factor))
    for lists in itertools.combinations_with_replacement(rows, length):
        current = partitions(*lists)
        plan = plan_minimal(brokers(range(count)), current)
        assert max(imbalance(plan, range(count))) <= 1
        assert copies(current, plan) == fewest_copies(current, range(count), factor)


# --- promises --------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn, racks: bool = False) -> tuple[list[BrokerInfo], dict[TopicPartition, tuple[int, ...]]]:
    """Draw up to 12 targets of 15 brokers; replicas anywhere, up to five a partition and as many as there are targets."""
    ids = sorted(draw(st.sets(st.integers(0, 14), min_size=2, max_size=12)))
    names = draw(st.sampled_from(["a", "ab", "abc", "aab", "abbb"])) if racks else ""
    rng = draw(st.randoms(use_true_random=False))
    equal = draw(st.booleans())
    most = min(5, len(ids))
    factor = rng.randint(1, most)
    lists = [rng.sample(range(15), factor if equal else rng.randint(1, most)) for _ in range(draw(st.integers(1, 60)))]
    return brokers(ids, names), partitions(*lists)


@pytest.mark.spec("RSN-27X")
@settings(max_examples=40, deadline=None)
@given(clusters())
def test_removed_brokers_end_empty_and_nothing_gets_less_even(
    cluster: tuple[list[BrokerInfo], dict[TopicPartition, tuple[int, ...]]],
) -> None:
    targets, current = cluster
    ids = [b.id for b in targets]
    plan = plan_minimal(targets, current)
    assert {b for r in plan.values() for b in r} <= set(ids)
    assert all(len(set(plan[p])) == len(plan[p]) == len(current[p]) for p in current)
    replicas, leaders = imbalance(plan, ids)
    assert replicas <= 1
    if len({len(r) for r in current.values()}) == 1:
        assert leaders <= 1
    replicas_before, leaders_before = imbalance(current, ids)
    assert replicas <= max(1, replicas_before) and leaders <= max(1, leaders_before)


@pytest.mark.spec("RSN-27X")
@settings(max_examples=40, deadline=None)
@given(clusters(racks=True))
def test_racks_are_as_spread_as_they_can_be(
    cluster: tuple[list[BrokerInfo], dict[TopicPartition, tuple[int, ...]]],
) -> None:
    targets, current = cluster
    racks = {b.id: b.rack for b in targets}
    for replicas in plan_minimal(targets, current).values():
        assert len({racks[b] for b in replicas}) == min(len(replicas), len(set(racks.values())))


@pytest.mark.spec("RSN-26X", "RSN-27X")
def test_racks_go_before_evenness() -> None:
    targets = [BrokerInfo(b, (), "a" if b == 0 else "b") for b in range(4)]
    even = partitions((0, 1), (2, 0), (1, 3), (3, 2))
    plan = plan_minimal(targets, even)
    assert all(0 in replicas for replicas in plan.values())
    assert (imbalance(even, range(4)), imbalance(plan, range(4))) == ((0, 0), (3, 0))


@pytest.mark.slow
@pytest.mark.spec("RSN-27X")
@settings(max_examples=40, deadline=None)
@given(st.one_of(clusters(), clusters(racks=True)))
def test_planning_twice_gives_the_same_and_planning_the_result_changes_nothing(
    cluster: tuple[list[BrokerInfo], dict[TopicPartition, tuple[int, ...]]],
) -> None:
    targets, current = cluster
    plan = plan_minimal(targets, current)
    assert plan_minimal(list(reversed(targets)), dict(reversed(current.items()))) == plan
    assert plan_minimal(targets, plan) == plan


@pytest.mark.spec("RSN-27X")
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 60), st.integers(1, 3))
def test_added_brokers_take_replicas_and_nobody_else_does(old: int, new: int, count: int, factor: int) -> None:
    current = plan_minimal(brokers(range(old)), kafkas(range(old), count, min(factor, old)))
    plan = plan_minimal(brokers(range(old + new)), current)
    assert all(b >= old for p in plan for b in set(plan[p]) - set(current[p]))
    assert max(imbalance(plan, range(old + new))) <= 1


@pytest.mark.spec("RSN-27X", "RSN-26X")
def test_a_balanced_cluster_stays_and_leaders_are_balanced_by_order_alone() -> None:
    balanced = kafkas(range(6), 60, 3)
    assert plan_minimal(brokers(range(6)), balanced) == balanced
    lopsided = partitions((1, 2), (1, 2), (2, 1), (1, 2))
    plan = plan_minimal(brokers([1, 2]), lopsided)
    assert copies(lopsided, plan) == 0 and imbalance(plan, [1, 2]) == (0, 0)
    assert sum(plan[p] != lopsided[p] for p in plan) == 1


@pytest.mark.spec("RSN-28X")
@settings(max_examples=40, deadline=None)
@given(st.one_of(clusters(), clusters(racks=True)), st.integers(1, 5))
def test_growing_keeps_what_is_there_and_shrinking_adds_nothing_it_need_not(
    cluster: tuple[list[BrokerInfo], dict[TopicPartition, tuple[int, ...]]], factor: int
) -> None:
    targets, current = cluster
    ids = {b.id for b in targets}
    if factor > len(ids):
        with pytest.raises(RefusedError, match=f"replication factor: {factor} larger than available brokers"):
            plan_minimal(targets, current, replication_factor=factor)
        return
    plan = plan_minimal(targets, current, replication_factor=factor)
    assert all(len(set(r)) == len(r) == factor for r in plan.values())
    for p, before in current.items():
        if len(before) < factor:
            assert set(before) & ids <= set(plan[p])


@pytest.mark.spec("RSN-28X")
def test_fewer_replicas_keep_the_preferred_ones() -> None:
    current = kafkas(range(10), 100, 3)
    plan = plan_minimal(brokers(range(10)), current, replication_factor=2)
    assert copies(current, plan) == 0 and imbalance(plan, range(10)) == (0, 0)
    assert all(plan[p][0] == current[p][0] for p in plan)


@pytest.mark.spec("RSN-27X", "ASG-14")
def test_racks_on_some_brokers_only_are_refused_unless_they_do_not_matter() -> None:
    some = [BrokerInfo(1, (), "a"), BrokerInfo(2, ())]
    with pytest.raises(RefusedError) as refused:
        plan_minimal(some, partitions((1,), (1,)))
    assert str(refused.value) == SOME_RACKS
    assert imbalance(plan_minimal(some, partitions((1,), (1,)), rack_aware=False), [1, 2]) == (0, 0)


@pytest.mark.spec("RSN-26X", "RSN-27X")
def test_ten_thousand_partitions_take_seconds() -> None:
    current = kafkas(range(20), MANY, 3)
    begun = time.process_time()
    added = plan_minimal(brokers(range(25)), current)
    assert time.process_time() - begun < LARGE_CPU_S
    assert copies(current, added) == MANY * 3 // 5 and imbalance(added, range(25)) == (0, 0)
