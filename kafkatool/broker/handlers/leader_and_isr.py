"""LeaderAndIsr (key 4), versions 0-2: what this broker leads and follows, as the controller decided (BRK-23 to 33)."""

from operator import attrgetter

from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.leader_and_isr import API, LeaderAndIsrRequest, LeaderAndIsrResponse


@Served(
    API,
    versions=(0, 2),
    asks=(cluster(Operation.CLUSTER_ACTION),),
    between_brokers=attrgetter("controller_id"),
    from_controller=True,
)
def handle(request: LeaderAndIsrRequest, call: Call) -> LeaderAndIsrResponse:
    """Take the roles, or refuse them, partition by partition; the coordinators are told of changes first."""
    context = call.context
    return context.replica_manager.control.become_leader_or_follower(
        request, context.on_leadership_change, correlation_id=call.header.correlation_id
    )
