"""JoinGroup (key 11), versions 0-7: enter a group or come back to it (GRP-21 to 38). Parked until the join phase ends."""

from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked
from kafkatool.broker.handlers.authorization import group
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import join_group as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NAMES_TYPE = 7  # from this version on an answer names the group's type, and no protocol by null


@Served(wire.API, versions=(0, 7), asks=(group(Operation.READ),))
def handle(request: wire.JoinGroupRequest, call: Call) -> wire.JoinGroupResponse | None:
    if request.group_instance_id is not None and not call.context.groups.static_members_allowed:
        return wire.JoinGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, member_id=request.member_id)
    wanted = JoinRequest(
        request.member_id,
        request.group_instance_id,
        call.header.client_id or "",
        f"/{call.client_host}",
        request.session_timeout_ms,
        request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
        request.protocol_type,
        tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        needs_known_id=call.header.api_version >= 4,
        connection=call.connection,
    )
    call.context.groups.join(
        request.group_id, wanted, Parked(lambda result: call.respond(_response(request, call, result)), call.close)
    )
    return None


def _response(request: wire.JoinGroupRequest, call: Call, result: JoinResult) -> wire.JoinGroupResponse:
    names_none = call.header.api_version >= _NAMES_TYPE and not result.protocol
    return wire.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        # Who is let in has the group's type.
        protocol_type=request.protocol_type if result.error is ErrorCode.NONE else None,
        protocol_name=None if names_none else result.protocol,
        leader=result.leader,
        member_id=result.member_id,
        members=[
            wire.JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )
