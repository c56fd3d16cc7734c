"""Committed offsets: log order, transactions, deletion, expiry."""

import pytest

from kafkatool.broker.groups.expiry import expire_group
from kafkatool.broker.groups.group import Group
from kafkatool.broker.groups.offsets import Commit, CommittedOffsets
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.model.values import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def commit(offset: int, at: int, committed_ms: int = 0, expire_ms: int | None = None) -> Commit:
    return Commit(OffsetValue(offset, None, "", committed_ms, expire_ms), at)


@pytest.mark.spec("GRP-52")
def test_of_two_commits_the_later_in_the_log_stays_whichever_is_acknowledged_first() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A])
    offsets.begin([A])
    offsets.finish(A, commit(20, at=7), 0)
    offsets.finish(A, commit(10, at=6), 0)
    assert offsets.in_force[A].value.offset == 20


@pytest.mark.spec("GRP-52")
def test_a_failed_commit_changes_nothing() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A])
    assert not offsets.empty
    offsets.finish(A, None, 0)
    assert offsets.empty and not offsets.in_force


@pytest.mark.spec("ADM-67", "GRP-52")
def test_a_commit_on_its_way_outlives_a_tombstone_only_if_it_stands_behind_it() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A, B])
    offsets.begin([A])
    offsets.delete(A, 7)
    offsets.delete(B, 7)
    offsets.finish(B, commit(10, at=6), 0)
    assert not offsets.in_force
    offsets.finish(A, commit(20, at=8), 0)
    offsets.finish(A, commit(10, at=5), 0)
    assert {p: c.value.offset for p, c in offsets.in_force.items()} == {A: 20}
    offsets.delete(A, 6)
    assert A in offsets.in_force, "written after it"
    offsets.delete(A, 9)
    assert offsets.empty


@pytest.mark.spec("GRP-12", "TXN-86")
def test_transactional_commits_wait_for_their_marker() -> None:
    offsets = CommittedOffsets()
    offsets.apply(A, commit(5, at=10))
    offsets.transactional[1] = {A: commit(9, at=8), B: commit(9, at=9)}
    offsets.transactional[2] = {B: commit(1, at=11)}
    offsets.end_transaction(2, committed=False, log_offset=12)
    offsets.end_transaction(1, committed=True, log_offset=13)
    assert offsets.in_force[A].value.offset == 5, "later in the log than the transaction's batch"
    assert offsets.in_force[B].value.offset == 9


@pytest.mark.spec("TXN-86")
@pytest.mark.parametrize(("committed", "in_force"), [(True, {A: 1}), (False, {})])
def test_a_marker_ends_what_stands_before_it_and_no_commit_of_the_next_transaction(
    committed: bool, in_force: dict[TopicPartition, int]
) -> None:
    offsets = CommittedOffsets()
    offsets.transactional[1] = {A: commit(1, at=8), B: commit(2, at=10)}
    offsets.end_transaction(1, committed=committed, log_offset=9)
    assert {p: c.value.offset for p, c in offsets.in_force.items()} == in_force
    assert offsets.unstable() == {B} and offsets.knows_transaction(1)
    offsets.end_transaction(1, committed=True, log_offset=11)
    assert offsets.in_force[B].value.offset == 2 and not offsets.knows_transaction(1)


@pytest.mark.spec("GRP-53")
def test_a_commit_under_way_does_not_bring_a_deleted_partition_back() -> None:
    offsets = CommittedOffsets()
    offsets.apply(A, commit(1, at=0))
    offsets.begin([A, B])
    assert offsets.forget([A, B]) == [A]
    offsets.finish(A, commit(2, at=1), 0)
    offsets.finish(B, commit(2, at=2), 0)
    assert offsets.empty and offsets.erasing == {A, B}
    begun = offsets.begin([A])
    offsets.finish(A, commit(3, at=3), begun)
    assert offsets.in_force[A].value.offset == 3, "made anew, it counts again"


@pytest.mark.spec("GRP-53")
def test_a_commit_for_a_topic_made_anew_counts_and_is_not_erased_with_the_old_ones() -> None:
    offsets = CommittedOffsets()
    old = offsets.begin([A])
    offsets.forget([A])
    new = offsets.begin([A])
    assert new > old
    assert not offsets.finish(A, commit(1, at=10), old), "the later record hides it"
    assert not offsets.finish(A, commit(2, at=11), new)
    assert offsets.in_force[A].value.offset == 2 and not offsets.erasing


