"""IncrementalAlterConfigs (key 44), version 0: change single settings of topics or of this broker (KIP-339). No policies."""

from kafkatool.broker.administration.configs import Change
from kafkatool.broker.handlers.alter_configs import outcomes
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.incremental_alter_configs import (
    API,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


def handle(request: IncrementalAlterConfigsRequest, call: Call) -> IncrementalAlterConfigsResponse:
    admin = call.context.config_admin

    def change(resource: IncrementalAlterConfigsResource) -> None:
        changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
        admin.change(resource.resource_type, resource.resource_name, changes, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(responses=outcomes(request.resources, change))


SERVED = Served(api=API, versions=(0, 0), handle=handle)
