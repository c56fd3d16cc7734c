"""ListOffsets (key 2), versions 1-5: the offset that belongs to a time, or to one end of the log (BRK-107, 108)."""

from collections import Counter

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.broker.replication.partition.partition_reads import READ_COMMITTED, FoundOffset, Reader
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.list_offsets import (
    API,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

_TWICE = FoundOffset(ErrorCode.INVALID_REQUEST)


def handle(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """Answer for each partition by itself; one listed twice is refused."""
    manager = call.context.replica_manager
    version = call.header.api_version
    reader = Reader(request.replica_id, request.isolation_level == READ_COMMITTED)
    listed = Counter((t.topic, p.partition) for t in request.topics for p in t.partitions)
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            partition = TopicPartition(topic.topic, wanted.partition)
            found = _TWICE if listed[partition] > 1 else manager.find_offset(partition, wanted, reader, version)
            partitions.append(
                ListOffsetsResponsePartition(
                    partition=wanted.partition,
                    error_code=found.error,
                    timestamp=found.timestamp_ms,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                )
            )
        topics.append(ListOffsetsResponseTopic(topic=topic.topic, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


SERVED = Served(api=API, versions=(1, 5), handle=handle, quick=True, throttled_at_once_from=3)
