"""A virtual clock, one heap of things to come, one source of chance: all that a run depends on is its seed.

Everything runs on one thread. What would block in the real program (waiting for ZooKeeper, a process that is stopped)
runs the rest of the world instead, on top of the stack, until the wait is over: so one controller's event is
interleaved with everything else at each of its calls, another controller's events included.
"""

import heapq
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Action = Callable[[], None]

MAX_STEPS = 60_000  # of one run: more means that it does not come to rest
_MAX_DEPTH = 40  # frames of waiting on top of each other


class SimulationError(BaseException):
    """An invariant does not hold, or the cluster does not come to rest. No error handling of the program stops it."""


@dataclass(slots=True)
class Chances:
    """Of one call or message, 0 to 1. All zero once the faults have stopped."""

    others_first: float = 0.0  # before a ZooKeeper call: some of what is to come happens
    stopped: float = 0.0  # before a ZooKeeper call: the process stands still for seconds (SIGSTOP, a long GC)
    killed: float = 0.0  # before a ZooKeeper call
    cut: float = 0.0  # the connection to ZooKeeper breaks at this call
    expiry: float = 0.0  # of those cuts: stays broken until the session is over
    request_lost: float = 0.0  # a control request
    answer_lost: float = 0.0  # the broker has acted
    slow: float = 0.0  # a message takes seconds


class World:
    """Runs until told; ``trace`` collects what happened, only when asked for.

    ``pace``: the part of its time in life that each wait of a process takes here, where a cluster is to be quicker.
    ``max_steps``: of the whole run; None: somebody else sees to its end.
    """

    def __init__(
        self, seed: int | str, *, tracing: bool = False, pace: float = 1.0, max_steps: int | None = MAX_STEPS
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0  # ms
        self.pace = pace
        self.chances = Chances()
        self.trace: list[str] | None = [] if tracing else None
        self.steps = 0
        self.digest = 0
        self.violations: list[str] = []
        self._max_steps = max_steps
        self._heap: list[tuple[float, int, Action]] = []
        self._order = 0
        self._depth = 0

    # --- time -----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, action: Action) -> None:
        """Run ``action`` at its time; things due at the same time happen in the order they were asked for."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._order, action))

    def soon(self, action: Action, at_most_ms: float = 5.0) -> None:
        """Run it within a few milliseconds, so that what is independent comes in any order."""
        self.after(self.random.random() * at_most_ms, action)

    def step(self) -> bool:
        """Run the next thing to come. False: nothing is."""
        if not self._heap:
            return False
        at, _, action = heapq.heappop(self._heap)
        self.now = max(self.now, at)
        self.steps += 1
        if self._max_steps is not None and self.steps > self._max_steps:
            self.fail("the cluster does not come to rest")
        action()
        return True

    def run_until(self, done: Callable[[], bool], deadline: float) -> bool:
        """Let the world go on; False: the deadline came first."""
        self._depth += 1
        try:
            while not done():
                if not self._heap or self._heap[0][0] > deadline:
                    self.now = max(self.now, deadline)
                    return False
                self.step()
            return True
        finally:
            self._depth -= 1

    def run_for(self, ms: float) -> None:
        """Let so much time pass."""
        self.run_until(lambda: False, self.now + ms)

    def may_wait(self) -> bool:
        """Tell whether chance may let others go first here: the stack has an end."""
        return self._depth < _MAX_DEPTH

    # --- what is seen ---------------------------------------------------------------------------------------------

    def note(self, text: str, *arguments: Any) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now / 1000:9.3f} s  {text % arguments if arguments else text}")

    def count(self, data: bytes) -> None:
        """Count it into the digest that two runs of one seed share."""
        self.digest = zlib.crc32(data, self.digest)

    def fail(self, why: str) -> None:
        """Note it and end the run: what follows a broken invariant says nothing."""
        self.note("VIOLATION: %s", why)
        self.violations.append(why)
        raise SimulationError(why)
