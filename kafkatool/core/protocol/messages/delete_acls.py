"""DeleteAcls (key 31), versions 0-2, 2 flexible: remove what filters select (KIP-140, KIP-290).

Source: Kafka 2.8.2 message/DeleteAcls*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message
from kafkatool.core.protocol.messages.describe_acls import LITERAL


@message
class DeleteAclsFilter:
    """Texts that are None match all; so does the number 1."""

    resource_type: Int8
    resource_name: str | None = None
    pattern_type: Annotated[Int8, Since(1)] = LITERAL
    principal: str | None = None
    host: str | None = None
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """Each filter is by itself."""

    filters: list[DeleteAclsFilter]


@message
class DeletedAcl:
    """An entry that was removed, or could not be."""

    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, Since(1)] = LITERAL
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsFilterResult:
    """What one filter selected."""

    error_code: Int16 = 0
    error_message: str | None = None
    matching_acls: list[DeletedAcl]


@message
class DeleteAclsResponse:
    """In the order asked."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]


API = Api(31, "DeleteAcls", 0, 2, DeleteAclsRequest, DeleteAclsResponse, flexible_from=2)
