"""LeaveGroup (key 13), versions 0-2: a member goes at once instead of by its session's end (GRP-45)."""

from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.leave_group import API, LeaveGroupRequest, LeaveGroupResponse


@Served(API, versions=(0, 2), asks=(group(Operation.READ),))
def handle(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=call.context.groups.leave(request.group_id, request.member_id))
