"""AddPartitionsToTxn (key 24), versions 0-4, 3 flexible: partitions that a transaction is to write to (KIP-98, KIP-890).

Version 4 is for brokers: several transactions in one request, and the question alone whether partitions are in one.
"""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, Until, message


@message
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class AddPartitionsToTxnTransaction:
    """One transaction. ``verify_only``: nothing is added."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@message
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """Up to version 3 one transaction, without a list around it."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], Since(4)] = field(default_factory=list)
    transactional_id: Annotated[str, Until(3)] = ""
    producer_id: Annotated[Int64, Until(3)] = -1
    producer_epoch: Annotated[Int16, Until(3)] = -1
    topics: Annotated[list[AddPartitionsToTxnTopic], Until(3)] = field(default_factory=list)


@message
class AddPartitionsToTxnResponsePartition:
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0


@message
class AddPartitionsToTxnResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[AddPartitionsToTxnResponsePartition]


@message
class AddPartitionsToTxnResponseTransaction:
    """One transaction of the request."""

    transactional_id: str
    topics: list[AddPartitionsToTxnResponseTopic]


@message
class AddPartitionsToTxnResponse:
    """``error_code``: the request as a whole was refused."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(4)] = 0
    transactions: Annotated[list[AddPartitionsToTxnResponseTransaction], Since(4)] = field(default_factory=list)
    topics: Annotated[list[AddPartitionsToTxnResponseTopic], Until(3)] = field(default_factory=list)


API = Api(24, "AddPartitionsToTxn", 0, 4, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, flexible_from=3)
