"""DescribeTransactions (key 65), version 0, flexible: state and partitions of transactional ids (KIP-664)."""

from dataclasses import field

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """To the coordinator of these ids."""

    transactional_ids: list[str]


@message
class DescribeTransactionsTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class DescribedTransaction:
    """One transactional id; its partitions are those that still want a marker."""

    error_code: Int16 = 0
    transactional_id: str
    state: str = ""
    timeout_ms: Int32 = 0
    start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribeTransactionsTopic] = field(default_factory=list)


@message
class DescribeTransactionsResponse:
    """One entry for each id."""

    throttle_time_ms: Int32 = 0
    transactions: list[DescribedTransaction]


API = Api(65, "DescribeTransactions", 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse, flexible_from=0)
