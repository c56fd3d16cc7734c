"""The time that coordinators go by: one that no step of the wall's clock moves, and that one as far as it can be trusted."""

import threading
import time
from collections.abc import Callable

_STEP_MS = 60_000  # less is a clock that runs a little fast or slow, or a thread held up between two looks
_SETTLED_MS = 3_600_000


class CoordinatorClock:
    """Two clocks. Sessions and phases are measured by time passed; stamps in records are the wall's, and so is expiry.

    What expires cannot be brought back, what expires late does no harm. So expiry trusts a wall clock only after it
    has run for an hour since the start without a step, follows a step back at once, and one forward when it has stood
    for the whole retention: by then all stamps from before the step are as old as they seem. Thread-safe.
    """

    def __init__(
        self,
        passed_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        wall_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        self._passed_ms = passed_ms
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._seen_since_ms = passed_ms()
        self._started = wall_ms() - self._seen_since_ms
        self._seen = self._started  # wall clock minus time passed, since the last step
        self._trusted = float("-inf")  # the same, as expiry reckons
        self._has_leapt = False  # forward, at any time

    def steady_ms(self) -> int:
        """Return what the wall clock would show, had it gone evenly since the start: it is never set back or forward."""
        return int(self._started + self._passed_ms())

    def now_ms(self) -> float:
        """Return the time passed, from no particular moment on."""
        return self._passed_ms()

    def to_wall_ms(self, at_ms: float) -> float:
        """Return what the wall clock shows, as it goes now, at that moment of time passed."""
        return at_ms + self.look()

    def look(self) -> float:
        """Note a step of the wall clock: to be called whenever something is stamped. Return it minus time passed."""
        now_ms = self._passed_ms()
        difference = self._wall_ms() - now_ms
        if abs(difference - self._seen) > _STEP_MS:
            with self._lock:
                self._has_leapt = self._has_leapt or difference > self._seen
                self._seen, self._seen_since_ms = difference, now_ms
        return difference

    def expiry_ms(self, retention_ms: float) -> float:
        """Return the wall's time for expiry; minus infinity while it is not trusted."""
        difference, now_ms = self.look(), self._passed_ms()
        with self._lock:
            settled_ms = retention_ms if self._has_leapt else min(_SETTLED_MS, retention_ms)
            if difference < self._trusted or now_ms - self._seen_since_ms >= settled_ms:
                self._trusted = difference
            return now_ms + self._trusted
