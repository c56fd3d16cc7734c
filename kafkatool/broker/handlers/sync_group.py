"""SyncGroup (key 14), versions 0-3: the leader hands in the assignment, the others fetch theirs (GRP-41). Parked."""

from kafkatool.broker.groups.member import Parked, SyncResult
from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.sync_group import API, SyncGroupRequest, SyncGroupResponse


@Served(API, versions=(0, 3), asks=(group(Operation.READ),))
def handle(request: SyncGroupRequest, call: Call) -> SyncGroupResponse | None:
    if request.group_instance_id is not None and not call.context.groups.static_members_allowed:
        return SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def answer(result: SyncResult) -> None:
        assignment = result.assignment if result.error is ErrorCode.NONE else b""
        call.respond(SyncGroupResponse(error_code=result.error, assignment=assignment))

    call.context.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        {a.member_id: bytes(a.assignment) for a in request.assignments},
        Parked(answer, call.close),
    )
    return None
