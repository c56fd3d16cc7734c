"""OffsetFetch (key 9), versions 1-5: how far a group has read (GRP-56, 57).

Not served: version 0, whose offsets live in ZooKeeper; it answers from ``__consumer_offsets`` like the others.
"""

from itertools import groupby

from kafkatool.broker.handlers.call import Call
from kafkatool.core.model import TopicPartition
from kafkatool.core.protocol.error_codes import ErrorCode
from kafkatool.core.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


def handle(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    asked = (
        None if request.topics is None else [TopicPartition(t.topic, p) for t in request.topics for p in t.partitions]
    )
    fetched = call.context.groups.fetch_offsets(request.group_id, asked)

    def answer(partition: TopicPartition) -> OffsetFetchResponsePartition:
        value = fetched.offsets.get(partition)
        if value is None:
            return OffsetFetchResponsePartition(partition=partition.partition, error_code=fetched.error)
        return OffsetFetchResponsePartition(
            partition=partition.partition,
            committed_offset=value.offset,
            committed_leader_epoch=-1 if value.leader_epoch is None else value.leader_epoch,
            metadata=value.metadata,
            error_code=ErrorCode.NONE,
        )

    shown = sorted(fetched.offsets) if asked is None else asked
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(topic=topic, partitions=[answer(p) for p in partitions])
            for topic, partitions in groupby(shown, key=lambda p: p.topic)
        ],
        error_code=fetched.error,
    )
