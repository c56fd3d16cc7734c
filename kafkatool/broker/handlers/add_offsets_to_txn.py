"""AddOffsetsToTxn (key 25), versions 0-3: a group's partition of ``__consumer_offsets`` joins a transaction (TXN-36)."""

from kafkatool.broker.handlers.authorization import group, transactional_id
from kafkatool.broker.handlers.call import Call, Served, fenced
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.add_offsets_to_txn import API, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_KNOWS_FENCED = 2


@Served(
    API,
    versions=(0, 3),
    asks=(transactional_id(Operation.WRITE), group(Operation.READ)),
)
def handle(request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse | None:
    """Answer when the transaction is known to have the partition; make the topic first, if it is not there."""
    context = call.context
    if OFFSETS_TOPIC not in context.metadata_cache.snapshot.partitions:
        context.topic_admin.create_internal_offsets_topic()
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    context.transactions.add_partitions(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        frozenset({TopicPartition(OFFSETS_TOPIC, context.groups.partition_of(request.group_id))}),
        lambda code: call.respond(AddOffsetsToTxnResponse(error_code=fenced(code, call, since=_KNOWS_FENCED))),
    )
    return None
