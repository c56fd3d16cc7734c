"""What each of many may have: so much at once, and so much a second."""

import pytest

from kafkatool.broker.runtime.allowance import Allowance


@pytest.mark.spec("SEC-100")
def test_what_is_saved_can_be_taken_at_once_and_then_so_much_a_second() -> None:
    now = [100.0]
    allowance = Allowance(5, 10, clock=lambda: now[0])
    assert [allowance.take("a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert allowance.take("b")  # each by itself
    now[0] += 0.25
    assert [allowance.take("a") for _ in range(3)] == [True, True, False]
    now[0] += 0.125  # with the half of one that was left; eighths are exact
    assert [allowance.take("a") for _ in range(2)] == [True, False]
    now[0] += 3600
    assert [allowance.take("a") for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.spec("SEC-100")
def test_what_nothing_came_of_is_given_back() -> None:
    allowance = Allowance(2, 10, clock=lambda: 0.0)
    for _ in range(5):
        assert allowance.take("a")
        allowance.give_back("a")
    allowance.give_back("a")  # no more than may be saved
    assert [allowance.take("a") for _ in range(3)] == [True, True, False]
    allowance.give_back("nobody")


@pytest.mark.spec("SEC-100")
def test_names_by_the_million_cost_no_memory() -> None:
    now = [0.0]
    allowance = Allowance(1, 10, clock=lambda: now[0])
    for number in range(25_000):
        now[0] += 0.01
        assert allowance.take(number)
        assert len(allowance._saved) <= 10_000  # noqa: SLF001  # what it holds is what this test is about
