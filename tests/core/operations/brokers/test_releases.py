"""Which Kafka a broker is, held against what real brokers answer to ApiVersions."""

import pytest

from kafkatool.core.operations.brokers.releases import MARKS, release_number, release_of

# What brokers of these releases answer, highest versions alone: of 4.1.0 all, of the others the marks' APIs.
KAFKA_4_1_0 = {0: 13, 1: 18, 2: 10, 3: 13, 8: 9, 9: 9, 10: 6, 11: 9, 16: 5, 18: 4, 19: 7, 24: 5, 35: 4, 92: 0}
KAFKA_3_9_1_ZOOKEEPER = {0: 11, 1: 17, 2: 9, 3: 12, 4: 7, 9: 9, 11: 9, 16: 5, 18: 4, 19: 7, 24: 5, 35: 4}


def served(highest: dict[int, int]) -> dict[int, tuple[int, int]]:
    return {api: (0, version) for api, version in highest.items()}


def without(highest: dict[int, int], **changed: int) -> dict[int, int]:
    return {**highest, **{int(api[1:]): version for api, version in changed.items()}}


@pytest.mark.spec("ADM-105")
@pytest.mark.parametrize(
    ("highest", "release"),
    [
        (KAFKA_4_1_0, "4.1"),
        (without(KAFKA_4_1_0, _0=12), "4.0"),
        (without(KAFKA_4_1_0, _0=14), "≥ 4.1"),
        (without(KAFKA_4_1_0, _93=0), "≥ 4.1"),
        (KAFKA_3_9_1_ZOOKEEPER, "3.9"),
        (without(KAFKA_3_9_1_ZOOKEEPER, _4=6, _1=13, _24=3, _0=9), "3.3"),
        # without ZooKeeper nothing tells 3.4 from 3.3
        (without(KAFKA_4_1_0, _1=13, _24=3, _0=9, _3=12), "3.3-3.4"),
        # a broker that serves requests of later releases, and not those of the ones between
        (without(KAFKA_4_1_0, _11=3), "like 2.1"),
        ({18: 0, 0: 2, 1: 2}, "0.10.0"),
    ],
    ids=["4.1", "4.0", "newer-version", "newer-api", "3.9", "3.3", "3.3-or-3.4", "like", "0.10.0"],
)
def test_the_newest_versions_tell_the_release(highest: dict[int, int], release: str) -> None:
    assert str(release_of(served(highest))) == release


def test_marks_go_up_release_by_release() -> None:
    numbers = [release_number(mark.release) for mark in MARKS]
    assert numbers == sorted(numbers) and len(set(numbers)) == len(numbers)
    of_api: dict[int, int] = {}
    for mark in MARKS:
        assert mark.version > of_api.get(mark.api, -1), mark
        of_api[mark.api] = mark.version
