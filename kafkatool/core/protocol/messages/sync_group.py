"""SyncGroup (key 14), versions 0-3: the leader hands in the assignment, each member fetches its own."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class SyncGroupAssignment:
    """The assignment of one member; opaque to the broker."""

    member_id: str
    assignment: bytes


@message
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """``assignments`` is filled by the leader only."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3)] = None
    assignments: list[SyncGroupAssignment] = field(default_factory=list)


@message
class SyncGroupResponse:
    """``assignment`` is empty, not null, on error or when nothing is assigned."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    assignment: bytes = b""


API = Api(14, "SyncGroup", 0, 3, SyncGroupRequest, SyncGroupResponse)
