"""OffsetForLeaderEpoch (key 23), versions 0-3: where an epoch ends in this leader's log (BRK-61 to 63).

KIP-101, KIP-279. Asked by followers before they truncate, and by consumers (>= 2.1) after a change of leader.
"""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    API,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)


def handle(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    """Answer for each partition by itself."""
    manager = call.context.replica_manager
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            found = manager.find_epoch_end(TopicPartition(topic.topic, wanted.partition), wanted)
            partitions.append(
                OffsetForLeaderEpochResponsePartition(
                    error_code=found.error,
                    partition=wanted.partition,
                    leader_epoch=found.leader_epoch,
                    end_offset=found.offset,
                )
            )
        topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


SERVED = Served(api=API, versions=(0, 3), handle=handle, quick=True)
