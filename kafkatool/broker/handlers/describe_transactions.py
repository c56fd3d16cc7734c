"""DescribeTransactions (key 65), version 0: state and partitions of transactional ids (TXN-93; KIP-664)."""

from collections.abc import Set

from kafkatool.broker.handlers.authorization import Each, Resource
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import describe_transactions as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_may_describe = Each("transactional_ids", lambda id_: Resource(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, id_))


@Served(wire.API, versions=(0, 0), asks=(_may_describe,))
def handle(request: wire.DescribeTransactionsRequest, call: Call) -> wire.DescribeTransactionsResponse:
    return wire.DescribeTransactionsResponse(
        transactions=[_describe(id_, call) for id_ in dict.fromkeys(request.transactional_ids)]
    )


def _describe(transactional_id: str, call: Call) -> wire.DescribedTransaction:
    found = call.context.transactions.describe(transactional_id)
    if isinstance(found, ErrorCode):
        return wire.DescribedTransaction(error_code=found, transactional_id=transactional_id)
    return wire.DescribedTransaction(
        transactional_id=transactional_id,
        state=found.value.state.label,
        timeout_ms=found.value.timeout_ms,
        start_time_ms=found.value.start_ms,
        producer_id=found.value.producer_id,
        producer_epoch=found.value.epoch,
        topics=_topics(found.partitions, call),
    )


def _topics(partitions: Set[TopicPartition], call: Call) -> list[wire.DescribeTransactionsTopic]:
    """Name those alone that the client may describe, as Kafka."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [
        wire.DescribeTransactionsTopic(topic=name, partitions=numbers)
        for name, numbers in topics.items()
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, asked=False)
    ]
