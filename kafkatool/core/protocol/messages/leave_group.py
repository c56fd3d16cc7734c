"""LeaveGroup (key 13), versions 0-2: a member goes."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """The member that goes."""

    group_id: str
    member_id: str


@message
class LeaveGroupResponse:
    """25: no such member."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


API = Api(13, "LeaveGroup", 0, 2, LeaveGroupRequest, LeaveGroupResponse)
