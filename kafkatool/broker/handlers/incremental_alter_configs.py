"""IncrementalAlterConfigs (key 44), version 0: change single settings of topics or of this broker (KIP-339). No policies."""

from kafkatool.broker.handlers.alter_configs import outcomes
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import incremental_alter_configs as wire


@Served(wire.API, versions=(0, 0))
def handle(request: wire.IncrementalAlterConfigsRequest, call: Call) -> wire.IncrementalAlterConfigsResponse:
    change = call.context.config_admin.change
    return wire.IncrementalAlterConfigsResponse(responses=outcomes(request.resources, change, request.validate_only))
