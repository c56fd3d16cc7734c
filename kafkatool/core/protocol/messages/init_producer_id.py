"""InitProducerId (key 22), versions 0-4, 2 flexible: an id for an idempotent or a transactional producer (BRK-163).

From version 3 on a producer tells the identity it has, to get a new epoch of its own (KIP-360).
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """The timeout counts only with a transactional id. Id and epoch are -1 for a producer that has none yet."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


@message
class InitProducerIdResponse:
    """Id and epoch are -1 on error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


API = Api(22, "InitProducerId", 0, 4, InitProducerIdRequest, InitProducerIdResponse, flexible_from=2)