@pytest.mark.spec("GRP-53")
def test_what_is_left_of_a_deleted_topic_is_erased_when_the_later_commit_fails() -> None:
    offsets = CommittedOffsets()
    old = offsets.begin([A])
    offsets.forget([A])
    new = offsets.begin([A])
    assert not offsets.finish(A, commit(1, at=10), old)
    assert offsets.finish(A, None, new) and offsets.erasing == {A}
    assert offsets.empty


@pytest.mark.spec("GRP-54", "GRP-55")
def test_expiry() -> None:
    group = Group("g", store=lambda _: None, protocol_type="consumer", state_timestamp_ms=1000)
    group.offsets.apply(A, commit(1, at=0, committed_ms=0))
    group.offsets.apply(B, commit(1, at=1, committed_ms=0, expire_ms=5000))
    assert expire_group(group, 1099, 100) == ([], False)
    assert expire_group(group, 1100, 100) == ([A], False)
    assert expire_group(group, 4999, 100) == ([], False)
    assert expire_group(group, 5000, 100) == ([B], True)
    assert group.state is GroupState.DEAD

    simple = Group("s", store=lambda _: None, state_timestamp_ms=1000)
    simple.offsets.apply(A, commit(1, at=0, committed_ms=500))
    assert expire_group(simple, 600, 100) == ([A], True), "a simple group's offsets count from their commit"

    own = Group("o", store=lambda _: None)
    own.offsets.apply(A, commit(1, at=0, committed_ms=0, expire_ms=5000))
    assert expire_group(own, 4999, 100) == ([], False), "an own expiry counts in a simple group, too"
    assert expire_group(own, 5000, 100) == ([A], True)

    unknown = Group("u", store=lambda _: None, protocol_type="consumer")
    unknown.offsets.apply(A, commit(1, at=0, committed_ms=500))
    assert expire_group(unknown, 599, 100) == ([], False), "without a state timestamp: the commit time"
    assert expire_group(unknown, 600, 100) == ([A], True)

    busy = Group("b", store=lambda _: None)
    busy.offsets.apply(A, commit(1, at=0))
    busy.offsets.apply(B, commit(1, at=1, expire_ms=5))
    busy.offsets.begin([A, B])
    assert expire_group(busy, 10**9, 1) == ([], False), "a partition with a commit under way keeps its offset"
    assert busy.offsets.in_force.keys() == {A, B}


@pytest.mark.spec("GRP-54")
@pytest.mark.parametrize("state", [s for s in GroupState if s is not GroupState.EMPTY])
def test_a_group_in_another_state_keeps_also_what_has_an_expiry_of_its_own(state: GroupState) -> None:
    group = Group("g", store=lambda _: None, protocol_type="consumer", state=state, state_timestamp_ms=0)
    group.offsets.apply(A, commit(1, at=0))
    group.offsets.apply(B, commit(1, at=1, expire_ms=5))
    assert expire_group(group, 10**9, 1) == ([], False)
    assert (group.offsets.in_force.keys(), group.state) == ({A, B}, state)


@pytest.mark.spec("GRP-55", "TXN-86")
@pytest.mark.parametrize("why", ["in force", "pending", "pending over an old one", "under way", "pending id"])
def test_whatever_a_group_may_still_need_keeps_it(why: str) -> None:
    group = Group("g", store=lambda _: None)
    match why:
        case "in force":
            group.offsets.apply(A, commit(1, at=0, expire_ms=10**12))
        case "pending":
            group.offsets.transactional[7] = {A: commit(1, at=0)}
        case "pending over an old one":
            group.offsets.apply(A, commit(1, at=0))
            group.offsets.transactional[7] = {A: commit(2, at=1)}
        case "under way":
            group.offsets.begin([A])
        case _:
            group.pending["id"] = 10**12
    assert (expire_group(group, 10**9, 1), group.state) == (([], False), GroupState.EMPTY)
    assert expire_group(Group("g", store=lambda _: None), 10**9, 1) == ([], True), "else it goes"
