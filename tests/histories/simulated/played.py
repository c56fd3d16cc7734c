"""Time for one broker of the simulation: its timers and jobs are done on the one thread there is, when it says so."""

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.runtime.timer import Timer, TimerTask
from tests.broker.replication.world import Clock

_LOAD_MS: Final = (0, 20, 150)


class PlayedTimer(Timer):
    """Starts callbacks in ``run_due``, by the simulation's clock."""

    def __init__(self, clock: Clock) -> None:
        self.cancelled = 0
        self._clock = clock
        self._heap: list[tuple[float, int, TimerTask]] = []
        self._order = itertools.count()

    def add(self, delay_ms: float, callback: Callable[[], None]) -> TimerTask:
        task = TimerTask(self, callback)
        heapq.heappush(self._heap, (self._clock() + delay_ms, next(self._order), task))
        return task

    def run_due(self) -> None:
        """Start what is due by now."""
        while self._heap and self._heap[0][0] <= self._clock():
            callback = heapq.heappop(self._heap)[2].take()
            if callback is not None:
                callback()


class PlayedScheduler(Scheduler):
    """Jobs wait until ``run_next`` does one, as they would for a thread; what loads a log begins late now and then."""

    def __init__(self, timer: PlayedTimer, chance: Random) -> None:
        self._timer, self._chance = timer, chance
        self._jobs: list[Callable[[], object]] = []

    def schedule(
        self, name: str, fn: Callable[[], object], *, delay_ms: float = 0, period_ms: float | None = None
    ) -> ScheduledTask:
        task = ScheduledTask(self._timer, name, fn, period_ms)
        task.start(delay_ms)
        return task

    def once(self, name: str, fn: Callable[[], object], *, delay_ms: float) -> TimerTask:
        return self._timer.add(delay_ms, ScheduledTask(self._timer, name, fn, None).run)

    def submit(self, fn: Callable[[], object], name: str = "job") -> None:
        if name.endswith("-load"):
            self._timer.add(self._chance.choice(_LOAD_MS), lambda: self._jobs.append(fn))
        else:
            self._jobs.append(fn)

    def run_next(self) -> None:
        """Do the job that has waited longest, if there is one."""
        if self._jobs:
            self._jobs.pop(0)()
