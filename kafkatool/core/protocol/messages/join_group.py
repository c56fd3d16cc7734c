"""JoinGroup (key 11), versions 0-7, 6 flexible: a member enters a group or its next generation."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, NullSince, Since, message


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
    """``members`` is for the leader only, else empty. -1, "" and from version 7 on None on error (KIP-559)."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Since(7)] = None
    protocol_name: Annotated[str | None, NullSince(7)] = ""
    leader: str = ""
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)


API = Api(11, "JoinGroup", 0, 7, JoinGroupRequest, JoinGroupResponse, flexible_from=6)
