"""What is left of a schedule that fails is enough to fail, and nothing of it can be left out."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.simulated.shrinking import fewest, least, shrunk
from tests.histories.simulated.simulation import Schedule, drawn


@pytest.mark.spec("HIS-48")
@given(st.lists(st.integers(), unique=True), st.data())
def test_what_is_needed_is_left_in_its_order(items: list[int], data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.sampled_from(items))) if items else ())
    assert least(items, lambda kept: needed <= set(kept)) == [item for item in items if item in needed]


@pytest.mark.spec("HIS-48")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_nothing_of_it_can_be_left_out(items: list[int]) -> None:
    def fails(kept: Sequence[int]) -> bool:
        return sum(kept) >= 3 or kept.count(0) == 2

    if fails(items):
        left = least(items, fails)
        assert fails(left)
        assert not any(fails(left[:n] + left[n + 1 :]) for n in range(len(left)))


@pytest.mark.spec("HIS-48")
@given(st.integers(1, 3000), st.sets(st.integers(1, 3000)))
def test_of_a_count_one_less_does_not_fail(count: int, failing: set[int]) -> None:
    left = fewest(count, lambda one: one in failing)
    assert 1 <= left <= count and (left == count or left in failing)
    assert left == 1 or left - 1 not in failing


@pytest.mark.spec("HIS-48")
def test_the_fewest_operations_are_found_without_playing_each_number() -> None:
    asked: list[int] = []

    def fails(count: int) -> bool:
        asked.append(count)
        return count >= 777

    assert fewest(100_000, fails) == 777
    assert len(asked) < 50


@pytest.mark.spec("HIS-48")
def test_operations_are_taken_off_and_faults_and_processes_left_out() -> None:
    whole = drawn(1, 2000)
    first, last = whole.faults[3], whole.faults[-2]
    played: list[Schedule] = []

    def fails(schedule: Schedule) -> bool:
        played.append(schedule)
        needed = {first, last} <= set(schedule.faults) and {2, 7} <= set(schedule.present)
        return needed and schedule.operations >= 300

    assert shrunk(whole, fails) == Schedule(1, 300, 8, (first, last), absent=frozenset({0, 1, 3, 4, 5, 6}))
    assert len(played) == len(set(played)), "what is known is not played again"
    assert all(schedule.present for schedule in played), "without processes nothing ever ends"


@pytest.mark.spec("HIS-48")
def test_what_can_go_only_after_another_has_gone_goes_too() -> None:
    whole = drawn(1, 400)

    def fails(schedule: Schedule) -> bool:
        """Each fault needs an operation, and each process but one a fault."""
        return schedule.operations >= len(schedule.faults) >= len(schedule.present) - 1

    assert fails(whole)
    least_of_all = shrunk(whole, fails)
    assert (least_of_all.operations, least_of_all.faults, len(least_of_all.present)) == (1, (), 1)
