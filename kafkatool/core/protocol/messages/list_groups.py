"""ListGroups (key 16), versions 0-2. Source: Kafka 2.3.1 message/ListGroups*.json."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Asks for all groups the broker keeps."""


@message
class ListedGroup:
    """A group and what kind it is (``consumer``)."""

    group_id: str
    protocol_type: str


@message
class ListGroupsResponse:
    """Groups this broker coordinates."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup]


API = Api(16, "ListGroups", 0, 2, ListGroupsRequest, ListGroupsResponse)
