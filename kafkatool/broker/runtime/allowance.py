"""How much of something each of many may have: so much at once, and so much a second from then on."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

_MOST_KEYS: Final = 10_000


class Allowance:
    """Gives ``a_second`` to each key, which may save up to ``at_once`` of it. Thread-safe.

    Who a key is, a principal for instance, others may choose: beyond 10,000 keys those that have saved all are forgotten,
    which changes nothing for them, and if there is none, all.
    """

    def __init__(self, at_once: int, a_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = at_once
        self._a_second = a_second
        self._clock = clock
        self._saved: dict[Hashable, tuple[float, float]] = {}  # what it had, and when
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> bool:
        """Take one, if the key has one."""
        now = self._clock()
        with self._lock:
            if key not in self._saved and len(self._saved) >= _MOST_KEYS:
                self._forget(now)
            has = self._has(*self._saved.get(key, (self._at_once, now)), now)
            self._saved[key] = (has - (has >= 1), now)
            return has >= 1

    def give_back(self, key: Hashable) -> None:
        """Take back a ``take`` of which nothing came."""
        with self._lock:
            if key in self._saved:
                has, since = self._saved[key]
                self._saved[key] = (min(self._at_once, has + 1), since)

    def _has(self, saved: float, since: float, now: float) -> float:
        return min(self._at_once, saved + (now - since) * self._a_second)

    def _forget(self, now: float) -> None:
        self._saved = {key: one for key, one in self._saved.items() if self._has(*one, now) < self._at_once}
        if len(self._saved) >= _MOST_KEYS:
            self._saved = {}
