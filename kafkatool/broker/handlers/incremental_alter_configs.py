"""IncrementalAlterConfigs (key 44), versions 0-1: single settings of topics or of this broker (KIP-339). No policies."""

from kafkatool.broker.handlers.alter_configs import needed, outcomes
from kafkatool.broker.handlers.authorization import Each
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import incremental_alter_configs as wire


@Served(wire.API, versions=(0, 1), asks=(Each("resources", needed),))
def handle(request: wire.IncrementalAlterConfigsRequest, call: Call) -> wire.IncrementalAlterConfigsResponse:
    admin = call.context.config_admin
    results = outcomes(request.resources, admin, admin.change, request.validate_only)
    return wire.IncrementalAlterConfigsResponse(responses=results)
