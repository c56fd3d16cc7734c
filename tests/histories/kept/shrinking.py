"""A run of real processes that fails, made smaller: operations halved, steps and workers left out (HIS-48).

What real processes do differs each time: a candidate is played a few times, and fails if one of these shows the same kind.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from tests.histories.kept.plan import Plan
from tests.histories.simulated.shrinking import least

REPEATS: Final = 3


class TimeOverError(Exception):
    """No more runs are to be begun."""


class Shrinking:
    """Looks for the least of a plan that shows one of these ``kinds``; ``best`` is the smallest that did.

    ``play`` plays a plan and returns the kinds that it showed, or raises TimeOverError.
    """

    def __init__(
        self,
        plan: Plan,
        kinds: Collection[str],
        play: Callable[[Plan], Collection[str]],
        say: Callable[[str], object] = print,
        repeats: int = REPEATS,
    ) -> None:
        self.best = plan
        self._kinds, self._play, self._say, self._repeats = set(kinds), play, say, repeats
        self._in_vain: set[Plan] = set()

    def shrink(self) -> bool:
        """Make ``best`` smaller until nothing of it can be left out; tell whether it came so far before time was over."""
        try:
            if not self._fails(self.best):
                self._say("it did not show again: there is nothing to go by")
                return False
            while True:
                before = self.best
                self._halve()
                self._leave_out()
                if self.best == before:
                    return True
        except TimeOverError:
            self._say("time is over: of what is left more could be left out, perhaps")
            return False

    def _halve(self) -> None:
        while self.best.operations > 1 and self._fails(replace(self.best, operations=self.best.operations // 2)):
            pass

    def _leave_out(self) -> None:
        if self.best.frames:
            self._fails(replace(self.best, frames=False))
        base = self.best
        least(base.steps, lambda kept: self._fails(replace(base, steps=tuple(kept))))
        base = self.best
        least(base.workers, lambda kept: bool(kept) and self._fails(replace(base, workers=tuple(kept))))

    def _fails(self, candidate: Plan) -> bool:
        """Tell whether a plan shows what is looked for in one of some runs; then it is the best so far."""
        if candidate in self._in_vain:
            return False
        for number in range(1, self._repeats + 1):
            found = self._kinds.intersection(self._play(candidate))
            self._say(f"{_size(candidate)}, run {number}: {', '.join(sorted(found)) or 'nothing of it'}")
            if found:
                self.best = candidate
                return True
        self._in_vain.add(candidate)
        return False


def _size(plan: Plan) -> str:
    frames = ", frames late and lost" if plan.frames else ""
    return f"{plan.operations} operations, {len(plan.steps)} steps, {len(plan.workers)} workers{frames}"
