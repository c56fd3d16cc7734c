"""Loops that give up the interpreter lock (GIL) now and then, so that other threads can run.

A thread that computes gives up the interpreter lock only when another has waited 5 ms for it, and a request of a
client needs the lock several times. So work of many milliseconds, such as a control request for thousands of
partitions, pauses of its own accord, long enough for the others to wake up and take the lock.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

_WORK_S = 0.001
_PAUSE_S = 0.00005  # the kernel makes about 0.1 ms of it


def yielding_gil(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, with a short pause after each millisecond of work on them."""
    due = time.perf_counter() + _WORK_S
    for item in items:
        yield item
        if time.perf_counter() > due:
            time.sleep(_PAUSE_S)
            due = time.perf_counter() + _WORK_S
