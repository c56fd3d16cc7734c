"""What moves of some partitions: few are asked about by name, many are picked out of all that the controller tells."""

import pytest

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.moving import NAMED_AT_MOST, Moving, read_moves
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.list_partition_reassignments import OngoingPartition, OngoingTopic
from tests.core.client.fake_broker import FakeBroker

MOVES = Moving((3, 1, 2), (3,), (2,))
MOVING = {TopicPartition("t", 0), TopicPartition("t", NAMED_AT_MOST), TopicPartition("u", 0)}


def told(request: listing.ListPartitionReassignmentsRequest) -> listing.ListPartitionReassignmentsResponse:
    asked = None if request.topics is None else {(t.topic, p) for t in request.topics for p in t.partitions}
    replicas, adding, removing = map(list, MOVES)
    topics = [
        OngoingTopic(
            topic=topic,
            partitions=[
                OngoingPartition(partition=p, replicas=replicas, adding_replicas=adding, removing_replicas=removing)
            ],
        )
        for topic, p in sorted(MOVING)
        if asked is None or (topic, p) in asked
    ]
    return listing.ListPartitionReassignmentsResponse(topics=topics)


@pytest.mark.spec("ADM-43")
@pytest.mark.parametrize("count", [0, 1, NAMED_AT_MOST, NAMED_AT_MOST + 1, 10_000])
def test_those_that_move_are_told_however_many_are_asked_about(count: int) -> None:
    wanted = [TopicPartition("t", p) for p in range(count)]
    with FakeBroker(1, {listing.API: (0, 0)}) as broker, ClusterClient([broker.address], ClientSettings()) as client:
        broker.answers[listing.API.key] = told
        assert read_moves(client, wanted) == dict.fromkeys(MOVING.intersection(wanted), MOVES)
        assert read_moves(client) == dict.fromkeys(MOVING, MOVES)
        some, every = [request.topics for name, _, request in broker.asked if name == listing.API.name]
    named = None if some is None else {TopicPartition(t.topic, p) for t in some for p in t.partitions}
    assert (named, every) == (set(wanted) if count <= NAMED_AT_MOST else None, None)
