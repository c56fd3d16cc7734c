"""IncrementalAlterConfigs (key 44), version 0: change single settings of topics or of this broker (KIP-339). No policies."""

from functools import partial

from kafkatool.broker.handlers.alter_configs import outcome
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import incremental_alter_configs as wire


@Served(wire.API, versions=(0, 0))
def handle(request: wire.IncrementalAlterConfigsRequest, call: Call) -> wire.IncrementalAlterConfigsResponse:
    change = partial(call.context.config_admin.change, validate_only=request.validate_only)
    return wire.IncrementalAlterConfigsResponse(responses=[outcome(r, change) for r in request.resources])
