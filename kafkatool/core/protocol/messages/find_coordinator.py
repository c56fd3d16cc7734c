"""FindCoordinator (key 10), versions 0-2: the broker that keeps a group (BRK-164)."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message


@message
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """``key_type`` 0: ``key`` is a group; 1: a transactional id."""

    key: str
    key_type: Annotated[Int8, Since(1)] = 0


@message
class FindCoordinatorResponse:
    """-1, "" and -1 on error."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(1)] = None
    node_id: Int32 = -1
    host: str = ""
    port: Int32 = -1


API = Api(10, "FindCoordinator", 0, 2, FindCoordinatorRequest, FindCoordinatorResponse)
