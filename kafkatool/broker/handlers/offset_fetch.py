"""OffsetFetch (key 9), versions 0-7: how far a group has read (GRP-56, 57, TXN-87). Version 0: offsets in ZooKeeper."""

from collections.abc import Callable
from itertools import groupby

from kafkatool.broker.groups import zookeeper_offsets
from kafkatool.broker.handlers.authorization import group, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.offset_fetch import (
    API,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


@Served(API, versions=(0, 7), asks=(group(Operation.DESCRIBE), topics(Operation.DESCRIBE)), quick=True)
def handle(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse | None:
    asked: list[TopicPartition] | None = None
    if request.topics is not None:  # each once: its metadata is a thousand times what it takes to name it
        asked = list(dict.fromkeys(TopicPartition(t.topic, p) for t in request.topics for p in t.partitions))
    if call.header.api_version == 0:
        # This handler's thread is one that others rely on not to wait for ZooKeeper.
        call.context.groups.in_background(lambda: call.respond(_from_zookeeper(request.group_id, asked or [], call)))
        return None
    fetched = call.context.groups.fetch_offsets(request.group_id, asked, stable=request.require_stable)
    listed = sorted(fetched.offsets) if asked is None else asked
    if asked is None and call.context.authorizer is not None:
        shown = {topic for topic in {p.topic for p in listed} if _may_describe(topic, call)}
        listed = [partition for partition in listed if partition.topic in shown]

    def answer(partition: TopicPartition) -> OffsetFetchResponsePartition:
        value = fetched.offsets.get(partition)
        if partition in fetched.unstable:
            return OffsetFetchResponsePartition(
                partition=partition.partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
        if value is None:
            return OffsetFetchResponsePartition(partition=partition.partition, error_code=fetched.error)
        return OffsetFetchResponsePartition(
            partition=partition.partition,
            committed_offset=value.offset,
            committed_leader_epoch=-1 if value.leader_epoch is None else value.leader_epoch,
            metadata=value.metadata,
            error_code=ErrorCode.NONE,
        )

    return _response(listed, answer, fetched.error)


def _may_describe(topic: str, call: Call) -> bool:
    return call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, asked=False)


def _response(
    partitions: list[TopicPartition],
    answer: Callable[[TopicPartition], OffsetFetchResponsePartition],
    error: ErrorCode = ErrorCode.NONE,
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(topic=topic, partitions=[answer(p) for p in of_topic])
            for topic, of_topic in groupby(partitions, key=lambda p: p.topic)
        ],
        error_code=error,
    )


def _from_zookeeper(group: str, partitions: list[TopicPartition], call: Call) -> OffsetFetchResponse:
    known = [p for p in partitions if call.context.metadata_cache.contains(p)]
    found = zookeeper_offsets.fetch(call.context.zookeeper, group, known)

    def answer(partition: TopicPartition) -> OffsetFetchResponsePartition:
        offset, code = found.get(partition, (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return OffsetFetchResponsePartition(partition=partition.partition, committed_offset=offset, error_code=code)

    return _response(partitions, answer)
