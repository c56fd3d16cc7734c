"""LeaveGroup (key 13), versions 0-4, 4 flexible: members go. Source: KIP-345, Kafka 2.8.2 message/LeaveGroup*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, Until, message


@message
class LeavingMember:
    """One that goes: by its id, or by its instance id alone, with an empty ``member_id``."""

    member_id: str
    group_instance_id: str | None = None


@message
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """One member, itself, up to version 2; any number, taken out by whom it may be, from 3 on."""

    group_id: str
    member_id: Annotated[str, Until(2)] = ""
    members: Annotated[list[LeavingMember], Since(3)] = field(default_factory=list)


@message
class LeftMember:
    """25: no such member; 82: another member has that instance id."""

    member_id: str
    group_instance_id: str | None = None
    error_code: Int16 = 0


@message
class LeaveGroupResponse:
    """``error_code``: of the group, and up to version 2 of the member."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[LeftMember], Since(3)] = field(default_factory=list)


API = Api(13, "LeaveGroup", 0, 4, LeaveGroupRequest, LeaveGroupResponse, flexible_from=4)
