"""ControlledShutdown (key 7), versions 0-2: a broker about to stop asks for its leaders to be moved away (BRK-34).

Not served: nothing. Only the active controller does it, any other broker answers STALE_CONTROLLER_EPOCH.
"""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.controlled_shutdown import (
    API,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


def handle(request: ControlledShutdownRequest, call: Call) -> ControlledShutdownResponse:
    """Move leaders away; the handler's thread waits until the controller has moved what can be moved."""
    epoch = None if request.broker_epoch < 0 else request.broker_epoch
    error, remaining = call.context.controller.controlled_shutdown(request.broker_id, epoch)
    return ControlledShutdownResponse(error_code=error, remaining_partitions=remaining)


SERVED = Served(api=API, versions=(0, 2), handle=handle)
