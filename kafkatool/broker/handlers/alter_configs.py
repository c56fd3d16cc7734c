"""AlterConfigs (key 33), versions 0-1: give topics or this broker exactly the settings named (KIP-133). No policies."""

from collections.abc import Callable
from functools import partial

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages import alter_configs as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 1))
def handle(request: wire.AlterConfigsRequest, call: Call) -> wire.AlterConfigsResponse:
    admin = call.context.config_admin
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        values = [(c.name, c.value) for c in resource.configs]
        results.append(
            outcome(kind, name, partial(admin.replace, kind, name, values, validate_only=request.validate_only))
        )
    return wire.AlterConfigsResponse(resources=results)


def outcome(kind: int, name: str, alter: Callable[[], None]) -> wire.AlterConfigsResult:
    """Run ``alter`` and return what to say of the resource."""
    code, message = ErrorCode.NONE, None
    try:
        alter()
    except (AdminError, ZooKeeperError) as e:
        code, message = code_of(e), str(e)
    return wire.AlterConfigsResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
