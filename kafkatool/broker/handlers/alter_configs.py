"""AlterConfigs (key 33), versions 0-2: give topics or this broker exactly the settings named (KIP-133). No policies."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kafkatool.broker.administration.configs import TOPIC, ConfigAdmin
from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import Each, Resource
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages import alter_configs as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResource

Resources = Sequence[wire.AlterConfigsResource] | Sequence[IncrementalAlterConfigsResource]


def needed(resource: wire.AlterConfigsResource | IncrementalAlterConfigsResource) -> Resource:
    """Say what it asks to alter the settings of a topic, or of brokers."""
    if resource.resource_type == TOPIC:
        return Resource(Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.resource_name)
    return Resource(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)


@Served(wire.API, versions=(0, 2), asks=(Each("resources", needed),))
def handle(request: wire.AlterConfigsRequest, call: Call) -> wire.AlterConfigsResponse:
    admin = call.context.config_admin
    return wire.AlterConfigsResponse(resources=outcomes(request.resources, admin, admin.replace, request.validate_only))


def outcomes(
    resources: Resources, admin: ConfigAdmin, alter: Callable[..., None], validate_only: bool
) -> list[wire.AlterConfigsResult]:
    """Alter each resource and return what to say of them; one listed twice is left as it is."""
    listed = Counter((r.resource_type, r.resource_name) for r in resources)
    configs: dict[tuple[int, str], Any] = {(r.resource_type, r.resource_name): r.configs for r in resources}
    topics = admin.topics_among(configs)
    results = []
    for (kind, name), wanted in configs.items():
        code, message = ErrorCode.NONE, None
        try:
            if listed[kind, name] > 1:
                raise AdminError(ErrorCode.INVALID_REQUEST, "the resource is listed twice")
            alter(kind, name, topics, wanted, validate_only=validate_only)
        except (AdminError, ZooKeeperError) as e:
            code, message = code_of(e), str(e)
        results.append(
            wire.AlterConfigsResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        )
    return results
