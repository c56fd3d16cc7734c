"""Metadata (key 3), versions 0-9: brokers, controller and partitions, as the controller told this broker.

BRK-114 to 118, 165, 166. Endpoints are those of the listener the request came in on. Not served: ACLs; a client that
asks for authorized operations is told all of them.
"""

from collections.abc import Sequence

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.broker.metadata_cache import MetadataSnapshot
from kafkatool.core.model.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import (
    API,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition

NOT_ASKED_FOR = -(2**31)
_TOPIC_OPERATIONS, CLUSTER_OPERATIONS = 3576, 8096  # bits of all operations that exist for the kind (BRK-165)


def handle(request: MetadataRequest, call: Call) -> MetadataResponse:
    """Describe the cluster and the topics; unknown ones are created first, where that is allowed."""
    context, version = call.context, call.header.api_version
    snapshot = context.metadata_cache.snapshot
    operations = _TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED_FOR
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_topic(snapshot, name, call, operations) for name in snapshot.partitions]
    else:
        names = dict.fromkeys(t.topic for t in request.topics)
        topics = [
            _topic(snapshot, name, call, operations)
            if name in snapshot.partitions
            else _unknown(name, _created(name, request, call), operations)
            for name in names
        ]
    cluster_operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
    return MetadataResponse(
        brokers=_brokers(snapshot, call.listener),
        cluster_id=context.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _brokers(snapshot: MetadataSnapshot, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in snapshot.brokers.values()
        if (endpoint := broker.endpoint(listener))
    ]


def _created(name: str, request: MetadataRequest, call: Call) -> ErrorCode:
    """Create a missing topic if that is allowed; return the code to answer for it (BRK-118, 166)."""
    if name == OFFSETS_TOPIC:
        return call.context.topic_admin.create_internal_offsets_topic()
    allowed = call.header.api_version < 4 or request.allow_auto_topic_creation
    if allowed and call.context.config.auto_create_topics_enable:
        return call.context.topic_admin.auto_create(name)
    return call.context.topic_admin.unknown_topic_code(name)


def _unknown(name: str, code: ErrorCode, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        topic=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _topic(snapshot: MetadataSnapshot, name: str, call: Call, operations: int) -> MetadataResponseTopic:
    version, listener = call.header.api_version, call.listener
    reachable = {broker.id for broker in snapshot.brokers.values() if broker.endpoint(listener)}
    states = snapshot.partitions[name]
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        topic=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(states[p], snapshot, reachable, version) for p in sorted(states)],
        topic_authorized_operations=operations,
    )


def _partition(
    state: UpdateMetadataPartition, snapshot: MetadataSnapshot, reachable: set[int], version: int
) -> MetadataResponsePartition:
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
    return MetadataResponsePartition(
        error_code=code,
        partition=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=state.offline_replicas,
    )


SERVED = Served(api=API, versions=(0, 9), handle=handle, throttled_at_once_from=6)
