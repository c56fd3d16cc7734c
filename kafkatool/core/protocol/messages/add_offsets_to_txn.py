"""AddOffsetsToTxn (key 25), versions 0-3, 3 flexible: a group whose offsets a transaction is to commit (KIP-98)."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """The group's partition of ``__consumer_offsets`` becomes part of the transaction."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message
class AddOffsetsToTxnResponse:
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(25, "AddOffsetsToTxn", 0, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, flexible_from=3)
