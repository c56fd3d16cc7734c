"""OffsetForLeaderEpoch (key 23), versions 0-4, 4 flexible: where an epoch ends in a leader's log (BRK-61; KIP-101, 279)."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class OffsetForLeaderEpochRequestPartition:
    """``leader_epoch`` is the one asked for, ``current_leader_epoch`` the one believed current (-1 unchecked)."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(2)] = -1
    leader_epoch: Int32


@message
class OffsetForLeaderEpochRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetForLeaderEpochRequestPartition]


@message
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """``replica_id`` as in Fetch; -2 where the version does not say it."""

    replica_id: Annotated[Int32, Since(3)] = -2
    topics: list[OffsetForLeaderEpochRequestTopic]


@message
class OffsetForLeaderEpochResponsePartition:
    """The error stands before the partition, unlike elsewhere; -1 for what is not known."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Annotated[Int32, Since(1)] = -1
    end_offset: Int64 = -1


@message
class OffsetForLeaderEpochResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetForLeaderEpochResponsePartition]


@message
class OffsetForLeaderEpochResponse:
    """In the order of the request."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[OffsetForLeaderEpochResponseTopic]


API = Api(23, "OffsetForLeaderEpoch", 0, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, flexible_from=4)
