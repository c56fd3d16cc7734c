"""FindCoordinator (key 10), versions 0-4, 3 flexible: the broker that keeps a group or a transactional id (BRK-164)."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, Until, message


@message
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """``key_type`` 0: ``key`` is a group; 1: a transactional id. From version 4 on any number of ``keys`` (KIP-699)."""

    key: Annotated[str, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    keys: Annotated[list[str], Since(4)] = field(default_factory=list)


@message
class FoundCoordinator:
    """-1, "" and -1 on error."""

    key: str
    node_id: Int32 = -1
    host: str = ""
    port: Int32 = -1
    error_code: Int16 = 0
    error_message: str | None = None


@message
class FindCoordinatorResponse:
    """-1, "" and -1 on error."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[str | None, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3)] = -1
    host: Annotated[str, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = -1
    coordinators: Annotated[list[FoundCoordinator], Since(4)] = field(default_factory=list)


API = Api(10, "FindCoordinator", 0, 4, FindCoordinatorRequest, FindCoordinatorResponse, flexible_from=3)
