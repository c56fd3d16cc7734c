"""Clusters that are well are not told to be ill, by `kt health` or by `kt migrate check` (ADM-101, ADM-107)."""

from pathlib import Path

import pytest

from tests.compat import real_kafka
from tests.compat.healthy_clusters import CLUSTERS, WAIT_S, Healthy, alarms
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

LOOKS = 3


@pytest.mark.spec("ADM-101", "ADM-107", "ADM-109")
@pytest.mark.parametrize("healthy", [pytest.param(one, id=one.name) for one in CLUSTERS])
def test_a_cluster_that_is_well_is_not_told_to_be_ill(healthy: Healthy, tmp_path: Path) -> None:
    for version in healthy.versions:
        real_kafka.require(version)
    with healthy.start(tmp_path) as cluster, healthy.life(cluster):
        looks: list[list[str]] = []
        while len(looks) < LOOKS:
            eventually(cluster.is_well, "everything in sync and led by the first replica", WAIT_S)
            found = alarms(cluster, healthy)
            if not found or cluster.is_well():  # what stood still meanwhile was ill, and is told rightly
                looks.append(found)
    print(f"{healthy.name}: {len(looks)} looks, {sum(map(len, looks))} alarms")
    assert looks == [[]] * LOOKS


def test_there_are_twenty_of_them_at_least() -> None:
    assert len({one.name for one in CLUSTERS}) >= 20
