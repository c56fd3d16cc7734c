"""What is left of a schedule that fails is enough to fail, and nothing of it can be left out."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.simulated.shrinking import least, shrunk
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
def test_operations_are_halved_and_faults_and_processes_left_out() -> None:
    whole = drawn(1, 2000)
    first, last = whole.faults[3], whole.faults[-2]

    def fails(schedule: Schedule) -> bool:
        return {first, last} <= set(schedule.faults) and schedule.operations >= 300 and schedule.processes >= 2

    assert shrunk(whole, fails) == Schedule(1, 500, 2, (first, last))
