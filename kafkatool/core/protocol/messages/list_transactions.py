"""ListTransactions (key 66), versions 0-1, flexible: the transactional ids that a broker coordinates (KIP-664, KIP-994)."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Empty lists filter nothing; ``duration_ms`` -1 neither."""

    states: list[str] = field(default_factory=list)
    producer_ids: list[Int64] = field(default_factory=list)
    duration_ms: Annotated[Int64, Since(1)] = -1


@message
class ListedTransaction:
    """One transactional id."""

    transactional_id: str
    producer_id: Int64
    state: str


@message
class ListTransactionsResponse:
    """``unknown_states``: names of the request that are no states."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_states: list[str] = field(default_factory=list)
    transactions: list[ListedTransaction] = field(default_factory=list)


API = Api(66, "ListTransactions", 0, 1, ListTransactionsRequest, ListTransactionsResponse, flexible_from=0)
