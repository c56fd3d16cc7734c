"""DescribeGroups (key 15), versions 0-5, 5 flexible. Source: Kafka 2.8.2 message/DescribeGroups*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """Group ids."""

    groups: list[str]
    include_authorized_operations: Annotated[bool, Since(3)] = False


@message
class DescribedGroupMember:
    """A member; metadata and assignment are filled in a stable group only."""

    member_id: str
    group_instance_id: Annotated[str | None, Since(4)] = None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@message
class DescribedGroup:
    """State of one group; strings are empty where not known, operations -2**31 where not asked for."""

    error_code: Int16 = 0
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Annotated[Int32, Since(3)] = -(2**31)


@message
class DescribeGroupsResponse:
    """One entry for each group asked for."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: list[DescribedGroup]


API = Api(15, "DescribeGroups", 0, 5, DescribeGroupsRequest, DescribeGroupsResponse, flexible_from=5)
