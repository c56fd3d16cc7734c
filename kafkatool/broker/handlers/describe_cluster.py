"""DescribeCluster (key 60), versions 0-1: live brokers, controller and cluster id (ADM-80; KIP-700, KIP-919).

Endpoints are those of the listener the request came in on. Brokers and controller are told to everybody. Who asks for the
controllers of a cluster without ZooKeeper is told that this is no such endpoint.
"""

from kafkatool.broker.handlers.authorization import cluster_operations
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import describe_cluster as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 1), asks=())
def handle(request: wire.DescribeClusterRequest, call: Call) -> wire.DescribeClusterResponse:
    wanted = request.endpoint_type
    if wanted == wire.CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if wanted != wire.BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}")
    snapshot = call.context.metadata_cache.snapshot
    return wire.DescribeClusterResponse(
        cluster_id=call.context.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        brokers=[
            wire.DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in snapshot.brokers.values()
            if (endpoint := broker.endpoint(call.listener))
        ],
        cluster_authorized_operations=cluster_operations(call, asked_for=request.include_cluster_authorized_operations),
    )


def _refused(error: ErrorCode, message: str) -> wire.DescribeClusterResponse:
    return wire.DescribeClusterResponse(error_code=error, error_message=message, cluster_id="", brokers=[])
