"""AlterConfigs (key 33), versions 0-1: give topics or this broker exactly the settings named (KIP-133). No policies."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from kafkatool.broker.administration.topics import TopicError
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.handlers.served import Served
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages.alter_configs import (
    API,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResource

Resource = TypeVar("Resource", AlterConfigsResource, IncrementalAlterConfigsResource)


def handle(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    admin = call.context.config_admin

    def replace(resource: AlterConfigsResource) -> None:
        values = [(c.name, c.value) for c in resource.configs]
        admin.replace(resource.resource_type, resource.resource_name, values, validate_only=request.validate_only)

    return AlterConfigsResponse(resources=outcomes(request.resources, replace))


def outcomes(resources: Iterable[Resource], alter: Callable[[Resource], None]) -> list[AlterConfigsResult]:
    """Alter each resource and return what to say of them; one listed twice is left as it is."""
    listed = Counter((r.resource_type, r.resource_name) for r in resources)
    each = {(r.resource_type, r.resource_name): r for r in resources}
    return [
        _outcome(kind, name, partial(alter, resource) if listed[kind, name] == 1 else _refuse_twice)
        for (kind, name), resource in each.items()
    ]


def _refuse_twice() -> None:
    raise TopicError(ErrorCode.INVALID_REQUEST, "the resource is listed twice")


def _outcome(kind: int, name: str, alter: Callable[[], None]) -> AlterConfigsResult:
    """Run ``alter`` and return what to say of the resource."""
    code, message = ErrorCode.NONE, None
    try:
        alter()
    except (TopicError, ZooKeeperError) as e:
        code, message = code_of(e), str(e)
    return AlterConfigsResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)


SERVED = Served(api=API, versions=(0, 1), handle=handle)
