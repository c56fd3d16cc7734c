"""The controller's queue: events are handled one at a time, in order of arrival (CTL-21).

The queue is the only thing other threads touch: watches, answers, timers and requests put something in, the event
thread takes it out. The simulator takes it out itself.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kafkatool.broker.controller.gauges import Durations


class Event(NamedTuple):
    """One thing to do: ``run`` on the event thread, or ``discarded`` if the session expires before its turn (CTL-19)."""

    name: str
    run: Callable[[], None]
    discarded: Callable[[], None] | None = None


class EventQueue:
    """The queue: first in, first out; unbounded, since every event stands for something that has happened already."""

    def __init__(self) -> None:
        self.waits = Durations()  # of the events taken
        self._events: deque[tuple[Event, float]] = deque()  # and when they came
        self._condition = threading.Condition()
        self._closed = False

    def put(self, event: Event) -> None:
        """Append an event; after ``close`` it is discarded at once."""
        with self._condition:
            if not self._closed:
                self._events.append((event, time.perf_counter()))
                self._condition.notify()
                return
        if event.discarded is not None:
            event.discarded()

    def replace_all(self, event: Event) -> None:
        """Discard all that is queued and make ``event`` the next."""
        with self._condition:
            dropped = list(self._events)
            self._events.clear()
        for old, _ in dropped:
            if old.discarded is not None:
                old.discarded()
        self.put(event)

    def take(self, *, wait: bool = True) -> Event | None:
        """Return the next event. None: none there (``wait`` False), or closed."""
        with self._condition:
            while wait and not self._events and not self._closed:
                self._condition.wait()
            if not self._events:
                return None
            event, came = self._events.popleft()
            self.waits.add((time.perf_counter() - came) * 1000)
            return event

    def close(self) -> None:
        """Discard all that is queued and whatever still comes; ``take`` returns None from now on."""
        with self._condition:
            self._closed = True
            dropped = list(self._events)
            self._events.clear()
            self._condition.notify_all()
        for event, _ in dropped:
            if event.discarded is not None:
                event.discarded()

    def __len__(self) -> int:
        return len(self._events)
