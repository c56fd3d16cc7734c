"""ListGroups (key 16), versions 0-2: the groups this broker coordinates (GRP-59). Clients ask every broker."""

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.list_groups import API, ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    error, groups = call.context.groups.list_groups()
    return ListGroupsResponse(
        error_code=error, groups=[ListedGroup(group_id=group, protocol_type=kind) for group, kind in groups]
    )


SERVED = Served(api=API, versions=(0, 2), handle=handle)
