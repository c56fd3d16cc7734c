"""SyncGroup (key 14), versions 0-5: the leader hands in the assignment, the others fetch theirs (GRP-41). Parked."""

from kafkatool.broker.groups.member import Parked, SyncResult
from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.sync_group import API, SyncGroupRequest, SyncGroupResponse

_TELLS_PROTOCOL = 5  # the member tells type and protocol from this version on (KIP-559)


@Served(API, versions=(0, 5), asks=(group(Operation.READ),))
def handle(request: SyncGroupRequest, call: Call) -> SyncGroupResponse | None:
    if request.group_instance_id is not None and not call.context.groups.static_members_allowed:
        return SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    told: tuple[str, str] | None = None
    if call.header.api_version >= _TELLS_PROTOCOL:
        if request.protocol_type is None or request.protocol_name is None:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        told = request.protocol_type, request.protocol_name

    def answer(result: SyncResult) -> None:
        if result.error is not ErrorCode.NONE:
            call.respond(SyncGroupResponse(error_code=result.error))
            return
        kind, protocol = told or (None, None)  # the group's: who tells others is refused
        call.respond(SyncGroupResponse(protocol_type=kind, protocol_name=protocol, assignment=result.assignment))

    call.context.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        {a.member_id: bytes(a.assignment) for a in request.assignments},
        Parked(answer, call.close),
        told,
    )
    return None
