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
    term = owned.begin_load(3, 5)
    assert term is not None
    assert owned.get(3) is Ownership.LOADING and owned.loading()
    assert not owned.begin_load(3, 6), "a new epoch under the same leader does not load again"
    assert owned.finish_load(term)
    assert owned.get(3) is Ownership.OWNED and not owned.loading()
    assert not owned.end(3, 5), "a stale unload is dropped: the newest epoch seen is 6"
    assert owned.end(3, 7)
    assert owned.get(3) is None
    assert not owned.begin_load(3, 6), "a stale load is dropped"
    assert owned.begin_load(3, 7), "of the newest epoch it is none"
    assert owned.end(3, 7), "nor is an unload"
    term = owned.begin_load(3, 8)
    assert term is not None
    owned.end(3, None)
    assert not owned.finish_load(term), "what was loaded for a lost partition is void"


@pytest.mark.spec("GRP-7", "TXN-7")
def test_a_load_stays_void_though_its_partition_has_come_back() -> None:
    owned = OwnedPartitions()
    old = owned.begin_load(3, 5)
    owned.end(3, 6)
    new = owned.begin_load(3, 7)
    assert old is not None and new is not None
    assert not owned.still_loading(old) and owned.still_loading(new)
    assert not owned.finish_load(old), "it read what the log held before another broker led"
    assert owned.get(3) is Ownership.LOADING
    assert owned.finish_load(new)
    since = owned.owned_since(3)
    owned.end(3, 8)
    assert owned.owned_since(3) is None
    newest = owned.begin_load(3, 9)
    assert newest is not None and owned.finish_load(newest)
    assert since is not None and owned.owned_since(3) not in (None, since)


@pytest.mark.spec("GRP-6", "GRP-16", "TXN-7", "TXN-14")
def test_the_epochs_of_a_replica_that_is_gone_count_no_more_and_its_term_is_no_other() -> None:
    owned = OwnedPartitions()
    first = owned.begin_load(3, 0)
    assert first is not None and owned.finish_load(first) and owned.owned_since(3) == first
    assert owned.begin_load(3, 9) is None, "under the same leader"
    assert owned.end(3, None)
    second = owned.begin_load(3, 0)
    assert second is not None, "its topic was deleted and made anew"
    assert not owned.still_loading(first) and owned.finish_load(second)
    assert owned.owned_since(3) == second != first, "though both began in epoch 0"
