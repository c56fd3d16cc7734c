"""OffsetForLeaderEpoch (key 23), versions 0-4: where an epoch ends in this leader's log (BRK-61 to 63).

KIP-101, KIP-279. Asked by followers before they truncate, and by consumers (>= 2.1) after a change of leader.
"""

from kafkatool.broker.handlers.authorization import topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import offset_for_leader_epoch as wire

_may_describe = topics(Operation.DESCRIBE)


def _may_know(request: wire.OffsetForLeaderEpochRequest, call: Call) -> wire.OffsetForLeaderEpochRequest | None:
    """Let followers, who may ask of all, ask on the brokers' listener alone: elsewhere it is a consumer (SEC-50)."""
    if call.is_of_follower(asked=False):
        return request
    allowed: wire.OffsetForLeaderEpochRequest | None = _may_describe(request, call)
    return allowed


@Served(wire.API, versions=(0, 4), asks=(_may_know,), quick=True)
def handle(request: wire.OffsetForLeaderEpochRequest, call: Call) -> wire.OffsetForLeaderEpochResponse:
    """Answer for each partition by itself."""
    manager = call.context.replica_manager
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            found = manager.find_epoch_end(TopicPartition(topic.topic, wanted.partition), wanted)
            partitions.append(
                wire.OffsetForLeaderEpochResponsePartition(
                    error_code=found.error,
                    partition=wanted.partition,
                    leader_epoch=found.leader_epoch,
                    end_offset=found.offset,
                )
            )
        topics.append(wire.OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=partitions))
    return wire.OffsetForLeaderEpochResponse(topics=topics)
