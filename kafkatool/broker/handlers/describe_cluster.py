"""DescribeCluster (key 60), version 0: live brokers, controller and cluster id (ADM-80; KIP-700).

Endpoints are those of the listener the request came in on. Not served: ACLs; a client that asks for authorized
operations is told all of them.
"""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    snapshot = call.context.metadata_cache.snapshot
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
    return DescribeClusterResponse(
        cluster_id=call.context.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in snapshot.brokers.values()
            if (endpoint := broker.endpoint(call.listener))
        ],
        cluster_authorized_operations=operations,
    )


SERVED = Served(api=API, versions=(0, 0), handle=handle)
