"""LeaveGroup (key 13), versions 0-4: members go at once instead of by their session's end (GRP-45)."""

from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leave_group import (
    API,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
)

_SEVERAL = 3


@Served(API, versions=(0, 4), asks=(group(Operation.READ),))
def handle(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    several = call.header.api_version >= _SEVERAL
    members = request.members if several else [LeavingMember(member_id=request.member_id)]
    outcome = call.context.groups.leave(request.group_id, [(one.member_id, one.group_instance_id) for one in members])
    if isinstance(outcome, ErrorCode):
        return LeaveGroupResponse(error_code=outcome)
    if not several:
        return LeaveGroupResponse(error_code=outcome[0])
    return LeaveGroupResponse(
        members=[
            LeftMember(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
            for one, error in zip(members, outcome, strict=True)
        ]
    )
