"""OffsetCommit (key 8), versions 0-8: remember how far a group has read (GRP-46 to 52). Version 0 does so in ZooKeeper."""

import time
from collections.abc import Mapping

from kafkatool.broker.groups import zookeeper_offsets
from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.handlers.authorization import group, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import offset_commit as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_FOREVER = 2**63 - 1  # what the stored time can hold


@Served(wire.API, versions=(0, 8), asks=(group(Operation.READ), topics(Operation.READ)))
def handle(request: wire.OffsetCommitRequest, call: Call) -> wire.OffsetCommitResponse | None:
    codes: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, OffsetToCommit] = {}
    context = call.context
    static_refused = request.group_instance_id is not None and not context.groups.static_members_allowed
    now_ms = int(time.time() * 1000)
    for topic in request.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.topic, p.partition)
            if static_refused:
                codes[partition] = ErrorCode.UNSUPPORTED_VERSION
            elif not context.metadata_cache.contains(partition):
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted[partition] = _to_commit(request, p, now_ms, context.config.offset_metadata_max_bytes)

    def answer(stored: Mapping[TopicPartition, ErrorCode]) -> None:
        call.respond(_response(request, {**codes, **stored}))

    if not wanted:
        return _response(request, codes)
    if call.header.api_version == 0:
        codes |= {p: ErrorCode.OFFSET_METADATA_TOO_LARGE for p, o in wanted.items() if o.metadata_too_large}
        offsets = {p: o.value.offset for p, o in wanted.items() if not o.metadata_too_large}
        return _response(request, {**codes, **zookeeper_offsets.store(context.zookeeper, request.group_id, offsets)})
    context.groups.commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, wanted, answer
    )
    return None


def _to_commit(
    request: wire.OffsetCommitRequest, p: wire.OffsetCommitRequestPartition, now_ms: int, limit: int
) -> OffsetToCommit:
    metadata = p.committed_metadata or ""
    value = OffsetValue(
        offset=p.committed_offset,
        leader_epoch=None if p.committed_leader_epoch < 0 else p.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=now_ms if p.commit_timestamp == -1 else p.commit_timestamp,
        expire_timestamp_ms=None
        if request.retention_time_ms == -1
        else min(now_ms + request.retention_time_ms, _FOREVER),
    )
    return OffsetToCommit(value, is_too_long(metadata, limit))


def is_too_long(metadata: str, limit: int) -> bool:
    """Tell whether it has more than so many characters as Java counts them."""
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


def _response(
    request: wire.OffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> wire.OffsetCommitResponse:
    return wire.OffsetCommitResponse(
        topics=[
            wire.OffsetCommitResponseTopic(
                topic=t.topic,
                partitions=[
                    wire.OffsetCommitResponsePartition(
                        partition=p.partition, error_code=codes[TopicPartition(t.topic, p.partition)]
                    )
                    for p in t.partitions
                ],
            )
            for t in request.topics
        ]
    )
