"""ListPartitionReassignments (key 46), version 0: what is being moved, by the active controller (ADM-61, 66; KIP-455)."""

from kafkatool.broker.controller.moves import OngoingMoves
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import list_partition_reassignments as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NO_LONGER = "This is not the correct controller for this cluster."
_FAILED = "The controller failed at it: see its log."


@Served(wire.API, versions=(0, 0), asks=(cluster(Operation.DESCRIBE),))
def handle(request: wire.ListPartitionReassignmentsRequest, call: Call) -> None:
    """Have the controller tell which of them move; the others are left out without error."""
    wanted = None
    if request.topics is not None:
        wanted = list(dict.fromkeys(TopicPartition(t.topic, p) for t in request.topics for p in t.partitions))

    def told(moves: OngoingMoves | ErrorCode) -> None:
        # The controller's thread goes on with its next event: the answer may be large.
        call.context.timer.add(0, lambda: call.respond(_response(moves)))

    call.context.controller.list_moves(wanted, told)


def _response(moves: OngoingMoves | ErrorCode) -> wire.ListPartitionReassignmentsResponse:
    if isinstance(moves, ErrorCode):
        message = _NO_LONGER if moves is ErrorCode.NOT_CONTROLLER else _FAILED
        return wire.ListPartitionReassignmentsResponse(error_code=moves, error_message=message, topics=[])
    topics: dict[str, list[wire.OngoingPartition]] = {}
    for (topic, number), move in moves.items():
        one = wire.OngoingPartition(
            partition=number,
            replicas=list(move.replicas),
            adding_replicas=list(move.adding),
            removing_replicas=list(move.removing),
        )
        topics.setdefault(topic, []).append(one)
    return wire.ListPartitionReassignmentsResponse(
        topics=[wire.OngoingTopic(topic=t, partitions=found) for t, found in topics.items()]
    )
