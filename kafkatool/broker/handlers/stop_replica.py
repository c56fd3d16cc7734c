"""StopReplica (key 5), versions 0-2: stop replicating partitions, and delete them if asked (BRK-109 to 111)."""

from kafkatool.broker.handlers.call import Call
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def handle(request: StopReplicaRequest, call: Call) -> StopReplicaResponse:
    """Obeyed, or refused; the group coordinator learns of deleted partitions."""
    context = call.context
    return context.replica_manager.control.stop_replicas(request, context.groups.on_partitions_stopped)
