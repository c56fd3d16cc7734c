"""LeaveGroup (key 13), versions 0-2: a member goes at once instead of by its session's end (GRP-45)."""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.leave_group import API, LeaveGroupRequest, LeaveGroupResponse


def handle(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=call.context.groups.leave(request.group_id, request.member_id))


SERVED = Served(api=API, versions=(0, 2), handle=handle)
