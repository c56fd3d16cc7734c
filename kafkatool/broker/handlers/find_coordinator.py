"""FindCoordinator (key 10), versions 0-2: which broker coordinates a group (BRK-164, GRP-1 to 5).

Not served: transaction coordinators; asked for one without a ``__transaction_state`` topic the answer is 53, so that a
transactional producer fails at once instead of asking for ever.
"""

from kafkatool.broker.groups.ownership import partition_for
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import API, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1


def handle(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    context = call.context
    if request.key_type == _GROUP:
        if OFFSETS_TOPIC not in context.metadata_cache.snapshot.partitions:
            context.topic_admin.create_internal_offsets_topic()
            return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = TopicPartition(OFFSETS_TOPIC, context.groups.partition_of(request.key))
    elif request.key_type == _TRANSACTION:
        count = len(context.metadata_cache.snapshot.partitions.get(TRANSACTION_TOPIC, ()))
        if not count:
            return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served")
        partition = TopicPartition(TRANSACTION_TOPIC, partition_for(request.key, count))
    else:
        return _error(ErrorCode.INVALID_REQUEST, f"unknown key type {request.key_type}")
    leader = context.metadata_cache.leader_endpoint(partition, call.listener)
    if leader is None:
        return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker_id, endpoint = leader
    return FindCoordinatorResponse(node_id=broker_id, host=endpoint.host, port=endpoint.port)


def _error(code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=message or code.name)


SERVED = Served(api=API, versions=(0, 2), handle=handle)
