"""DescribeGroups (key 15), versions 0-5: state, protocol, members and their assignments (GRP-58)."""

from kafkatool.broker.handlers.authorization import NOT_ASKED_FOR, groups, operations_on
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages.describe_groups import (
    API,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(API, versions=(0, 5), asks=(groups(Operation.DESCRIBE, "groups"),))
def handle(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    asked = request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=[_describe(group, call, operations=asked) for group in dict.fromkeys(request.groups)]
    )


def _describe(group: str, call: Call, *, operations: bool) -> DescribedGroup:
    found = call.context.groups.describe(group)
    return DescribedGroup(
        error_code=found.error,
        group_id=group,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
        authorized_operations=(
            operations_on(call, ResourceType.GROUP, group)
            if operations and found.error is ErrorCode.NONE
            else NOT_ASKED_FOR
        ),
    )
