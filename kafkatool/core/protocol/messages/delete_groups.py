"""DeleteGroups (key 42), versions 0-2, 2 flexible. Source: Kafka 2.8.2 message/DeleteGroups*.json."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """Group ids."""

    group_names: list[str]


@message
class DeleteGroupsResult:
    """Outcome for one group."""

    group_id: str
    error_code: Int16 = 0


@message
class DeleteGroupsResponse:
    """One entry for each group."""

    throttle_time_ms: Int32 = 0
    results: list[DeleteGroupsResult]


API = Api(42, "DeleteGroups", 0, 2, DeleteGroupsRequest, DeleteGroupsResponse, flexible_from=2)
