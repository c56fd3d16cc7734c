"""DescribeProducers (key 61), version 0: the producers that a replica's log knows (ADM-81; KIP-664)."""

from kafkatool.broker.handlers.authorization import topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import describe_producers as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 0), asks=(topics(Operation.READ),))
def handle(request: wire.DescribeProducersRequest, call: Call) -> wire.DescribeProducersResponse:
    topics: dict[str, list[int]] = {}  # each partition once: there may be much to say of it
    for topic in request.topics:
        topics.setdefault(topic.topic, []).extend(topic.partitions)
    return wire.DescribeProducersResponse(
        topics=[
            wire.DescribeProducersResponseTopic(
                topic=name, partitions=[_describe(TopicPartition(name, n), call) for n in dict.fromkeys(numbers)]
            )
            for name, numbers in topics.items()
        ]
    )


def _describe(partition: TopicPartition, call: Call) -> wire.DescribeProducersResponsePartition:
    found = call.context.replica_manager.partitions.find(partition)
    if isinstance(found, ErrorCode):
        return wire.DescribeProducersResponsePartition(partition=partition.partition, error_code=found)
    producers = [
        wire.ActiveProducer(
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=one.transaction_start,
        )
        for one in found.log.active_producers()
    ]
    return wire.DescribeProducersResponsePartition(partition=partition.partition, active_producers=producers)
