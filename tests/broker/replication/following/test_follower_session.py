"""What a follower says in its fetch sessions, and what it does when the leader has lost one."""

from pathlib import Path

import pytest

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.follower_session import FetchQuestion, FollowerSession
from kafkatool.core.errors import ProtocolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.fetch import FetchResponse
from tests.broker.replication.world import World, world

PARTITIONS = tuple(TopicPartition("t", p) for p in range(3))


def followed(broker: World) -> list[FollowedPartition]:
    return [FollowedPartition(broker.follow(tp), 0) for tp in PARTITIONS]


def numbers(question: FetchQuestion) -> tuple[list[int], list[int]]:
    """Partitions listed, partitions forgotten."""
    return [p.partition for ps in question.wanted.values() for p in ps], [
        p for ps in question.forgotten.values() for p in ps
    ]


def opened(*partitions: FollowedPartition, session_id: int = 7) -> FollowerSession:
    session = FollowerSession(sessions=True)
    for one in partitions:
        session.want(one)
    question = session.question()
    assert (question.session_id, question.session_epoch) == (0, 0)
    assert len(numbers(question)[0]) == len(partitions)
    assert session.answered(FetchResponse(session_id=session_id, topics=[]))
    return session


@pytest.mark.spec("BRK-160")
def test_only_what_changed_is_listed_and_what_goes_is_forgotten_once(tmp_path: Path) -> None:
    with world(tmp_path) as broker:
        first, second, third = followed(broker)
        session = opened(first, second, third)
        for one in (first, second, third):
            session.want(one)
        quiet = session.question()
        assert (quiet.session_id, quiet.session_epoch, numbers(quiet)) == (7, 1, ([], []))
        session.answered(FetchResponse(session_id=7, topics=[]))
        second.fetch_offset = 5
        session.want(second)
        session.drop(third.partition.tp)
        changed = session.question()
        assert (numbers(changed), changed.session_epoch) == (([1], [2]), 2)
        session.answered(FetchResponse(session_id=7, topics=[]))
        assert numbers(session.question()) == ([], [])
        session.answered(FetchResponse(session_id=7, topics=[]))
        session.want(third)
        session.drop(first.partition.tp)
        session.want(first)
        assert numbers(session.question()) == ([2, 0], []), "back again before it was forgotten"
        other_epoch = FollowedPartition(first.partition, 1)
        session.want(other_epoch)
        assert session.question().wanted["t"] == [other_epoch.wanted()]


@pytest.mark.spec("BRK-160")
@pytest.mark.parametrize("code", [70, 71])
def test_a_lost_session_is_followed_by_a_full_request_that_closes_it(tmp_path: Path, code: int) -> None:
    with world(tmp_path) as broker:
        first, second, third = followed(broker)
        session = opened(first, second, third)
        session.drop(second.partition.tp)
        session.question()
        assert not session.answered(FetchResponse(error_code=code, topics=[]))
        again = session.question()
        assert (again.session_id, again.session_epoch, numbers(again)) == (7, 0, ([0, 2], []))


@pytest.mark.spec("BRK-160")
def test_a_leader_without_room_gets_full_requests(tmp_path: Path) -> None:
    with world(tmp_path) as broker:
        session = opened(*followed(broker), session_id=0)
        again = session.question()
        assert (again.session_id, again.session_epoch, numbers(again)[0]) == (0, 0, [0, 1, 2])


@pytest.mark.spec("BRK-160")
def test_before_version_7_there_are_no_sessions(tmp_path: Path) -> None:
    with world(tmp_path) as broker:
        session = FollowerSession(sessions=False)
        for one in followed(broker):
            session.want(one)
        for _ in range(2):
            question = session.question()
            assert (question.session_id, question.session_epoch, numbers(question)[0]) == (0, -1, [0, 1, 2])
            session.answered(FetchResponse(topics=[]))


@pytest.mark.spec("BRK-71")
def test_another_error_of_the_whole_answer_is_a_failed_request(tmp_path: Path) -> None:
    with world(tmp_path) as broker, pytest.raises(ProtocolError):
        opened(*followed(broker)).answered(FetchResponse(error_code=-1, topics=[]))
