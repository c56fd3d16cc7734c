"""Incremental fetch sessions."""

from dataclasses import replace

import pytest

from kafkatool.broker.replication.leading.fetch_session import FetchSession
from kafkatool.broker.replication.leading.fetch_sessions import FetchPlan, FetchSessions
from kafkatool.broker.replication.partition.partition_reads import FAILED_READS, PartitionRead, Reader
from kafkatool.broker.security.principal import Principal
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequest, FetchRequestTopic, ForgottenTopic
from tests.broker.replication.world import Clock, wanted


def request(
    session: int,
    epoch: int,
    partitions: dict[int, int] | None = None,
    *,
    forget: tuple[int, ...] = (),
    replica: int = -1,
) -> FetchRequest:
    """``partitions``: number -> offset."""
    topics = [FetchRequestTopic(topic="t", partitions=[wanted(p, o) for p, o in (partitions or {}).items()])]
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def looked_at(plan: FetchPlan) -> dict[int, int]:
    return {tp.partition: w.fetch_offset for tp, w in plan.entries}


def told(plan: FetchPlan, **reads: PartitionRead) -> list[int]:
    """Return what the client hears when those looked at are quiet but for ``reads``."""
    results = [(tp, reads.get(f"p{tp.partition}", quiet(w.fetch_offset))) for tp, w in plan.entries]
    return [tp.partition for tp, _ in plan.to_tell(results, Reader(2))]


def quiet(offset: int) -> PartitionRead:
    """Return a read that found nothing after that offset."""
    return PartitionRead(
        high_watermark=5, last_stable_offset=5, log_start_offset=0, start=LogOffset(offset), leader_end=offset
    )


def mark_changed(sessions: FetchSessions, *partitions: int) -> None:
    """They changed."""
    for partition in partitions:
        for session in sessions.watching(TopicPartition("t", partition)):
            session.mark_changed(TopicPartition("t", partition))


DATA = quiet(0)._replace(size_bytes=10, records=b"x" * 10, leader_end=9)
HELD_BACK = quiet(0)._replace(leader_end=9)


@pytest.mark.spec("BRK-105")
def test_without_a_session_everything_is_told() -> None:
    sessions = FetchSessions(10, Clock())
    plan = sessions.plan(request(0, -1, {0: 1, 1: 2}))
    assert (plan.session_id, looked_at(plan), told(plan)) == (0, {0: 1, 1: 2}, [0, 1])
    assert len(sessions) == 0


@pytest.mark.spec("BRK-105", "BRK-160")
def test_a_session_looks_only_at_what_changed_and_tells_only_what_is_new() -> None:
    sessions = FetchSessions(10, Clock())
    full = sessions.plan(request(0, 0, {0: 0, 1: 0, 2: 0}))
    session = full.session_id
    assert session > 0
    assert told(full) == [0, 1, 2]
    assert looked_at(sessions.plan(request(session, 1))) == {}, "nothing happened"
    mark_changed(sessions, 0, 1)
    third = sessions.plan(request(session, 2))
    assert looked_at(third) == {0: 0, 1: 0}
    assert told(third, p0=DATA) == [0], "partition 1 is as it was"
    mark_changed(sessions, 2, 1)
    fourth = sessions.plan(request(session, 3, {0: 7, 3: 4}, forget=(1,)))
    assert looked_at(fourth) == {0: 7, 2: 0, 3: 4}
    assert told(fourth, p2=quiet(0)._replace(high_watermark=6)) == [2, 3]
    assert looked_at(sessions.plan(request(session, 4))) == {}
    mark_changed(sessions, 0, 2)
    sixth = sessions.plan(request(session, 5))
    refused = FAILED_READS[ErrorCode.NOT_LEADER_FOR_PARTITION]
    assert told(sixth, p2=refused, p0=quiet(7)._replace(log_start_offset=2)) == [0, 2]
    seventh = sessions.plan(request(session, 6))
    assert looked_at(seventh) == {2: 0}, "trouble may be over at any time"
    assert told(seventh, p2=refused) == [2], "an error is told each time"
    eighth = sessions.plan(request(session, 7))
    assert told(eighth) == [2], "after an error it is news again"


@pytest.mark.spec("BRK-106", "BRK-102")
def test_what_leaves_some_comes_again_and_after_all_others_if_it_was_served() -> None:
    sessions = FetchSessions(10, Clock())
    full = sessions.plan(request(0, 0, {0: 0, 1: 0, 2: 0}, replica=2))
    told(full, p0=DATA, p1=HELD_BACK, p2=HELD_BACK)
    second = sessions.plan(request(full.session_id, 1, {0: 7}))
    assert list(looked_at(second)) == [1, 2, 0]
    assert told(second, p1=DATA, p2=HELD_BACK) == [1]
    assert list(looked_at(sessions.plan(request(full.session_id, 2)))) == [2, 1]
    mark_changed(sessions, 2, 1)  # while the answer is on its way
    assert told(second, p2=DATA) == [2]
    assert list(looked_at(sessions.plan(request(full.session_id, 3)))) == [1, 2]


@pytest.mark.spec("BRK-105")
def test_a_change_while_the_fetch_is_answered_is_seen_by_the_next_one() -> None:
    sessions = FetchSessions(10, Clock())
    full = sessions.plan(request(0, 0, {0: 0}))
    mark_changed(sessions, 0)
    assert told(full) == [0]
    assert looked_at(sessions.plan(request(full.session_id, 1))) == {0: 0}


