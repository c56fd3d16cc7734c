"""The partition of a group, and the order of loads and unloads."""

import pytest

from kafkatool.broker.coordination.ownership import OwnedPartitions, Ownership, partition_for


@pytest.mark.spec("GRP-1")
@pytest.mark.parametrize(
    "group, partition",
    [("", 0), ("kt", 33), ("group1", 40), ("test-group", 12), ("gültig", 39), ("😀", 49), ("polygenelubricants", 0)],
)
def test_a_groups_partition_is_javas_hash(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition


@pytest.mark.spec("GRP-1")
@pytest.mark.parametrize("length", [255, 256, 257, 30_000])
def test_an_id_too_long_to_be_remembered_has_its_partition_by_the_same_hash(length: int) -> None:
    signed = (sum(97 * pow(31, i, 2**32) for i in range(length)) + 2**31) % 2**32 - 2**31
    for _ in range(2):
        assert partition_for("a" * length, 50) == abs(signed) % 50


@pytest.mark.spec("GRP-6", "GRP-7", "TXN-7")
def test_loads_and_unloads_obey_the_leader_epoch() -> None:
    owned = OwnedPartitions()
    assert owned.begin_load(3, 5)
    assert owned.get(3) is Ownership.LOADING and owned.loading()
    assert not owned.begin_load(3, 6), "a new epoch under the same leader does not load again"
    assert owned.finish_load(3, 5)
    assert owned.get(3) is Ownership.OWNED and not owned.loading()
    assert not owned.end(3, 5), "a stale unload is dropped: the newest epoch seen is 6"
    assert owned.end(3, 7)
    assert owned.get(3) is None
    assert not owned.begin_load(3, 6), "a stale load is dropped"
    assert owned.begin_load(3, 7), "of the newest epoch it is none"
    assert owned.end(3, 7), "nor is an unload"
    assert owned.begin_load(3, 8)
    owned.end(3, None)
    assert not owned.finish_load(3, 8), "what was loaded for a lost partition is void"


@pytest.mark.spec("GRP-7", "TXN-7")
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
