"""ElectLeaders (key 43), versions 0-2: answered by the active controller alone (ADM-61 to 63; KIP-183, KIP-460).

A partition counts as elected when this broker's metadata shows its new leader; when that takes longer than the request
allows, its answer is REQUEST_TIMED_OUT though the election holds.
"""

from collections.abc import Iterable, Mapping

from kafkatool.broker.controller.elected import Elected
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.metadata_cache import MetadataSnapshot
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import elect_leaders as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NOT_CONTROLLER = Elected(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
_FAILED = Elected(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed at it, and may have elected: see its log.")
_NO_SUCH_TYPE = Elected(ErrorCode.INVALID_REQUEST, "there is no election of that type")
_TIMED_OUT = Elected(ErrorCode.REQUEST_TIMED_OUT, "elected, but this broker has not heard of the new leader yet")


@Served(wire.API, versions=(0, 2), asks=(cluster(Operation.ALTER),))
def handle(request: wire.ElectLeadersRequest, call: Call) -> wire.ElectLeadersResponse | None:
    """Have the controller elect, then wait for its word."""
    wanted = None
    if request.topics is not None:
        wanted = list(dict.fromkeys(TopicPartition(t.topic, p) for t in request.topics for p in t.partitions))
    if request.election_type not in (wire.PREFERRED, wire.UNCLEAN):
        return _refused(wanted, _NO_SUCH_TYPE)

    def elected(outcomes: Mapping[TopicPartition, Elected] | ErrorCode) -> None:
        # The controller's thread goes on with its next event: the answer may be large.
        call.context.timer.add(0, lambda: _answer(wanted, outcomes, request.timeout_ms, call))

    call.context.controller.elect_leaders(wanted, unclean=request.election_type == wire.UNCLEAN, done=elected)
    return None


def _answer(
    wanted: Iterable[TopicPartition] | None,
    outcomes: Mapping[TopicPartition, Elected] | ErrorCode,
    timeout_ms: int,
    call: Call,
) -> None:
    if isinstance(outcomes, ErrorCode):
        call.respond(_refused(wanted, _NOT_CONTROLLER if outcomes is ErrorCode.NOT_CONTROLLER else _FAILED))
        return
    leaders = {p: outcome.leader for p, outcome in outcomes.items() if outcome.error is ErrorCode.NONE}

    def is_known(snapshot: MetadataSnapshot, partition: TopicPartition) -> bool:
        state = snapshot.partition(partition)
        return state is not None and state.leader == leaders[partition]

    def answer(pending: set[TopicPartition]) -> None:
        call.respond(_response({**outcomes, **dict.fromkeys(pending, _TIMED_OUT)}))

    call.context.topic_admin.waiting.wait(leaders, is_known, call.patience_ms(timeout_ms), answer)


def _refused(wanted: Iterable[TopicPartition] | None, why: Elected) -> wire.ElectLeadersResponse:
    """Say it at the top, which version 0 does not have, and of each partition named."""
    return _response(dict.fromkeys(wanted or (), why), why.error)


def _response(
    outcomes: Mapping[TopicPartition, Elected], error: ErrorCode = ErrorCode.NONE
) -> wire.ElectLeadersResponse:
    topics: dict[str, list[wire.ElectLeadersResponsePartition]] = {}
    for partition, outcome in outcomes.items():
        one = wire.ElectLeadersResponsePartition(
            partition=partition.partition, error_code=outcome.error, error_message=outcome.message
        )
        topics.setdefault(partition.topic, []).append(one)
    return wire.ElectLeadersResponse(
        error_code=error,
        topics=[wire.ElectLeadersResponseTopic(topic=t, partitions=found) for t, found in topics.items()],
    )
