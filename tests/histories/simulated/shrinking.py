"""Delta debugging: the least of a list without which a thing does not happen (HIS-48).

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.histories.simulated.simulation import Schedule

T = TypeVar("T")


def least(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return items in their order of which none can be left out by itself. All of them must fail."""
    kept, pieces = list(items), 2
    if not kept or still_fails([]):
        return []
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if still_fails(rest):
                kept, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(kept))
    return kept


def shrunk(schedule: Schedule, still_fails: Callable[[Schedule], bool]) -> Schedule:
    """Halve the operations, leave out faults, then processes, as long as it still fails; until nothing more can go."""
    while True:
        before = schedule
        while schedule.operations > 1:
            half = replace(schedule, operations=schedule.operations // 2)
            if not still_fails(half):
                break
            schedule = half
        base = schedule
        faults = least(base.faults, lambda kept: still_fails(replace(base, faults=tuple(kept))))  # noqa: B023
        schedule = replace(base, faults=tuple(faults))
        while schedule.processes > 1:
            fewer = replace(schedule, processes=schedule.processes - 1)
            if not still_fails(fewer):
                break
            schedule = fewer
        if schedule == before:
            return schedule
