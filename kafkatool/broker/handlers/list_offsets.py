"""ListOffsets (key 2), versions 0-7: the offset that belongs to a time, or to one end of the log (BRK-107, 108).

Version 0 asks for where segments begin instead (ADM-96).
"""

from collections import Counter

from kafkatool.broker.handlers.authorization import topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.replication.partition.partition_reads import READ_COMMITTED, FoundOffset, Reader
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import list_offsets as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_TWICE = FoundOffset(ErrorCode.INVALID_REQUEST)


@Served(wire.API, versions=(0, 7), asks=(topics(Operation.DESCRIBE),), quick=True, throttled_at_once_from=3)
def handle(request: wire.ListOffsetsRequest, call: Call) -> wire.ListOffsetsResponse:
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
            if version == 0:
                partitions.append(_segments(manager, partition, wanted, reader, listed[partition] > 1))
                continue
            found = _TWICE if listed[partition] > 1 else manager.find_offset(partition, wanted, reader, version)
            partitions.append(
                wire.ListOffsetsResponsePartition(
                    partition=wanted.partition,
                    error_code=found.error,
                    timestamp=found.timestamp_ms,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                )
            )
        topics.append(wire.ListOffsetsResponseTopic(topic=topic.topic, partitions=partitions))
    return wire.ListOffsetsResponse(topics=topics)


def _segments(
    manager: ReplicaManager,
    partition: TopicPartition,
    wanted: wire.ListOffsetsRequestPartition,
    reader: Reader,
    twice: bool,
) -> wire.ListOffsetsResponsePartition:
    found = ErrorCode.INVALID_REQUEST if twice else manager.find_segment_offsets(partition, wanted, reader)
    if isinstance(found, ErrorCode):
        error = ErrorCode.NOT_LEADER_FOR_PARTITION if found is ErrorCode.KAFKA_STORAGE_ERROR else found
        return wire.ListOffsetsResponsePartition(partition=partition.partition, error_code=error)
    return wire.ListOffsetsResponsePartition(partition=partition.partition, offsets=found)
