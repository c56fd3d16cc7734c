"""ListGroups (key 16), versions 0-4, flexible from 3 (KIP-518). Source: Kafka 2.8.2 message/ListGroups*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Asks for the groups the broker keeps; ``states_filter`` empty: in whatever state."""

    states_filter: Annotated[list[str], Since(4)] = field(default_factory=list)


@message
class ListedGroup:
    """A group and what kind it is (``consumer``)."""

    group_id: str
    protocol_type: str
    group_state: Annotated[str, Since(4)] = ""


@message
class ListGroupsResponse:
    """Groups this broker coordinates."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup]


API = Api(16, "ListGroups", 0, 4, ListGroupsRequest, ListGroupsResponse, flexible_from=3)
