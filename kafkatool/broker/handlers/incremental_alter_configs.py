"""IncrementalAlterConfigs (key 44), version 0: change single settings of topics or of this broker (KIP-339). No policies."""

from functools import partial

from kafkatool.broker.administration.configs import Change
from kafkatool.broker.handlers.alter_configs import outcome
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.incremental_alter_configs import (
    API,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(request: IncrementalAlterConfigsRequest, call: Call) -> IncrementalAlterConfigsResponse:
    admin = call.context.config_admin
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
        alter = partial(admin.change, kind, name, changes, validate_only=request.validate_only)
        results.append(outcome(kind, name, alter))
    return IncrementalAlterConfigsResponse(responses=results)


SERVED = Served(api=API, versions=(0, 0), handle=handle)
