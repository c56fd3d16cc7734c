"""Where the total order is cut into ranges that a task can sort: found from samples, as pure functions.

Brokers of a cluster log at like rates, so places at equal distances in their logs are of like times, and cuts taken from
them would lie close together, with all the rest in one range. So each place is at random in a stretch of its own; all
stretches are of one size, so that a log counts for what it holds.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Final

SAMPLES: Final = 16
"""Records looked up for each range; fewer where that makes more than MOST_SAMPLES."""

MOST_SAMPLES: Final = 1024
"""In all; but LEAST_SAMPLES for each range. Each is a read of a few KB."""

LEAST_SAMPLES: Final = 4
"""For each range: of thousands the largest is then some four times the average; with one, nine times."""

MOST_RANGES: Final = 10_000
"""The names of Spark's part files sort up to 99,999, and every task of the first round has a place for each range."""

RECORD_BYTES: Final = 200
"""Of a usual record. So far before a place the look begins, which finds what comes next: else the first record of a log
would never be found, and of small files, rolled every hour by all brokers at a time, it is one of few."""

Place = tuple[bytes, int, int]
"""A place in the total order: time, source, offset."""


def places_to_sample(sizes: Sequence[int], ranges: int) -> list[tuple[int, int]]:
    """Return source and offset of the places to look at, in their order, in logs of these sizes."""
    ends = list(accumulate(sizes))
    number = ranges * max(min(SAMPLES, MOST_SAMPLES // ranges), LEAST_SAMPLES)
    generator = Random(0)
    places = []
    for stretch in range(number):
        at = int((stretch + generator.random()) * ends[-1] / number)
        source = min(bisect_right(ends, at), len(sizes) - 1)
        places.append((source, max(at - ends[source] + sizes[source] - RECORD_BYTES, 0)))
    return places


def pick_cuts(samples: Iterable[Place], ranges: int) -> tuple[Place, ...]:
    """Return the places that cut the records into about so many ranges of like size."""
    places = sorted(samples)
    return tuple(sorted({places[len(places) * k // ranges] for k in range(1, ranges)})) if places else ()
