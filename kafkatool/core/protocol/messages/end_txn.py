"""EndTxn (key 26), versions 0-3, 3 flexible: commit or abort a transaction (KIP-98)."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class EndTxnRequest(Request["EndTxnResponse"]):
    """``committed`` False: abort."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


@message
class EndTxnResponse:
    """Without an error the end is decided; readers see it when the markers are written."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(26, "EndTxn", 0, 3, EndTxnRequest, EndTxnResponse, flexible_from=3)
