"""Metadata (key 3), versions 0-11: brokers, controller and partitions, as the controller told this broker.

BRK-114 to 118, 165, 166. Endpoints are those of the listener the request came in on. Brokers and controller are told to
everybody, topics to who may describe them (SEC-84).
"""

from collections.abc import Iterable, Iterator, Sequence

from kafkatool.broker.handlers.authorization import (
    NOT_ASKED_FOR,
    by_handler,
    cluster_operations,
    may_create_topic,
    operations_on,
)
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.limits import Limit
from kafkatool.broker.metadata_cache import MetadataSnapshot
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import metadata as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition


@Served(wire.API, versions=(0, 11), asks=(by_handler,), throttled_at_once_from=6)
def handle(request: wire.MetadataRequest, call: Call) -> wire.MetadataResponse:
    """Describe the cluster and the topics; unknown ones are created first, where that is allowed."""
    context, version = call.context, call.header.api_version
    snapshot = context.metadata_cache.snapshot
    reachable = {broker.id for broker in snapshot.brokers.values() if broker.endpoint(call.listener)}

    may_create = iter(range(context.config.kt_max_auto_created_topics_per_request))

    def is_shown(name: str, *, asked: bool) -> bool:
        return call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, asked=asked)

    def describe(name: str) -> wire.MetadataResponseTopic:
        if named and not is_shown(name, asked=True):  # also where there is no such topic: that is not told either
            return wire.MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=name, is_internal=False, partitions=[]
            )
        states = snapshot.partitions.get(name, {})
        return wire.MetadataResponseTopic(
            error_code=ErrorCode.NONE if name in snapshot.partitions else _created(name, request, call, may_create),
            topic=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[_partition(states[p], snapshot, reachable, version) for p in sorted(states)],
            topic_authorized_operations=(
                operations_on(call, ResourceType.TOPIC, name)
                if request.include_topic_authorized_operations
                else NOT_ASKED_FOR
            ),
        )

    wanted: Iterable[str] = snapshot.partitions
    named = bool(request.topics or (request.topics is not None and version > 0))
    if named:
        wanted = dict.fromkeys(t.topic for t in request.topics or () if t.topic is not None and t.topic_id == NO_UUID)
    elif context.authorizer is not None:
        wanted = [name for name in wanted if is_shown(name, asked=False)]
    return wire.MetadataResponse(
        brokers=[
            wire.MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in snapshot.brokers.values()
            if (endpoint := broker.endpoint(call.listener))
        ],
        cluster_id=context.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        topics=[
            *(describe(name) for name in wanted),
            *(_unknown_id(t) for t in request.topics or () if t.topic is None or t.topic_id != NO_UUID),
        ],
        cluster_authorized_operations=cluster_operations(call, asked_for=request.include_cluster_authorized_operations),
    )


def _unknown_id(asked: wire.MetadataRequestTopic) -> wire.MetadataResponseTopic:
    """Answer who asks by an id: no topic has one here (ADM-85)."""
    return wire.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic=asked.topic or "", topic_id=asked.topic_id, partitions=[]
    )


def _created(name: str, request: wire.MetadataRequest, call: Call, may_create: Iterator[int]) -> ErrorCode:
    """Create a missing topic if that is allowed; return the code to answer for it (BRK-118, 166).

    ``may_create`` yields once for each topic that this request may make; more are made when it is asked again (SEC-100).
    """
    if name in INTERNAL_TOPICS:
        return call.context.topic_admin.create_internal(name)
    allowed = call.header.api_version < 4 or request.allow_auto_topic_creation
    if allowed and call.context.config.auto_create_topics_enable:
        if not may_create_topic(name, call):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if next(may_create, None) is None:
            call.context.limits.reached(Limit.TOPICS_BY_METADATA, call.principal, key=call.principal)
            return ErrorCode.LEADER_NOT_AVAILABLE
        return call.context.topic_admin.auto_create(name, call.principal)
    return call.context.topic_admin.unknown_topic_code(name)


def _partition(
    state: UpdateMetadataPartition, snapshot: MetadataSnapshot, reachable: set[int], version: int
) -> wire.MetadataResponsePartition:
    code, leader = ErrorCode.NONE, state.leader
    replicas: Sequence[int] = state.replicas
    isr: Sequence[int] = state.isr
    if leader not in reachable:
        # A live broker without this listener: clients up to version 5 do not know the exact code (BRK-115).
        lacks_listener = version >= 6 and leader in snapshot.brokers
        code, leader = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE, -1
    if version == 0 and not reachable.issuperset(replicas):
        replicas, isr = [r for r in replicas if r in reachable], [r for r in isr if r in reachable]
        code = code or ErrorCode.REPLICA_NOT_AVAILABLE
    return wire.MetadataResponsePartition(
        error_code=code,
        partition=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=state.offline_replicas,
    )
