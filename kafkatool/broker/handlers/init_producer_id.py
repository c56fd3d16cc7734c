"""InitProducerId (key 22), versions 0-1: an id for an idempotent producer (BRK-163; KIP-98).

Not served: transactional ids. They get TRANSACTIONAL_ID_AUTHORIZATION_FAILED, so that the producer gives up at once.
"""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.init_producer_id import API, InitProducerIdRequest, InitProducerIdResponse


def handle(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """Hand out a fresh id with epoch 0."""
    if request.transactional_id is None:
        producer_id = call.context.producer_ids.next_id()
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
    return InitProducerIdResponse(error_code=refused, producer_id=-1, producer_epoch=-1)


SERVED = Served(api=API, versions=(0, 1), handle=handle)
