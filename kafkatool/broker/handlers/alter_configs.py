"""AlterConfigs (key 33), versions 0-1: give topics or this broker exactly the settings named (KIP-133). No policies."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages import alter_configs as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResource


@Served(wire.API, versions=(0, 1))
def handle(request: wire.AlterConfigsRequest, call: Call) -> wire.AlterConfigsResponse:
    replace = partial(call.context.config_admin.replace, validate_only=request.validate_only)
    return wire.AlterConfigsResponse(resources=[outcome(r, replace) for r in request.resources])


def outcome(
    resource: wire.AlterConfigsResource | IncrementalAlterConfigsResource, alter: Callable[[int, str, Any], None]
) -> wire.AlterConfigsResult:
    """Run ``alter`` and return what to say of the resource."""
    code, message = ErrorCode.NONE, None
    kind, name = resource.resource_type, resource.resource_name
    try:
        alter(kind, name, resource.configs)
    except (AdminError, ZooKeeperError) as e:
        code, message = code_of(e), str(e)
    return wire.AlterConfigsResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
