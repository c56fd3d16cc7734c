"""ApiVersions (key 18), versions 0-3, 3 flexible: which requests the broker answers (BRK-11, 12).

Its response header never has tagged fields: a client must be able to read the answer to a version too new."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """The client's software, since version 3 (KIP-511)."""

    client_software_name: Annotated[str, Since(3)] = ""
    client_software_version: Annotated[str, Since(3)] = ""


@message
class ApiVersionsResponseKey:
    """Versions served of one API, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class ApiVersionsResponse:
    """The throttle time comes after the list."""

    error_code: Int16 = 0
    api_keys: list[ApiVersionsResponseKey]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0


API = Api(18, "ApiVersions", 0, 3, ApiVersionsRequest, ApiVersionsResponse, flexible_from=3)
