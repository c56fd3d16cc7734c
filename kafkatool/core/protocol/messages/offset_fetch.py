"""OffsetFetch (key 9), versions 0-7, 6 flexible: how far a group has read. Version 0 is about offsets in ZooKeeper."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, NullSince, Since, message


@message
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """``topics`` None: all the group has committed.

    ``require_stable``: an offset that a transaction is about to change is refused, not told (KIP-447).
    """

    group_id: str
    topics: Annotated[list[OffsetFetchRequestTopic] | None, NullSince(2)]
    require_stable: Annotated[bool, Since(7)] = False


@message
class OffsetFetchResponsePartition:
    """Offset -1 without error: nothing committed."""

    partition: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


@message
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetFetchResponsePartition]


@message
class OffsetFetchResponse:
    """``error_code`` is the group's; versions 0 and 1 say it on each partition."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: list[OffsetFetchResponseTopic]
    error_code: Annotated[Int16, Since(2)] = 0


API = Api(9, "OffsetFetch", 0, 7, OffsetFetchRequest, OffsetFetchResponse, flexible_from=6)