@pytest.mark.spec("BRK-105")
def test_what_nobody_reports_is_found_within_a_minute() -> None:
    """A log's start moves by retention, silently."""
    clock = Clock()
    sessions = FetchSessions(10, clock)
    full = sessions.plan(request(0, 0, dict.fromkeys(range(100), 0)))
    told(full)
    seen: set[int] = set()
    for epoch in range(1, 61):
        clock.pass_ms(1000)
        plan = sessions.plan(request(full.session_id, epoch))
        assert len(plan.entries) <= 4
        told(plan)
        seen.update(looked_at(plan))
    assert seen == set(range(100))


@pytest.mark.spec("BRK-106")
def test_closed_and_forgotten_sessions_hear_of_nothing() -> None:
    sessions = FetchSessions(10, Clock())
    first = sessions.plan(request(0, 0, {0: 0, 1: 0})).session_id
    second = sessions.plan(request(0, 0, {0: 0})).session_id
    assert len(sessions.watching(TopicPartition("t", 0))) == 2
    sessions.plan(request(first, 1, forget=(0,)))
    assert [s.id for s in sessions.watching(TopicPartition("t", 0))] == [second]
    sessions.plan(request(first, -1, {0: 0}))
    sessions.plan(request(second, 1, forget=(0,)))
    assert len(sessions) == 0 and not sessions.watched, "a session without partitions ends"


@pytest.mark.spec("BRK-106")
def test_a_session_closed_while_it_forgets_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = FetchSessions(10, Clock())
    opened = sessions.plan(request(0, 0, {0: 0, 1: 0})).session_id
    update = FetchSession.update

    def then_closed(session: FetchSession, wanted: FetchRequest) -> object:
        changed = update(session, wanted)
        sessions.plan(request(opened, -1))
        return changed

    monkeypatch.setattr(FetchSession, "update", then_closed)
    sessions.plan(request(opened, 1, {2: 0}, forget=(0,)))
    assert len(sessions) == 0 and not sessions.watched


@pytest.mark.spec("BRK-105")
def test_unknown_sessions_and_wrong_epochs() -> None:
    sessions = FetchSessions(10, Clock())
    assert sessions.plan(request(99, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    made = sessions.plan(request(0, 0, {0: 0})).session
    assert made is not None
    session = made.id
    assert sessions.plan(request(session, 2)).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    made.epoch = 2**31 - 1
    assert sessions.plan(request(session, 2**31 - 1)).error is ErrorCode.NONE
    assert made.epoch == 1
    sessions.plan(request(session, -1, {0: 0}))
    assert sessions.plan(request(session, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.spec("SEC-87")
def test_a_session_of_another_principal_is_as_if_there_were_none() -> None:
    sessions = FetchSessions(10, Clock())
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    opened = sessions.plan(request(0, 0, {0: 0}), alice).session_id
    assert sessions.plan(request(opened, 1), bob).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(opened, -1), bob).error is ErrorCode.NONE
    assert sessions.plan(request(opened, 0, {0: 0}), bob).session_id not in (0, opened)
    assert sessions.plan(request(opened, 1), alice).error is ErrorCode.NONE, "nobody else closed it or went on in it"


@pytest.mark.spec("BRK-105")
def test_a_full_fetch_replaces_the_session_it_names() -> None:
    sessions = FetchSessions(10, Clock())
    first = sessions.plan(request(0, 0, {0: 0})).session_id
    second = sessions.plan(request(first, 0, {0: 0})).session_id
    assert first != second
    assert len(sessions) == 1


@pytest.mark.spec("BRK-106")
def test_the_cache_is_bounded_and_followers_come_before_consumers() -> None:
    clock = Clock()
    sessions = FetchSessions(2, clock)
    consumers = [sessions.plan(request(0, 0, {0: 0})).session_id for _ in range(3)]
    assert consumers[2] == 0, "no slot: the fetch is served without a session"
    follower = sessions.plan(request(0, 0, {0: 0}, replica=2)).session_id
    assert follower > 0
    assert sessions.plan(request(consumers[0], 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(consumers[1], 1)).error is ErrorCode.NONE
    clock.pass_ms(121_000)
    assert sessions.plan(request(0, 0, {0: 0})).session_id > 0, "a slot not used for two minutes is free"
    assert len(sessions) == 1


@pytest.mark.spec("BRK-106")
def test_no_slots_means_no_sessions() -> None:
    sessions = FetchSessions(0, Clock())
    assert sessions.plan(request(0, 0, {0: 0})).session_id == 0
    assert TopicPartition("t", 0) in dict(sessions.plan(request(0, 0, {0: 0})).entries)


@pytest.mark.spec("BRK-105", "BRK-106", "SEC-99")
def test_all_sessions_together_hold_no_more_partitions_than_there_is_memory_for() -> None:
    sessions = FetchSessions(10, Clock(), most_partitions=5)
    first = sessions.plan(request(0, 0, dict.fromkeys(range(3), 0)))
    assert first.session_id
    second = sessions.plan(request(0, 0, dict.fromkeys(range(3), 0)))
    assert (second.session_id, len(second.entries)) == (0, 3), "served without a session"
    follower = sessions.plan(request(0, 0, dict.fromkeys(range(5), 0), replica=2))
    assert follower.session_id, "consumers do not take what followers need"
    assert not sessions.plan(request(0, 0, {0: 0}, replica=3)).session_id
    grown = sessions.plan(request(first.session_id, 1, dict.fromkeys(range(3, 6), 0)))
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the client opens another, or does without"
    assert sessions.plan(request(0, 0, {0: 0})).session_id
    assert len(sessions) == 2


@pytest.mark.spec("BRK-105")
def test_a_partition_listed_many_times_is_looked_at_once() -> None:
    twice = request(0, -1, {0: 1})
    plan = FetchSessions(10, Clock()).plan(replace(twice, topics=twice.topics * 1000))
    assert looked_at(plan) == {0: 1} and len(plan.entries) == 1
