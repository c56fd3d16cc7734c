"""ApiVersions (key 18), versions 0-3: what is served, in which versions (BRK-1, 11, 12, 155, 156; KIP-35, KIP-511).

A version above 3 is answered too, unread, in the layout of version 0. Not served: nothing.
"""

import re
from functools import cache

from kafkatool.broker.handlers.call import Call, Served, load_handlers
from kafkatool.core.protocol.messages import api_versions as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@cache
def _served_ranges() -> list[wire.ApiVersionsResponseKey]:
    return [_range(served) for _, served in sorted(load_handlers().items())]


def _range(served: Served) -> wire.ApiVersionsResponseKey:
    first, last = served.versions
    return wire.ApiVersionsResponseKey(api_key=served.api.key, min_version=first, max_version=last)


def answer_newer() -> wire.ApiVersionsResponse:
    """Tell a newer client, in the oldest layout, which versions of the question it may use."""
    return wire.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(load_handlers()[wire.API.key])]
    )


def answer(request: wire.ApiVersionsRequest, version: int) -> wire.ApiVersionsResponse:
    """Tell what is served, whoever asks."""
    software = (request.client_software_name, request.client_software_version)
    if version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in software):
        return wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return wire.ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_served_ranges())


@Served(wire.API, versions=(0, 3), asks=(), quick=True, throttled_at_once_from=2, answer_newer=answer_newer)
def handle(request: wire.ApiVersionsRequest, call: Call) -> wire.ApiVersionsResponse:
    return answer(request, call.header.api_version)
