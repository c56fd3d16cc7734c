"""The partition of a group, and the order of loads and unloads."""

import pytest

from kafkatool.broker.groups.ownership import OwnedPartitions, Ownership, partition_for


@pytest.mark.spec("GRP-1")
@pytest.mark.parametrize(
    "group, partition",
    [("", 0), ("kt", 33), ("group1", 40), ("test-group", 12), ("gültig", 39), ("😀", 49), ("polygenelubricants", 0)],
)
def test_a_groups_partition_is_javas_hash(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition


@pytest.mark.spec("GRP-6", "GRP-7")
def test_loads_and_unloads_obey_the_leader_epoch() -> None:
    owned = OwnedPartitions()
    assert owned.begin_load(3, 5)
    assert owned.get(3) is Ownership.LOADING and owned.loading()
    assert not owned.begin_load(3, 6), "a new epoch under the same leader does not load again"
    assert owned.finish_load(3, 5)
    assert owned.get(3) is Ownership.OWNED and not owned.loading()
    assert not owned.end(3, 4), "a stale unload is dropped"
    assert owned.end(3, 7)
    assert owned.get(3) is None
    assert not owned.begin_load(3, 6), "a stale load is dropped"
    assert owned.begin_load(3, 8)
    owned.end(3, None)
    assert not owned.finish_load(3, 8), "what was loaded for a lost partition is void"


@pytest.mark.spec("GRP-7")
def test_a_load_stays_void_though_its_partition_has_come_back() -> None:
    owned = OwnedPartitions()
    owned.begin_load(3, 5)
    owned.end(3, 6)
    assert owned.begin_load(3, 7)
    assert not owned.still_loading(3, 5) and owned.still_loading(3, 7)
    assert not owned.finish_load(3, 5), "it read what the log held before another broker led"
    assert owned.get(3) is Ownership.LOADING
    assert owned.finish_load(3, 7)
    since = owned.owned_since(3)
    owned.end(3, 8)
    assert owned.owned_since(3) is None
    owned.begin_load(3, 9)
    owned.finish_load(3, 9)
    assert since is not None and owned.owned_since(3) not in (None, since)
