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
    offsets.finish(A, commit(20, at=7))
    offsets.finish(A, commit(10, at=6))
    assert offsets.in_force[A].value.offset == 20


@pytest.mark.spec("GRP-52")
def test_a_failed_commit_changes_nothing() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A])
    assert not offsets.empty
    offsets.finish(A, None)
    assert offsets.empty and not offsets.in_force


@pytest.mark.spec("GRP-12")
def test_transactional_commits_wait_for_their_marker() -> None:
    offsets = CommittedOffsets()
    offsets.apply(A, commit(5, at=10))
    offsets.transactional[1] = {A: commit(9, at=8), B: commit(9, at=9)}
    offsets.transactional[2] = {B: commit(1, at=11)}
    offsets.end_transaction(2, committed=False)
    offsets.end_transaction(1, committed=True)
    assert offsets.in_force[A].value.offset == 5, "later in the log than the transaction's batch"
    assert offsets.in_force[B].value.offset == 9


@pytest.mark.spec("GRP-53")
def test_a_commit_under_way_does_not_bring_a_deleted_partition_back() -> None:
    offsets = CommittedOffsets()
    offsets.apply(A, commit(1, at=0))
    offsets.begin([A, B])
    assert offsets.forget([A, B]) == [A]
    offsets.finish(A, commit(2, at=1))
    offsets.finish(B, commit(2, at=2))
    assert offsets.empty
    offsets.begin([A])
    offsets.finish(A, commit(3, at=3))
    assert offsets.in_force[A].value.offset == 3, "made anew, it counts again"


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

    busy = Group("b", store=lambda _: None)
    busy.offsets.apply(A, commit(1, at=0))
    busy.offsets.begin([A])
    assert expire_group(busy, 10**9, 1) == ([], False), "a partition with a commit under way keeps its offset"
