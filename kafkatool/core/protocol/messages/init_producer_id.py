"""InitProducerId (key 22), versions 0-1: an id for an idempotent producer (BRK-163)."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """The timeout counts only with a transactional id."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0


@message
class InitProducerIdResponse:
    """Id and epoch are -1 on error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


API = Api(22, "InitProducerId", 0, 1, InitProducerIdRequest, InitProducerIdResponse)
