"""Delta debugging: the least of a list without which a thing does not happen (HIS-48).

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
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


def fewest(count: int, still_fails: Callable[[int], bool]) -> int:
    """Return a count of at least one with which it fails, and with one less does not: half is taken off, then ever less."""
    step = count // 2
    while step:
        if count > step and still_fails(count - step):
            count -= step
        else:
            step //= 2
    return count


def shrunk(schedule: Schedule, still_fails: Callable[[Schedule], bool]) -> Schedule:
    """Take off operations, leave out faults, then processes, as long as it still fails; until nothing more can go.

    What is left fails no more with one operation less, without any one of its faults, or without any one of its processes.
    """
    fails = cache(still_fails)  # the last round is played by the ones before
    while True:
        before = schedule
        operations = fewest(before.operations, lambda count: fails(replace(before, operations=count)))  # noqa: B023
        one = replace(before, operations=operations)
        faults = least(one.faults, lambda kept: fails(replace(one, faults=tuple(kept))))  # noqa: B023
        two = replace(one, faults=tuple(faults))
        present = least(two.present, lambda kept: bool(kept) and fails(two.with_only(kept)))  # noqa: B023
        schedule = two.with_only(present)
        if schedule == before:
            return schedule
