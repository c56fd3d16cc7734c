"""Produce (key 0), versions 3-8: append record batches (BRK-82 to 91, 155, 158).

Left out: transactions. A batch with the transactional bit is refused (TXN-73), a transactional_id is not looked at.
Versions 0-2 are announced but refused before they come here. The topic admin client's right to write internal topics is
by client id, as in Kafka.
"""

from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.network.client_quotas import PRODUCE
from kafkatool.broker.replication.leading.appends import WritableBuffer
from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.produce import (
    API,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)

_ADMIN_CLIENT_ID = "__admin_client"
_KNOWS_STORAGE_ERROR = 4
_KNOWS_ZSTD = 7
_ATTRIBUTES_LOW_BYTE = 22  # of a v2 batch
_CODEC_MASK, _ZSTD = 0x07, 4

_NO_BATCH = AppendResult(ErrorCode.CORRUPT_MESSAGE, message="there is no record batch")
_TWICE = AppendResult(ErrorCode.INVALID_REQUEST, message="the partition is listed twice")
_ZSTD_UNKNOWN = AppendResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message="zstd needs Produce version 7")


@Served(
    API,
    versions=(3, 8),
    quick=True,
    announced_from=0,
    throttled_at_once_from=6,
    charge=lambda _request, call, size_bytes: call.charge(PRODUCE, size_bytes),
    expects_answer=lambda request: request.acks != 0,
)
def handle(request: ProduceRequest, call: Call) -> None:
    """Append, and answer when the replicas that ``acks`` asks for have it, or not at all (acks 0).

    A Produce names no leader epoch: who does not lead refuses it (``Partition.append_as_leader``).
    """
    version = call.header.api_version
    entries: dict[TopicPartition, WritableBuffer] = {}
    refused: dict[TopicPartition, AppendResult] = {}
    for topic in request.topics:
        name = topic.topic
        for partition in topic.partitions:
            records, tp = partition.records, TopicPartition(name, partition.partition)
            if tp in entries or tp in refused:  # of two batches one would be acknowledged and not written
                entries.pop(tp, None)
                refused[tp] = _TWICE
            elif not records:
                refused[tp] = _NO_BATCH
            elif version < _KNOWS_ZSTD and _is_zstd(records):
                refused[tp] = _ZSTD_UNKNOWN
            else:
                # decoded ones are views, writable
                entries[tp] = bytearray(records) if isinstance(records, bytes) else records

    def done(results: AppendResults) -> None:
        if refused:
            results = {**results, **refused}
        if request.acks:
            call.respond(_response(request, results, version))
        elif any(result.error is not ErrorCode.NONE for result in results.values()):
            call.close()  # the only way to tell a client that waits for no answer
        else:
            call.no_response()

    call.context.replica_manager.appends.append(
        entries,
        acks=request.acks,
        timeout_ms=call.patience_ms(request.timeout_ms),
        allow_internal_topics=call.header.client_id == _ADMIN_CLIENT_ID,
        on_done=done,
    )


def _is_zstd(records: Buffer) -> bool:
    return len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK == _ZSTD


def _response(request: ProduceRequest, results: AppendResults, version: int) -> ProduceResponse:
    topics = []
    for topic in request.topics:
        name = topic.topic
        partitions = []
        for partition in topic.partitions:
            result = results[TopicPartition(name, partition.partition)]
            error = result.error
            if error is ErrorCode.KAFKA_STORAGE_ERROR and version < _KNOWS_STORAGE_ERROR:
                error = ErrorCode.NOT_LEADER_FOR_PARTITION
            partitions.append(
                ProduceResponsePartition(
                    partition=partition.partition,
                    error_code=error,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                    record_errors=[ProduceRecordError(batch_index=i, message=why) for i, why in result.record_errors],
                    error_message=result.message,
                )
            )
        topics.append(ProduceResponseTopic(topic=name, partitions=partitions))
    return ProduceResponse(topics=topics)
