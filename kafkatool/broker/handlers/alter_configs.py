"""AlterConfigs (key 33), versions 0-1: give topics or this broker exactly the settings named (KIP-133). No policies."""

from collections.abc import Callable
from functools import partial

from kafkatool.broker.administration.topics import TopicError
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.handlers.served import Served
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages.alter_configs import (
    API,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


def handle(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    admin = call.context.config_admin
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        values = [(c.name, c.value) for c in resource.configs]
        results.append(
            outcome(kind, name, partial(admin.replace, kind, name, values, validate_only=request.validate_only))
        )
    return AlterConfigsResponse(resources=results)


def outcome(kind: int, name: str, alter: Callable[[], None]) -> AlterConfigsResult:
    """Run ``alter`` and return what to say of the resource."""
    code, message = ErrorCode.NONE, None
    try:
        alter()
    except (TopicError, ZooKeeperError) as e:
        code, message = code_of(e), str(e)
    return AlterConfigsResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)


SERVED = Served(api=API, versions=(0, 1), handle=handle)
