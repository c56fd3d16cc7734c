"""StopReplica (key 5), versions 0-2: stop replicating partitions, and delete them if asked (BRK-109 to 111)."""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.stop_replica import API, StopReplicaRequest, StopReplicaResponse


def handle(request: StopReplicaRequest, call: Call) -> StopReplicaResponse:
    """Stop the replicas, or refuse; the group coordinator is told of deleted partitions."""
    context = call.context
    return context.replica_manager.control.stop_replicas(request, context.groups.on_partitions_stopped)


SERVED = Served(api=API, versions=(0, 2), handle=handle, from_controller=True)
