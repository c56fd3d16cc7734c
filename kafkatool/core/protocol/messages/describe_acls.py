"""DescribeAcls (key 29), versions 0-2, 2 flexible: the ACLs that a filter selects (KIP-140, KIP-290).

Source: Kafka 2.8.2 message/DescribeAcls*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message

LITERAL = 3
"""The type of pattern that version 0 means."""


@message
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """Texts that are None match all; so does the number 1."""

    resource_type: Int8
    resource_name: str | None = None
    pattern_type: Annotated[Int8, Since(1)] = LITERAL
    principal: str | None = None
    host: str | None = None
    operation: Int8
    permission_type: Int8


@message
class DescribedAcl:
    """One entry."""

    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class DescribedAclResource:
    """The entries about one pattern."""

    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, Since(1)] = LITERAL
    acls: list[DescribedAcl]


@message
class DescribeAclsResponse:
    """Patterns without a selected entry are left out."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    resources: list[DescribedAclResource]


API = Api(29, "DescribeAcls", 0, 2, DescribeAclsRequest, DescribeAclsResponse, flexible_from=2)
