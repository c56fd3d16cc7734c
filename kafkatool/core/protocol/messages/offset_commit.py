"""OffsetCommit (key 8), versions 0-8, 8 flexible: how far a group has read. Version 0 is about offsets in ZooKeeper."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, Until, message


@message
class OffsetCommitRequestPartition:
    """``commit_timestamp`` -1: now. Metadata None counts as ""."""

    partition: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    commit_timestamp: Annotated[Int64, Since(1), Until(1)] = -1
    committed_metadata: str | None = None


@message
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetCommitRequestPartition]


@message
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """``generation_id`` -1: from outside the group. ``retention_time_ms`` -1: the broker's."""

    group_id: str
    generation_id: Annotated[Int32, Since(1)] = -1
    member_id: Annotated[str, Since(1)] = ""
    group_instance_id: Annotated[str | None, Since(7)] = None
    retention_time_ms: Annotated[Int64, Since(2), Until(4)] = -1
    topics: list[OffsetCommitRequestTopic]


@message
class OffsetCommitResponsePartition:
    """Outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0


@message
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetCommitResponsePartition]


@message
class OffsetCommitResponse:
    """In the order of the request."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: list[OffsetCommitResponseTopic]


API = Api(8, "OffsetCommit", 0, 8, OffsetCommitRequest, OffsetCommitResponse, flexible_from=8)
