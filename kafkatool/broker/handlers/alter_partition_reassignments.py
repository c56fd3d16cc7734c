"""AlterPartitionReassignments (key 45), versions 0-1: moves of replicas, by the active controller (ADM-61, 64; KIP-455).

The answer says that the moves are stored, in ``/brokers/topics``, not that any data is copied.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from kafkatool.broker.controller.moves import MoveOutcome
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import alter_partition_reassignments as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NOT_CONTROLLER = MoveOutcome(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
_FAILED = MoveOutcome(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed at it, and may have stored it: see its log."
)
_STORED = MoveOutcome()
_TWICE = MoveOutcome(ErrorCode.INVALID_REQUEST, "The partition is named twice.")


@Served(wire.API, versions=(0, 1), asks=(cluster(Operation.ALTER),))
def handle(request: wire.AlterPartitionReassignmentsRequest, call: Call) -> None:
    """Have the controller store the moves; of a partition named twice it cannot be known which is meant."""
    named = [(TopicPartition(t.topic, p.partition), p.replicas) for t in request.topics for p in t.partitions]
    wanted = {p: None if replicas is None else tuple(replicas) for p, replicas in named}
    refused = {p: _TWICE for p, times in Counter(p for p, _ in named).items() if times > 1}

    def stored(outcomes: Mapping[TopicPartition, MoveOutcome] | ErrorCode) -> None:
        # The controller's thread goes on with its next event: the answer may be large.
        if isinstance(outcomes, ErrorCode):
            answer = _refused(wanted, outcomes)
        else:
            answer = _response({**outcomes, **refused})
        call.context.timer.add(0, lambda: call.respond(answer))

    call.context.controller.alter_moves(
        {p: replicas for p, replicas in wanted.items() if p not in refused},
        may_change_factor=request.allow_replication_factor_change,
        done=stored,
    )


def _refused(partitions: Iterable[TopicPartition], code: ErrorCode) -> wire.AlterPartitionReassignmentsResponse:
    why = _NOT_CONTROLLER if code is ErrorCode.NOT_CONTROLLER else _FAILED
    return _response(dict.fromkeys(partitions, why), why)


def _response(
    outcomes: Mapping[TopicPartition, MoveOutcome], of_all: MoveOutcome = _STORED
) -> wire.AlterPartitionReassignmentsResponse:
    topics: dict[str, list[wire.PartitionMoveResult]] = {}
    for partition, (error, message) in outcomes.items():
        one = wire.PartitionMoveResult(partition=partition.partition, error_code=error, error_message=message)
        topics.setdefault(partition.topic, []).append(one)
    return wire.AlterPartitionReassignmentsResponse(
        error_code=of_all.error,
        error_message=of_all.message,
        topics=[wire.TopicMoveResults(topic=t, partitions=found) for t, found in topics.items()],
    )
