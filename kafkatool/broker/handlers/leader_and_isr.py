"""LeaderAndIsr (key 4), versions 0-2: what this broker leads and follows, as the controller decided (BRK-23 to 33)."""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.leader_and_isr import API, LeaderAndIsrRequest, LeaderAndIsrResponse


def handle(request: LeaderAndIsrRequest, call: Call) -> LeaderAndIsrResponse:
    """Take the roles, or refuse them, partition by partition; the group coordinator is told of changes first."""
    context = call.context
    return context.replica_manager.control.become_leader_or_follower(
        request, context.groups.on_leadership_change, correlation_id=call.header.correlation_id
    )


SERVED = Served(api=API, versions=(0, 2), handle=handle, from_controller=True)
