"""How moves are cut into requests, and which are asked for again.

Few requests where KRaft's quorum is waited for, small ones where ZooKeeper is written to.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import BrokerAnswerError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests import reassignments
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import describe_quorum
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.client.fake_broker import FakeBroker


@pytest.mark.spec("ADM-19", "ADM-7")
@pytest.mark.parametrize(
    ("is_kraft", "most", "sizes"),
    [
        (True, None, [10_000, 2001]),
        (False, None, [1000] * 12 + [1]),
        (True, 4000, [4000, 4000, 4000, 1]),
        (False, 4000, [4000, 4000, 4000, 1]),
    ],
)
def test_a_request_carries_what_the_kind_of_controller_takes_well(
    is_kraft: bool, most: int | None, sizes: list[int]
) -> None:
    apis = {altering.API: (0, 0), **({describe_quorum.API: (0, 1)} if is_kraft else {})}
    moves = {TopicPartition("t", p): (1, 2) for p in range(12_001)}
    with FakeBroker(1, apis) as broker, ClusterClient([broker.address], ClientSettings()) as client:
        made = reassignments.requests(client, moves, most=most)
    assert [sum(len(t.partitions) for t in request.topics) for request in made] == sizes


ENDING, ENDED = ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
T = [TopicPartition("t", p) for p in range(3)]


class Told:
    """Answers each partition's requests with those codes, the last one for ever; ``then``: how the next requests end."""

    def __init__(self, codes: Mapping[int, list[ErrorCode]], then: ErrorCode | None = None) -> None:
        self._codes, self._then, self._answered = codes, then, False

    def __call__(self, request: Any) -> altering.AlterPartitionReassignmentsResponse:
        if self._answered and self._then is not None:
            return altering.AlterPartitionReassignmentsResponse(error_code=self._then, topics=[])
        self._answered = True
        topics = [
            altering.TopicMoveResults(
                topic=t.topic,
                partitions=[
                    altering.PartitionMoveResult(partition=p.partition, error_code=self._next(p.partition))
                    for p in t.partitions
                ],
            )
            for t in request.topics
        ]
        return altering.AlterPartitionReassignmentsResponse(topics=topics)

    def _next(self, partition: int) -> ErrorCode:
        left = self._codes[partition]
        return left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.spec("ADM-70", "ADM-106")
def test_a_move_that_is_ending_is_asked_for_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "ENDING_PAUSE_S", 0.0)
    with FakeBroker(1, {altering.API: (0, 0)}) as broker, ClusterClient([broker.address], ClientSettings()) as client:
        broker.answers[altering.API.key] = Told({0: [ENDING, ENDING, ENDED], 1: [ErrorCode.NONE], 2: [ENDED]})
        wanted = reassignments.requests(client, dict.fromkeys(T), most=2)
        outcome = reassignments.send(client, wanted)
        asked = [
            [p.partition for t in r.topics for p in t.partitions]
            for name, _, r in broker.asked
            if name == altering.API.name
        ]
    assert asked == [[0, 1], [2], [0], [0]]
    assert {p: e and e.code for p, e in outcome.items()} == {T[0]: ENDED, T[1]: None, T[2]: ENDED}


@pytest.mark.spec("ADM-70", "ADM-106")
def test_a_move_that_goes_on_ending_is_refused_once_the_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "ENDING_PAUSE_S", 0.0)
    monkeypatch.setattr(reassignments, "ENDING_S", 0.05)
    with FakeBroker(1, {altering.API: (0, 0)}) as broker, ClusterClient([broker.address], ClientSettings()) as client:
        broker.answers[altering.API.key] = Told({0: [ENDING]})
        outcome = reassignments.send(client, reassignments.requests(client, {T[0]: None}))
    assert isinstance(why := outcome[T[0]], BrokerAnswerError) and why.code == ENDING


@pytest.mark.spec("ADM-56")
def test_a_failure_while_it_is_asked_again_tells_what_was_begun_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "ENDING_PAUSE_S", 0.0)
    with FakeBroker(1, {altering.API: (0, 0)}) as broker, ClusterClient([broker.address], ClientSettings()) as client:
        told = Told({0: [ENDING], 1: [ErrorCode.NONE]}, then=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[altering.API.key] = told
        with pytest.raises(reassignments.CutShortError) as raised:
            reassignments.send(client, reassignments.requests(client, {T[0]: None, T[1]: None}))
    assert raised.value.accepted == [T[1]]
    assert "done before: t-1" in str(raised.value) and "not done: t-0" in str(raised.value)
