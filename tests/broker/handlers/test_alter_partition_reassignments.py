"""AlterPartitionReassignments and ListPartitionReassignments over a raw socket; the controller's part is the test's."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkatool.broker.controller.moves import MoveOutcome, OngoingMoves
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import alter_partition_reassignments as alter
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import Client, broker_of, handler_context

A, B, C = (TopicPartition("t", n) for n in range(3))
NO_LONGER = "This is not the correct controller for this cluster."


@dataclass
class FakeController:
    """Answers with what the test put there."""

    outcomes: Mapping[TopicPartition, MoveOutcome] | ErrorCode = ErrorCode.NOT_CONTROLLER
    moves: OngoingMoves | ErrorCode = ErrorCode.NOT_CONTROLLER
    asked: list[Any] = field(default_factory=list)

    def alter_moves(
        self, wanted: Mapping[TopicPartition, Any], *, may_change_factor: bool, done: Callable[[Any], None]
    ) -> None:
        self.asked.append((dict(wanted), may_change_factor))
        done(self.outcomes)

    def list_moves(self, partitions: Collection[TopicPartition] | None, done: Callable[[Any], None]) -> None:
        self.asked.append(partitions)
        done(self.moves)


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def client(controller: FakeController) -> Iterator[Client]:
    with closing(Timer("waits")) as timer:
        context = handler_context(controller=controller, timer=timer)
        with broker_of({k: load_handlers()[k] for k in (45, 46)}, context, num_io_threads="1") as client:
            yield client


def wanted(**options: Any) -> alter.AlterPartitionReassignmentsRequest:
    named: list[tuple[int, list[int] | None]] = [(0, [2, 3]), (1, None), (2, []), (2, [1])]
    partitions = [alter.PartitionMove(partition=n, replicas=replicas) for n, replicas in named]
    return alter.AlterPartitionReassignmentsRequest(
        topics=[alter.TopicMoves(topic="t", partitions=partitions)], **options
    )


@pytest.mark.spec("ADM-61", "ADM-64")
@pytest.mark.parametrize("version", [0, 1])
def test_each_partition_has_its_outcome_and_one_named_twice_is_not_moved(
    client: Client, controller: FakeController, version: int
) -> None:
    controller.outcomes = {A: MoveOutcome(), B: MoveOutcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no")}
    answer = client.call(alter.API, version, wanted(allow_replication_factor_change=version == 0))
    assert controller.asked == [({A: (2, 3), B: None}, version == 0)]
    assert (answer.error_code, answer.error_message) == (0, None)
    told = {p.partition: (p.error_code, p.error_message) for t in answer.topics for p in t.partitions}
    assert told == {0: (0, None), 1: (85, "no"), 2: (42, "The partition is named twice.")}


@pytest.mark.spec("ADM-61")
def test_who_is_not_the_controller_says_so_at_the_top_and_of_each_partition(client: Client) -> None:
    for version in (0, 1):
        answer = client.call(alter.API, version, wanted())
        assert (answer.error_code, answer.error_message) == (41, NO_LONGER)
        assert [(p.partition, p.error_code) for t in answer.topics for p in t.partitions] == [(0, 41), (1, 41), (2, 41)]
    told = client.call(listing.API, 0, listing.ListPartitionReassignmentsRequest(topics=None))
    assert (told.error_code, told.error_message, told.topics) == (41, NO_LONGER, [])


@pytest.mark.spec("ADM-61", "ADM-64")
def test_a_controller_that_failed_at_it_is_not_said_to_be_another(client: Client, controller: FakeController) -> None:
    controller.outcomes = controller.moves = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = client.call(alter.API, 1, wanted())
    assert [(p.partition, p.error_code) for t in answer.topics for p in t.partitions] == [(0, -1), (1, -1), (2, -1)]
    told = client.call(listing.API, 0, listing.ListPartitionReassignmentsRequest(topics=None))
    assert (answer.error_code, told.error_code, told.topics) == (-1, -1, [])
    assert "see its log" in answer.error_message and "see its log" in told.error_message


@pytest.mark.spec("ADM-66")
def test_moves_are_listed_with_their_three_lists(client: Client, controller: FakeController) -> None:
    controller.moves = {A: StoredMove((4, 2, 1, 3), (4,), (3,), (5,)), TopicPartition("u", 7): StoredMove((1, 2), (2,))}
    answer = client.call(listing.API, 0, listing.ListPartitionReassignmentsRequest(topics=None))
    assert controller.asked.pop() is None
    assert answer.error_code == 0
    told = [
        (t.topic, p.partition, p.replicas, p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    ]
    assert told == [("t", 0, [4, 2, 1, 3], [4], [3]), ("u", 7, [1, 2], [2], [])]
    topics = [listing.ListReassignmentsTopic(topic="t", partitions=[2, 0, 2])]
    client.call(listing.API, 0, listing.ListPartitionReassignmentsRequest(topics=topics))
    assert controller.asked == [[C, A]]
