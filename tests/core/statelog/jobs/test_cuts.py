"""The ranges of the total order are of like size, however many brokers log at the same time."""

from bisect import bisect_right
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.statelog.jobs.cuts import MOST_RANGES, RECORD_BYTES, Place, pick_cuts, places_to_sample

MOST_RECORDS = 60_000
"""In one example: so few that many can be tried."""

logs = st.tuples(st.integers(1, 200), st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**32))
"""Brokers, chunks of each, hourly files of each chunk, and the seed of their clocks."""


def clusters_logs(brokers: int, chunks: int, files: int, seed: int) -> list[list[Place]]:
    """Return the records of logs of brokers that log at like rates, by source; broker after broker, as names sort."""
    generator = Random(seed)
    records = max(MOST_RECORDS // (brokers * chunks * files), 2)
    sources: list[list[Place]] = []
    for _ in range(brokers):
        ahead_ms, rate_ms = generator.randrange(50), generator.randrange(90, 110)
        for file in range(chunks * files):
            times = (ahead_ms + (file * records + at) * rate_ms for at in range(records))
            sources.append([(b"%012d" % time, len(sources), at * RECORD_BYTES) for at, time in enumerate(times)])
    return sources


def range_sizes(sources: list[list[Place]], ranges: int) -> list[int]:
    """Return how many records there are in each range that cuts, taken from samples, make of these logs."""
    samples = []
    for source, offset in places_to_sample([len(records) * RECORD_BYTES for records in sources], ranges):
        if (at := -(-offset // RECORD_BYTES)) < len(sources[source]):
            samples.append(sources[source][at])
    cuts = pick_cuts(samples, ranges)
    found = Counter(bisect_right(cuts, place) for records in sources for place in records)
    return [found[number] for number in range(len(cuts) + 1)]


@pytest.mark.slow
@pytest.mark.spec("SCL-22X")
@settings(max_examples=60, derandomize=True)  # by chance a range may be larger
@given(given_logs=logs)
def test_the_largest_range_is_a_few_times_the_average(given_logs: tuple[int, int, int, int]) -> None:
    brokers, chunks, files, _ = given_logs
    sources = clusters_logs(*given_logs)
    records = sum(map(len, sources))
    ranges = min(brokers * chunks, records // 40)  # below that the records themselves are the samples
    sizes = range_sizes(sources, max(ranges, 1))
    assert sum(sizes) == records
    assert max(sizes) < 5 * records / max(ranges, 1), f"{files} files for each chunk"


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize(("ranges", "each"), [(2, 16), (64, 16), (200, 5), (6_400, 4), (MOST_RANGES, 4)])
def test_few_places_are_looked_at_and_a_log_counts_for_what_it_holds(ranges: int, each: int) -> None:
    places = places_to_sample([0, 3_000_000, 0, 1_000_000, 0], ranges)
    assert len(places) == ranges * each
    assert places == sorted(places)
    assert all(0 <= offset < {1: 3_000_000, 3: 1_000_000}[source] for source, offset in places)
    assert [sum(source == number for source, _ in places) for number in (1, 3)] == [
        pytest.approx(len(places) * share, abs=1) for share in (0.75, 0.25)
    ]


def test_of_nothing_nothing_is_cut() -> None:
    assert pick_cuts([], 5) == ()
    assert pick_cuts([(b"1", 0, 0)], 5) == ((b"1", 0, 0),)
