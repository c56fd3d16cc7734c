"""ControlledShutdown (key 7), versions 0-2: a broker about to stop asks for its leaders to be moved away (BRK-34).

Not served: nothing. Only the active controller does it, any other broker answers STALE_CONTROLLER_EPOCH.
"""

from operator import attrgetter

from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import controlled_shutdown as wire


@Served(wire.API, versions=(0, 2), asks=(cluster(Operation.CLUSTER_ACTION),), between_brokers=attrgetter("broker_id"))
def handle(request: wire.ControlledShutdownRequest, call: Call) -> wire.ControlledShutdownResponse:
    """Move leaders away; the handler's thread waits until the controller has moved what can be moved."""
    epoch = None if request.broker_epoch < 0 else request.broker_epoch
    error, remaining = call.context.controller.controlled_shutdown(request.broker_id, epoch)
    return wire.ControlledShutdownResponse(error_code=error, remaining_partitions=remaining)
