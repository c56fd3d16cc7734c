"""JoinGroup (key 11), versions 0-5: a member enters a group or its next generation."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class JoinGroupProtocol:
    """A way of assigning partitions the member supports; the metadata is opaque to the broker."""

    name: str
    metadata: bytes


@message
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """``member_id`` "" at the first join. ``rebalance_timeout_ms`` -1 (version 0): as the session timeout."""

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(5)] = None
    protocol_type: str
    protocols: list[JoinGroupProtocol]


@message
class JoinGroupResponseMember:
    """A member and its metadata for the protocol chosen."""

    member_id: str
    group_instance_id: Annotated[str | None, Since(5)] = None
    metadata: bytes


@message
class JoinGroupResponse:
    """``members`` is for the leader only, else empty. -1 and "" on error."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)


API = Api(11, "JoinGroup", 0, 5, JoinGroupRequest, JoinGroupResponse)
