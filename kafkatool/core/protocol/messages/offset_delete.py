"""OffsetDelete (key 47), version 0: forget what a group committed for some partitions (KIP-496).

Source: Kafka 2.8.2 message/OffsetDelete*.json.
"""

from dataclasses import field

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class OffsetDeleteRequestPartition:
    """One partition."""

    partition: Int32


@message
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Asked of the group's coordinator."""

    group_id: str
    topics: list[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    """Outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0


@message
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    """The group's own error stands before the throttle time, and without topics."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)


API = Api(47, "OffsetDelete", 0, 0, OffsetDeleteRequest, OffsetDeleteResponse)
