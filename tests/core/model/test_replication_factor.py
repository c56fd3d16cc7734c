"""A new replication factor: nothing moves that can stay, and the replicas end evenly."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.replication_factor import change_replication_factor
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.planner.minimal import plan_minimal


def brokers(*ids: int, racks: str = "") -> list[BrokerInfo]:
    return [BrokerInfo(b, (), racks[i] if racks else None) for i, b in enumerate(ids)]


@pytest.mark.spec("TOP-29X")
def test_growing_appends_the_emptiest_broker_of_a_new_rack() -> None:
    assert change_replication_factor(brokers(1, 2, 3), {0: (1,), 1: (1,)}, {}, 2) == {0: (1, 2), 1: (1, 3)}
    assert change_replication_factor(brokers(1, 2, 3, racks="aab"), {0: (1,)}, {}, 2) == {0: (1, 3)}


@pytest.mark.spec("TOP-29X")
def test_shrinking_keeps_who_is_in_sync_and_the_preferred_replica() -> None:
    three = {0: (1, 2, 3)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 3)}, 2) == {0: (1, 3)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (3, 2)}, 1) == {0: (2,)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 2, 3)}, 1) == {0: (1,)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 2, 3)}, 3) == {}


@pytest.mark.spec("TOP-29X", "TOP-7")
def test_out_of_range_is_refused() -> None:
    with pytest.raises(RefusedError, match="replication factor must be larger than 0"):
        change_replication_factor(brokers(1), {0: (1,)}, {}, 0)
    with pytest.raises(RefusedError, match="replication factor: 2 larger than available brokers: 1"):
        change_replication_factor(brokers(1), {0: (1,)}, {}, 2)


@pytest.mark.spec("TOP-29X")
@given(st.integers(1, 8), st.integers(1, 20), st.data())
def test_no_more_replicas_change_than_must(count: int, partitions: int, data: st.DataObject) -> None:
    ids = brokers(*range(count))
    old, new = data.draw(st.integers(1, count)), data.draw(st.integers(1, count))
    before = assign_replicas(ids, partitions, old, start_index=0, replica_shift=0)
    after = {**before, **change_replication_factor(ids, before, before, new)}
    for partition, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == new
        assert replicas[0] == before[partition][0]
        assert len(set(replicas) & set(before[partition])) == min(old, new)


# --- evenness ----------------------------------------------------------------------------------------------------


def unevenness(assignment: Iterable[Sequence[int]]) -> int:
    """Return the sum of the squares of the brokers' loads: of one number of replicas, the less the more even."""
    return sum(n * n for n in Counter(b for replicas in assignment for b in replicas).values())


def racks_of(replicas: Iterable[int], ids: Sequence[BrokerInfo]) -> int:
    return len({ids[b].rack for b in replicas})


@st.composite
def to_grow(draw: st.DrawFn, *, most: int, racks: str = "") -> tuple[list[BrokerInfo], dict[int, tuple[int, ...]], int]:
    """Draw brokers, replicas that lie anywhere on them, and a larger number of replicas."""
    count = draw(st.integers(2, most))
    names = draw(st.text(racks, min_size=count, max_size=count)) if racks else ""
    old = draw(st.integers(1, count - 1))
    lists = st.permutations(range(count)).map(lambda r: tuple(r[:old]))
    before = dict(enumerate(draw(st.lists(lists, min_size=1, max_size=6))))
    return brokers(*range(count), racks=names), before, draw(st.integers(old + 1, count))


@pytest.mark.spec("TOP-29X")
@given(to_grow(most=8))
def test_growing_ends_as_even_as_the_minimal_strategy_which_keeps_all_there_is_too(
    drawn: tuple[list[BrokerInfo], dict[int, tuple[int, ...]], int],
) -> None:
    ids, before, factor = drawn
    after = change_replication_factor(ids, before, before, factor)
    assert all(after[p][: len(before[p])] == before[p] for p in before)
    topic = {TopicPartition("t", p): replicas for p, replicas in before.items()}
    assert unevenness(after.values()) <= unevenness(plan_minimal(ids, topic, replication_factor=factor).values())


@pytest.mark.spec("TOP-29X")
@given(to_grow(most=5, racks="abc"))
def test_growing_over_racks_ends_as_even_as_any_choice_that_is_on_as_many_of_them(
    drawn: tuple[list[BrokerInfo], dict[int, tuple[int, ...]], int],
) -> None:
    ids, before, factor = drawn
    possible = {(0,) * len(ids)}  # loads of the brokers, whatever is chosen for the partitions so far
    after = change_replication_factor(ids, before, before, factor)
    for partition, replicas in before.items():
        free = [b.id for b in ids if b.id not in replicas]
        grown = [(*replicas, *more) for more in itertools.combinations(free, factor - len(replicas))]
        widest = max(racks_of(r, ids) for r in grown)
        assert racks_of(after[partition], ids) == widest
        possible = {
            tuple(n + (b in r) for b, n in enumerate(loads))
            for loads in possible
            for r in grown
            if racks_of(r, ids) == widest
        }
    assert unevenness(after.values()) == min(sum(n * n for n in loads) for loads in possible)


@pytest.mark.spec("TOP-29X")
def test_a_third_replica_of_four_partitions_on_four_brokers_ends_even() -> None:
    ids = brokers(1, 2, 3, 4)
    before = assign_replicas(ids, 4, 2, start_index=0, replica_shift=0)
    held = Counter(b for replicas in change_replication_factor(ids, before, before, 3).values() for b in replicas)
    assert set(held.values()) == {3}
