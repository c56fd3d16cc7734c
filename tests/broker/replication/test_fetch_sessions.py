"""Incremental fetch sessions."""

import pytest

from kafkatool.broker.replication.fetch_sessions import FetchPlan, FetchSessions
from kafkatool.broker.replication.partition_reads import PartitionRead, failed_read
from kafkatool.core.model import TopicPartition
from kafkatool.core.protocol.error_codes import ErrorCode
from kafkatool.core.protocol.fetch import FetchRequest, FetchRequestTopic, ForgottenTopic
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


def asked(plan: FetchPlan) -> dict[int, int]:
    return {tp.partition: w.fetch_offset for tp, w in plan.entries}


def told(plan: FetchPlan, **reads: PartitionRead) -> list[int]:
    results = [(tp, reads.get(f"p{tp.partition}", QUIET)) for tp, _ in plan.entries]
    return [tp.partition for tp, _ in plan.to_tell(results)]


QUIET = PartitionRead(high_watermark=5, last_stable_offset=5, log_start_offset=0)
DATA = QUIET._replace(size_bytes=10, records=b"x" * 10)


@pytest.mark.spec("BRK-105")
def test_without_a_session_everything_is_told() -> None:
    sessions = FetchSessions(10, Clock())
    plan = sessions.plan(request(0, -1, {0: 1, 1: 2}))
    assert (plan.session_id, asked(plan), told(plan)) == (0, {0: 1, 1: 2}, [0, 1])
    assert len(sessions) == 0


@pytest.mark.spec("BRK-105", "BRK-106")
def test_a_session_tells_only_what_changed() -> None:
    sessions = FetchSessions(10, Clock())
    full = sessions.plan(request(0, 0, {0: 0, 1: 0, 2: 0}))
    session = full.session_id
    assert session > 0
    assert told(full) == [0, 1, 2]
    second = sessions.plan(request(session, 1))
    assert asked(second) == {0: 0, 1: 0, 2: 0}
    assert told(second, p0=DATA) == [0]
    third = sessions.plan(request(session, 2, {0: 7, 3: 4}, forget=(1,)))
    assert list(asked(third).items()) == [(2, 0), (0, 7), (3, 4)], "one with data goes to the end of the order"
    assert told(third, p2=QUIET._replace(high_watermark=6), p0=QUIET) == [2, 3]
    fourth = sessions.plan(request(session, 3))
    assert told(fourth, p2=failed_read(ErrorCode.NOT_LEADER_FOR_PARTITION), p0=QUIET._replace(log_start_offset=2)) == [
        2,
        0,
    ]
    fifth = sessions.plan(request(session, 4))
    assert told(fifth, p0=QUIET._replace(log_start_offset=2)) == [2], "after an error it is news again"


@pytest.mark.spec("BRK-105")
def test_unknown_sessions_and_wrong_epochs() -> None:
    sessions = FetchSessions(10, Clock())
    assert sessions.plan(request(99, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = sessions.plan(request(0, 0, {0: 0})).session_id
    assert sessions.plan(request(session, 2)).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    made = sessions._sessions[session]
    made.epoch = 2**31 - 1
    assert sessions.plan(request(session, 2**31 - 1)).error is ErrorCode.NONE
    assert made.epoch == 1
    sessions.plan(request(session, -1, {0: 0}))
    assert sessions.plan(request(session, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


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
    assert len(sessions) == 2


@pytest.mark.spec("BRK-106")
def test_no_slots_means_no_sessions() -> None:
    sessions = FetchSessions(0, Clock())
    assert sessions.plan(request(0, 0, {0: 0})).session_id == 0
    assert TopicPartition("t", 0) in dict(sessions.plan(request(0, 0, {0: 0})).entries)
