"""FindCoordinator (key 10), versions 0-4: the broker that coordinates a group or a transactional id (BRK-164, TXN-2)."""

from kafkatool.broker.handlers.authorization import REFUSALS, Each, NotPermittedError, Resource
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import (
    API,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)

_GROUP, _TRANSACTION = 0, 1
_SEVERAL_KEYS = 4


def _may_describe(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorRequest:
    kind = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}.get(request.key_type)
    if kind is None:
        return request
    if call.header.api_version >= _SEVERAL_KEYS:
        _, text = REFUSALS[kind]
        allowed: FindCoordinatorRequest = Each("keys", lambda key: Resource(Operation.DESCRIBE, kind, key, text))(
            request, call
        )
        return allowed
    if not call.allows(Operation.DESCRIBE, kind, request.key):
        raise NotPermittedError(kind, with_text=True)
    return request


@Served(API, versions=(0, 4), asks=(_may_describe,))
def handle(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """Answer for each key; the first that finds no topic has it made."""
    if call.header.api_version >= _SEVERAL_KEYS:
        coordinators = [_find(key, request.key_type, call) for key in dict.fromkeys(request.keys)]
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(request.key, request.key_type, call)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key: str, key_type: int, call: Call) -> FoundCoordinator:
    context = call.context
    topics = context.metadata_cache.snapshot.partitions
    if key_type == _GROUP:
        if OFFSETS_TOPIC not in topics:
            context.topic_admin.create_internal_offsets_topic()
            return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = TopicPartition(OFFSETS_TOPIC, context.groups.partition_of(key))
    elif key_type == _TRANSACTION:
        if not key:
            return _error(key, ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        if TRANSACTION_TOPIC not in topics:
            context.topic_admin.create_transaction_topic()
            return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = TopicPartition(TRANSACTION_TOPIC, context.transactions.partition_of(key))
    else:
        return _error(key, ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    leader = context.metadata_cache.leader_endpoint(partition, call.listener)
    if leader is None:
        return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker_id, endpoint = leader
    return FoundCoordinator(key=key, node_id=broker_id, host=endpoint.host, port=endpoint.port)


def _error(key: str, code: ErrorCode, message: str | None = None) -> FoundCoordinator:
    return FoundCoordinator(key=key, error_code=code, error_message=message or code.name)
