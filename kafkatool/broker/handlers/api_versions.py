"""ApiVersions (key 18), versions 0-3: what is served, in which versions (BRK-1, 11, 12, 155, 156; KIP-35, KIP-511).

Versions above 3 are answered by the dispatcher, which need not read them for that. Not served: nothing.
"""

import re

from kafkatool.broker.handlers import Served, load_handlers
from kafkatool.broker.handlers.call import Call
from kafkatool.core.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_ranges: list[ApiVersionsResponseKey] = []


def _range(served: Served) -> ApiVersionsResponseKey:
    return ApiVersionsResponseKey(
        api_key=served.api.key, min_version=served.announced_min_version, max_version=served.max_version
    )


def handle(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    """The table of handlers; the same for every broker of this process."""
    software = (request.client_software_name, request.client_software_version)
    if call.header.api_version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in software):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if not _ranges:
        _ranges[:] = [_range(served) for _, served in sorted(load_handlers().items())]
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_ranges)
