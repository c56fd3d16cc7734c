"""CreateAcls (key 30), versions 0-2, 2 flexible: add entries (KIP-140, KIP-290).

Source: Kafka 2.8.2 message/CreateAcls*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message
from kafkatool.core.protocol.messages.describe_acls import LITERAL


@message
class AclCreation:
    """One entry and what it is about."""

    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, Since(1)] = LITERAL
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class CreateAclsRequest(Request["CreateAclsResponse"]):
    """Each entry is by itself."""

    creations: list[AclCreation]


@message
class AclCreationResult:
    """Outcome for one entry."""

    error_code: Int16 = 0
    error_message: str | None = None


@message
class CreateAclsResponse:
    """In the order asked."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]


API = Api(30, "CreateAcls", 0, 2, CreateAclsRequest, CreateAclsResponse, flexible_from=2)
