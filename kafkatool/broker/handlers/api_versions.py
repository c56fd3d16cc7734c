"""ApiVersions (key 18), versions 0-3: what is served, in which versions (BRK-1, 11, 12, 155, 156; KIP-35, KIP-511).

A version above 3 is answered too, unread, in the layout of version 0. Not served: nothing.
"""

import re
from functools import cache

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served, load_handlers
from kafkatool.core.protocol.messages.api_versions import (
    API,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    software = (request.client_software_name, request.client_software_version)
    if call.header.api_version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in software):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_served_ranges())


@cache
def _served_ranges() -> list[ApiVersionsResponseKey]:
    return [_range(served) for _, served in sorted(load_handlers().items())]


def _range(served: Served) -> ApiVersionsResponseKey:
    first, last = served.announced
    return ApiVersionsResponseKey(api_key=served.api.key, min_version=first, max_version=last)


def _answer_newer() -> ApiVersionsResponse:
    """Tell a newer client, in the oldest layout, which versions of the question it may use."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(SERVED)])


SERVED = Served(
    api=API, versions=(0, 3), handle=handle, quick=True, throttled_at_once_from=2, answer_newer=_answer_newer
)
