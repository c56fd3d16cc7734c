"""Heartbeat (key 12), versions 0-4, 4 flexible: a member is alive and of this generation."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """A member and its generation."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3)] = None


@message
class HeartbeatResponse:
    """22 other generation, 25 unknown member, 27 join again."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


API = Api(12, "Heartbeat", 0, 4, HeartbeatRequest, HeartbeatResponse, flexible_from=4)
