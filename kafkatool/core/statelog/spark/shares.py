"""How the items of a job are shared out among Spark's tasks, of which each costs some time beside what it does."""

from collections.abc import Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")

SHARES_LEFT: Final = 2
"""A task gets one part in so many, times the tasks that run at a time, of the items left."""


def shared_out(items: Sequence[Item], slots: int) -> list[Sequence[Item]]:
    """Return the items in order, in a share for each task, where ``slots`` tasks run at a time.

    Shares become smaller towards the end, so that all slots are done at about the same time; the last are single items.
    This is guided self-scheduling (Polychronopoulos and Kuck, 1987).
    """
    shares: list[Sequence[Item]] = []
    first = 0
    while first < len(items):
        size = max((len(items) - first) // (SHARES_LEFT * slots), 1)
        shares.append(items[first : first + size])
        first += size
    return shares
