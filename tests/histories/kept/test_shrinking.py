"""A run of real processes is made smaller, here by a played stage: what is needed is left, and what it costs is bounded."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, islice

import pytest

from tests.faults.schedule import Step, steps
from tests.faults.world import BROKERS
from tests.histories.clients.client import Cell
from tests.histories.kept.plan import Plan
from tests.histories.kept.shrinking import Shrinking, TimeOverError

_STEPS = tuple(islice(steps(3, BROKERS), 12))
_PLAN = Plan(3, Cell("assign", "idempotent"), 20_000, _STEPS, frames=True)
_NEEDED = (_STEPS[4], _STEPS[9])


def _needs(plan: Plan, workers: Sequence[int] = (5, 18), least: int = 700, needed: Sequence[Step] = _NEEDED) -> bool:
    return set(needed) <= set(plan.steps) and set(workers) <= set(plan.workers) and plan.operations >= least


class Played:
    """Shows lost-write where all is there that it needs: once in ``often`` runs of a plan; else something else."""

    def __init__(self, often: int = 1, fails: Callable[[Plan], bool] = _needs, most: float = float("inf")) -> None:
        self.played: list[Plan] = []
        self._often, self._fails, self._most, self._runs = often, fails, most, count(1)

    def __call__(self, plan: Plan) -> set[str]:
        if len(self.played) >= self._most:
            raise TimeOverError
        self.played.append(plan)
        shows = self._fails(plan) and self.played.count(plan) % self._often == 0
        return {"lost-write", "unseen"} if shows else {"duplicate"}


def _shrunk(played: Played, plan: Plan = _PLAN) -> tuple[Shrinking, bool, list[str]]:
    said: list[str] = []
    shrinking = Shrinking(plan, {"lost-write", "stuck"}, played, said.append)
    return shrinking, shrinking.shrink(), said


@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("often", [1, 2, 3])
def test_what_is_needed_is_left_though_not_every_run_shows_it(often: int) -> None:
    played = Played(often)
    shrinking, is_least, said = _shrunk(played)
    assert is_least
    assert shrinking.best == replace(_PLAN, operations=20_000 >> 4, steps=_NEEDED, workers=(5, 18), frames=False)
    assert f"{20_000 >> 4} operations, 2 steps, 2 workers, run {often}: lost-write" in said
    assert len(said) == len(played.played), "each run is told"


@pytest.mark.spec("HIS-48")
def test_nothing_of_it_can_be_left_out_and_each_candidate_in_vain_was_played_three_times() -> None:
    def fails(plan: Plan) -> bool:
        return len(plan.steps) >= 2 and sum(plan.workers) >= 30 and plan.operations >= 10

    played = Played(fails=fails)
    best = _shrunk(played)[0].best
    smaller = [
        replace(best, operations=best.operations // 2),
        *(replace(best, steps=tuple(other for other in best.steps if other != step)) for step in best.steps),
        *(replace(best, workers=tuple(other for other in best.workers if other != one)) for one in best.workers),
    ]
    assert fails(best) and not any(map(fails, smaller)) and not best.frames
    assert all(played.played.count(plan) == 3 for plan in smaller)
    assert all(plan.workers for plan in played.played), "nobody at work shows nothing"


@pytest.mark.spec("HIS-48")
def test_another_kind_is_another_matter() -> None:
    played = Played(fails=lambda plan: plan == _PLAN)
    shrinking, is_least, _ = _shrunk(played)
    assert is_least and shrinking.best == _PLAN


@pytest.mark.spec("HIS-48")
def test_what_does_not_show_again_is_left_as_it_is() -> None:
    played = Played(often=4)
    shrinking, is_least, said = _shrunk(played)
    assert not is_least and shrinking.best == _PLAN
    assert played.played == [_PLAN] * 3
    assert said[-1] == "it did not show again: there is nothing to go by"


@pytest.mark.spec("HIS-48")
def test_when_time_is_over_the_smallest_so_far_is_left() -> None:
    played = Played(most=4)
    shrinking, is_least, said = _shrunk(played)
    assert not is_least
    assert shrinking.best == replace(_PLAN, operations=20_000 >> 3) == played.played[-1]
    assert said[-1].startswith("time is over")
