"""Produce (key 0), versions 0-9: append record batches (BRK-82 to 91, 158), below 3 message sets (ADM-90, 91).

The first batch of a transaction waits for a word of its coordinator (TXN-72); transactional_id is for that alone.
Message sets become batches on the thread of ``Conversions``; their clients do not know INVALID_RECORD. The topic
admin client's right to write internal topics is by client id, as in Kafka.
"""

import contextlib

from kafkatool.broker.handlers.authorization import NotPermittedError, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.network.client_quotas import PRODUCE
from kafkatool.broker.replication.leading.appends import KNOWN_ACKS, WritableBuffer
from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.acls import Operation, ResourceType
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
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, BatchHeader, read_header

_KNOWS_BATCHES = 3
_ADMIN_CLIENT_ID = "__admin_client"
_KNOWS_STORAGE_ERROR = 4
_KNOWS_ZSTD = 7
_ATTRIBUTES_LOW_BYTE = 22  # of a v2 batch
_CODEC_MASK, _ZSTD, _TRANSACTIONAL = 0x07, 4, 0x10

_NO_BATCH = AppendResult(ErrorCode.CORRUPT_MESSAGE, message="there is no record batch")
_TWICE = AppendResult(ErrorCode.INVALID_REQUEST, message="the partition is listed twice")
_NO_TRANSACTIONAL_ID = AppendResult(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message="a transactional batch, and no transactional id"
)
_SEVERAL_PRODUCERS = AppendResult(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, message="transactional batches of more than one producer"
)
_ZSTD_UNKNOWN = AppendResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message="zstd needs Produce version 7")


def _may_write_transaction(request: ProduceRequest, call: Call) -> ProduceRequest:
    """Ask Write on the transactional id where a batch belongs to a transaction; the id alone asks nothing (SEC-84)."""
    if call.header.api_version < _KNOWS_BATCHES:
        return request
    batches = (partition.records for topic in request.topics for partition in topic.partitions)
    if any(records and _is_transactional(records) for records in batches):
        name = request.transactional_id
        if name is None or not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            raise NotPermittedError(ResourceType.TRANSACTIONAL_ID)
    return request


@Served(
    API,
    versions=(0, 9),
    asks=(_may_write_transaction, topics(Operation.WRITE)),
    quick=True,
    throttled_at_once_from=6,
    charge=lambda _request, call, size_bytes: call.charge(PRODUCE, size_bytes),
    expects_answer=lambda request: request.acks != 0,
)
def handle(request: ProduceRequest, call: Call) -> None:
    """Append, and answer when the replicas that ``acks`` asks for have it, or not at all (acks 0).

    A Produce names no leader epoch: who does not lead refuses it (``Partition.append_as_leader``).
    """
    version = call.header.api_version
    message_sets = version < _KNOWS_BATCHES
    entries: dict[TopicPartition, WritableBuffer] = {}
    transactional: dict[TopicPartition, BatchHeader] = {}
    refused: dict[TopicPartition, AppendResult] = {}
    for topic in request.topics:
        name = topic.topic
        for partition in topic.partitions:
            records, tp = partition.records, TopicPartition(name, partition.partition)
            if request.acks not in KNOWN_ACKS:  # told for each, whatever else is wrong with it (BRK-82)
                entries[tp] = bytearray()
            elif tp in entries or tp in refused:  # of two batches one would be acknowledged and not written
                entries.pop(tp, None)
                refused[tp] = _TWICE
            elif not records:
                refused[tp] = _NO_BATCH
            elif message_sets:
                entries[tp] = bytearray(records) if isinstance(records, bytes) else records
            elif version < _KNOWS_ZSTD and _is_zstd(records):
                refused[tp] = _ZSTD_UNKNOWN
            else:
                # decoded ones are views, writable
                entries[tp] = bytearray(records) if isinstance(records, bytes) else records
                if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL:
                    with contextlib.suppress(CorruptRecordsError):  # the log refuses it
                        if (header := read_header(records)) is not None and header.producer_id >= 0:
                            transactional[tp] = header

    def done(results: AppendResults) -> None:
        if refused:
            results = {**results, **refused}
        if request.acks:
            call.respond(_response(request, results, version))
        elif any(result.error is not ErrorCode.NONE for result in results.values()):
            call.close()  # the only way to tell a client that waits for no answer
        else:
            call.no_response()

    manager = call.context.replica_manager
    timeout_ms = call.patience_ms(request.timeout_ms)
    privileged = call.header.client_id == _ADMIN_CLIENT_ID
    if message_sets:
        manager.conversions.submit(
            lambda: manager.appends.append(
                entries,
                acks=request.acks,
                timeout_ms=timeout_ms,
                allow_internal_topics=privileged,
                message_sets=True,
                on_done=done,
            )
        )
    elif transactional and (id_ := _transactional_id(request, transactional, entries, refused)) is not None:
        manager.verified_appends.append(
            entries,
            transactional,
            id_,
            acks=request.acks,
            timeout_ms=timeout_ms,
            allow_internal_topics=privileged,
            on_done=done,
        )
    else:
        manager.appends.append(
            entries, acks=request.acks, timeout_ms=timeout_ms, allow_internal_topics=privileged, on_done=done
        )


def _transactional_id(
    request: ProduceRequest,
    transactional: dict[TopicPartition, BatchHeader],
    entries: dict[TopicPartition, WritableBuffer],
    refused: dict[TopicPartition, AppendResult],
) -> str | None:
    """Return the id if the batches may be of one transaction; else put what cannot be among the refused (TXN-71)."""
    if request.transactional_id is None:
        refused.update(dict.fromkeys(entries, _NO_TRANSACTIONAL_ID))
        entries.clear()
    elif len({(header.producer_id, header.producer_epoch) for header in transactional.values()}) > 1:
        for tp in transactional:
            del entries[tp]
            refused[tp] = _SEVERAL_PRODUCERS
    else:
        return request.transactional_id
    return None


def _is_transactional(records: Buffer) -> bool:
    return len(records) > _ATTRIBUTES_LOW_BYTE and bool(records[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL)


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
            elif error is ErrorCode.INVALID_RECORD and version < _KNOWS_BATCHES:
                error = ErrorCode.CORRUPT_MESSAGE
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
