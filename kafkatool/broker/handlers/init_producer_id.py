"""InitProducerId (key 22), versions 0-4: an id and an epoch for a producer (BRK-163, TXN-24 to 30; KIP-98, KIP-360)."""

from kafkatool.broker.handlers.authorization import NotPermittedError
from kafkatool.broker.handlers.call import Call, Served, fenced
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.init_producer_id import API, InitProducerIdRequest, InitProducerIdResponse

_KNOWS_FENCED = 4


def _may_produce(request: InitProducerIdRequest, call: Call) -> InitProducerIdRequest:
    """Ask IdempotentWrite on the cluster, or Write on any topic: producers are idempotent unasked (SEC-85; KIP-679)."""
    if request.transactional_id is not None:
        if not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise NotPermittedError(ResourceType.TRANSACTIONAL_ID)
    elif not call.allows(Operation.WRITE, ResourceType.TOPIC, None, asked=False) and not call.allows(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ):
        raise NotPermittedError(ResourceType.CLUSTER)
    return request


@Served(API, versions=(0, 4), asks=(_may_produce,))
def handle(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse | None:
    """Hand out a fresh id with epoch 0, or have the coordinator of the transactional id decide."""
    if request.transactional_id is None:
        producer_id = call.context.producer_ids.next_id()
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(code: ErrorCode, identity: Identity) -> None:
        call.respond(
            InitProducerIdResponse(
                error_code=fenced(code, call, since=_KNOWS_FENCED),
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
            )
        )

    expected = None if request.producer_id == -1 else Identity(request.producer_id, request.producer_epoch)
    call.context.transactions.give_identity(request.transactional_id, request.transaction_timeout_ms, expected, answer)
    return None
