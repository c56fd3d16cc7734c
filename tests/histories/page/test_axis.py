"""Times on a page: in their order, far ones left out, labels apart."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.page.axis import LEAST_PX, Axis, closed, weighted

_TIMES = st.lists(st.integers(0, 10**13), min_size=1, max_size=30)


@pytest.mark.spec("HIS-48")
@given(_TIMES)
def test_what_is_later_is_more_to_the_right_and_all_of_it_is_there(times: list[int]) -> None:
    axis = closed(0, times)
    places = [axis.at(time) for time in sorted(times)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= 100 + 1e-9
    assert all(map(axis.holds, times))
    assert sum(width for _, width in axis.pieces(min(times), max(times))) + sum(w for _, w in axis.gaps()) <= 100 + 1e-6


@pytest.mark.spec("HIS-48")
@given(_TIMES, st.integers(0, 10**13))
def test_no_two_labels_overlap_and_each_says_where_it_is(times: list[int], origin: int) -> None:
    axis = closed(origin, times)
    ticks = list(axis.ticks())
    for (left, told), (right, following) in itertools.pairwise(ticks):
        assert (right - left) * LEAST_PX / 100 >= 75.9
        assert float(told.replace(",", "")) <= float(following.replace(",", ""))
    for left, told in ticks:
        at = origin + round(float(told.replace(",", "")) * 1e9)
        stretch = next(s for s in axis.stretches if s.left <= left <= s.left + s.width)
        assert abs(stretch.at(at) - left) < 0.01 or stretch.last - stretch.first < 10**6, "a moment has one, rounded"


@pytest.mark.spec("HIS-48")
def test_time_in_which_nothing_happens_is_left_out() -> None:
    axis = closed(0, [0, 10, 20, 900, 1000])
    assert [(s.first, s.last) for s in axis.stretches] == [(0, 20), (900, 1000)]
    assert len(list(axis.gaps())) == 1
    assert not axis.holds(500) and list(axis.pieces(30, 800)) == []
    (one, first), (two, second) = axis.pieces(10, 950)
    assert 0 < one < two and first > 0 and second > 0
    assert axis.at(500) == axis.at(20)


@pytest.mark.spec("HIS-48")
def test_a_nearer_look_is_about_some_of_the_times_alone() -> None:
    axis = closed(0, [0, 10_000, 100_000, 101_000]).about([100, 9_900, 100_500])
    assert [(s.first, s.last) for s in axis.stretches] == [(0, 320), (9_680, 10_000), (100_280, 100_720)]
    assert weighted(0, [(5, 5)]).holds(5) and Axis(0, [(5, 5)]).seconds == 1e-9
