"""Heartbeat (key 12), versions 0-4: a member lives, and learns of a rebalance (GRP-19, 43)."""

from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse


@Served(API, versions=(0, 4), asks=(group(Operation.READ),), quick=True)
def handle(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    groups = call.context.groups
    if request.group_instance_id is not None and not groups.static_members_allowed:
        return HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    error = groups.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=error)
