"""StopReplica (key 5), versions 0-2: stop replicating partitions, and delete them if asked (BRK-109 to 111)."""

from operator import attrgetter

from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.stop_replica import API, StopReplicaRequest, StopReplicaResponse


@Served(
    API,
    versions=(0, 2),
    asks=(cluster(Operation.CLUSTER_ACTION),),
    between_brokers=attrgetter("controller_id"),
    from_controller=True,
)
def handle(request: StopReplicaRequest, call: Call) -> StopReplicaResponse:
    """Stop the replicas, or refuse; the coordinators are told of deleted partitions."""
    context = call.context
    return context.replica_manager.control.stop_replicas(request, context.on_partitions_stopped)
