"""OffsetDelete (key 47), version 0: take single partitions out of what a group has committed (ADM-67; KIP-496).

Answered when the tombstones are replicated, which Kafka does not wait for.
"""

from collections.abc import Mapping

from kafkatool.broker.handlers.authorization import group, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import offset_delete as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 0), asks=(group(Operation.DELETE), topics(Operation.READ)))
def handle(request: wire.OffsetDeleteRequest, call: Call) -> None:
    exists = call.context.metadata_cache.contains
    listed = dict.fromkeys(TopicPartition(t.topic, p.partition) for t in request.topics for p in t.partitions)
    known = [partition for partition in listed if exists(partition)]

    def answer(error: ErrorCode, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        if error is not ErrorCode.NONE:
            call.respond(wire.OffsetDeleteResponse(error_code=error))
            return
        topics: dict[str, list[wire.OffsetDeleteResponsePartition]] = {}
        for partition in listed:
            code = codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            outcome = wire.OffsetDeleteResponsePartition(partition=partition.partition, error_code=code)
            topics.setdefault(partition.topic, []).append(outcome)
        call.respond(
            wire.OffsetDeleteResponse(
                topics=[wire.OffsetDeleteResponseTopic(topic=t, partitions=found) for t, found in topics.items()]
            )
        )

    call.context.groups.delete_offsets(request.group_id, known, answer)
