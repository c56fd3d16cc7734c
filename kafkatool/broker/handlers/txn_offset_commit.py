"""TxnOffsetCommit (key 28), versions 0-3: offsets that count if the transaction commits (TXN-82, 83; KIP-98, KIP-447)."""

import time
from collections.abc import Mapping

from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.broker.handlers.authorization import group, topics, transactional_id
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.offset_commit import is_too_long
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import txn_offset_commit as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_KNOWS_LOADING = 2  # clients of the versions below die of 14


@Served(
    wire.API,
    versions=(0, 3),
    asks=(
        transactional_id(Operation.WRITE),
        group(Operation.READ),
        topics(Operation.READ),
    ),
)
def handle(request: wire.TxnOffsetCommitRequest, call: Call) -> wire.TxnOffsetCommitResponse | None:
    """Answer when the commits are replicated; they come in force with the marker."""
    context = call.context
    codes: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, OffsetToCommit] = {}
    now_ms = int(time.time() * 1000)
    for topic in request.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.topic, p.partition)
            if context.metadata_cache.contains(partition):
                wanted[partition] = _to_commit(p, now_ms, context.config.offset_metadata_max_bytes)
            else:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def answer(stored: Mapping[TopicPartition, ErrorCode]) -> None:
        if call.header.api_version < _KNOWS_LOADING:
            stored = {
                p: ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
                for p, code in stored.items()
            }
        call.respond(_response(request, {**codes, **stored}))

    if not wanted:
        return _response(request, codes)
    context.groups.commit_in_transaction(
        request.group_id,
        TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        wanted,
        answer,
    )
    return None


def _to_commit(p: wire.TxnOffsetCommitRequestPartition, now_ms: int, limit: int) -> OffsetToCommit:
    metadata = p.committed_metadata or ""
    value = OffsetValue(
        offset=p.committed_offset,
        leader_epoch=None if p.committed_leader_epoch < 0 else p.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=None,
    )
    return OffsetToCommit(value, is_too_long(metadata, limit))


def _response(
    request: wire.TxnOffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> wire.TxnOffsetCommitResponse:
    return wire.TxnOffsetCommitResponse(
        topics=[
            wire.TxnOffsetCommitResponseTopic(
                topic=t.topic,
                partitions=[
                    wire.TxnOffsetCommitResponsePartition(
                        partition=p.partition, error_code=codes[TopicPartition(t.topic, p.partition)]
                    )
                    for p in t.partitions
                ],
            )
            for t in request.topics
        ]
    )
