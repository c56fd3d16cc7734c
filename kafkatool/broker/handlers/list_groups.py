"""ListGroups (key 16), versions 0-4: the groups this broker coordinates (GRP-59). Clients ask every broker.

From version 4 on with their states, and only those in the states asked for (KIP-518).
"""

from kafkatool.broker.handlers.authorization import by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages.list_groups import API, ListedGroup, ListGroupsRequest, ListGroupsResponse


@Served(API, versions=(0, 4), asks=(by_handler,))
def handle(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    error, groups = call.context.groups.list_groups()
    wanted = frozenset(request.states_filter)
    shows_all = call.allows(Operation.DESCRIBE, ResourceType.CLUSTER, asked=False)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(group_id=group, protocol_type=kind, group_state=state)
            for group, kind, state in groups
            if (not wanted or state in wanted)
            and (shows_all or call.allows(Operation.DESCRIBE, ResourceType.GROUP, group, asked=False))
        ],
    )
