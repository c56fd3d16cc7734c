"""How much of the log others may fill: so many lines a period, and a count of the rest (SEC-49, 60, 75, 97)."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

_MOST_KEYS: Final = 10_000


@dataclass(slots=True)
class _Period:
    began: float
    said: int = 0
    left_out: int = 0


class FewLines:
    """Admits ``most`` lines in each ``period_s``, of each key by itself. Thread-safe.

    What a key is, an address for instance, others may choose: beyond 10,000 keys those whose period is over are
    forgotten, else all.
    """

    def __init__(self, most: int, period_s: float, *, clock: Callable[[], float] | None = None) -> None:
        self._most = most
        self._period_s = period_s
        self._clock = clock or time.monotonic
        self._periods: dict[Hashable, _Period] = {}
        self._lock = threading.Lock()

    def admit(self, key: Hashable = None) -> int | None:
        """Return how many lines were left out since the last one that was not; None: leave this one out, too."""
        now = self._clock()
        with self._lock:
            period = self._periods.get(key)
            if period is None or now - period.began >= self._period_s:
                if period is None and len(self._periods) >= _MOST_KEYS:
                    self._forget(now)
                left_out = 0 if period is None else period.left_out
                self._periods[key] = _Period(now, said=1)
                return left_out
            if period.said >= self._most:
                period.left_out += 1
                return None
            period.said += 1
            return 0

    def _forget(self, now: float) -> None:
        self._periods = {key: one for key, one in self._periods.items() if now - one.began < self._period_s}
        if len(self._periods) >= _MOST_KEYS:
            self._periods = {}
