"""Items shared out among tasks: each once and in order, and the last tasks short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.statelog.spark.shares import SHARES_LEFT, shared_out


@pytest.mark.spec("SCL-8")
@given(st.integers(0, 3000), st.integers(1, 64))
def test_each_item_is_in_one_share_and_no_share_is_more_than_its_part_of_what_is_left(items: int, slots: int) -> None:
    shares = shared_out(range(items), slots)
    assert [item for share in shares for item in share] == list(range(items))
    for share in shares:
        assert 1 <= len(share) <= max((items - share[0]) // (SHARES_LEFT * slots), 1)


def test_few_items_have_a_task_each_and_of_many_the_last_ones_do() -> None:
    assert [len(share) for share in shared_out(range(7), 2)] == [1] * 7
    assert [len(share) for share in shared_out(range(66), 2)] == [16, 12, 9, 7, 5, 4, 3, 2, 2, *[1] * 6]
