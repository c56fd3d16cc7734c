"""IncrementalAlterConfigs (key 44), version 0: change single settings of topics or of this broker (KIP-339). No policies."""

from functools import partial

from kafkatool.broker.administration.configs import Change
from kafkatool.broker.handlers.alter_configs import outcome
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import incremental_alter_configs as wire


@Served(wire.API, versions=(0, 0))
def handle(request: wire.IncrementalAlterConfigsRequest, call: Call) -> wire.IncrementalAlterConfigsResponse:
    admin = call.context.config_admin
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
        alter = partial(admin.change, kind, name, changes, validate_only=request.validate_only)
        results.append(outcome(kind, name, alter))
    return wire.IncrementalAlterConfigsResponse(responses=results)
