"""SyncGroup (key 14), versions 0-5, 4 flexible: the leader hands in the assignment, each member fetches its own."""

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
    """``assignments`` is filled by the leader only; type and protocol are those that the member was told (KIP-559)."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3)] = None
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignments: list[SyncGroupAssignment] = field(default_factory=list)


@message
class SyncGroupResponse:
    """``assignment`` is empty, not null, on error or when nothing is assigned."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignment: bytes = b""


API = Api(14, "SyncGroup", 0, 5, SyncGroupRequest, SyncGroupResponse, flexible_from=4)
