"""ListOffsets (key 2), versions 0-9, 6 flexible: the offset that belongs to a time (BRK-107, 108; ADM-96).

KIP-405, 734, 1005.
"""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Int64, Since, Until, message


@message
class ListOffsetsRequestPartition:
    """``timestamp``: ms since 1970, -1 latest, -2 earliest, -3 the newest time (from version 7 on), -4 the
    earliest that is on the broker's own disks (from version 8 on; what is before is in tiered storage), -5 the last
    that is in tiered storage (from version 9 on).

    ``max_offsets``: how many a client of version 0 takes.
    """

    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64
    max_offsets: Annotated[Int32, Until(0)] = 1


@message
class ListOffsetsRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[ListOffsetsRequestPartition]


@message
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """``replica_id`` as in Fetch; ``isolation_level`` 0 read uncommitted, 1 read committed."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: list[ListOffsetsRequestTopic]


@message
class ListOffsetsResponsePartition:
    """First record at or after the time; -1 for what is not known. Version 0: offsets, the newest first."""

    partition: Int32
    error_code: Int16 = 0
    offsets: Annotated[list[Int64], Until(0)] = field(default_factory=list)
    timestamp: Annotated[Int64, Since(1)] = -1
    offset: Annotated[Int64, Since(1)] = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


@message
class ListOffsetsResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[ListOffsetsResponsePartition]


@message
class ListOffsetsResponse:
    """In the order of the request."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[ListOffsetsResponseTopic]


API = Api(2, "ListOffsets", 0, 9, ListOffsetsRequest, ListOffsetsResponse, flexible_from=6)
