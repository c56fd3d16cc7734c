"""TxnOffsetCommit (key 28), versions 0-3, 3 flexible: offsets that count if the transaction commits (KIP-98, KIP-447)."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class TxnOffsetCommitRequestPartition:
    """Metadata None counts as ""."""

    partition: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: str | None = None


@message
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[TxnOffsetCommitRequestPartition]


@message
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """Generation, member and instance fence a member that was left behind; without them nothing is checked."""

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[str, Since(3)] = ""
    group_instance_id: Annotated[str | None, Since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic]


@message
class TxnOffsetCommitResponsePartition:
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0


@message
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[TxnOffsetCommitResponsePartition]


@message
class TxnOffsetCommitResponse:
    """In the order of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


API = Api(28, "TxnOffsetCommit", 0, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse, flexible_from=3)
