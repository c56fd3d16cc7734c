"""DeleteGroups (key 42), versions 0-2: groups without members and all they committed (GRP-60; KIP-229).

Answered when the tombstones of all groups are replicated, which Kafka does not wait for.
"""

import threading

from kafkatool.broker.handlers.authorization import groups
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import delete_groups as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=(groups(Operation.DELETE, "group_names"),))
def handle(request: wire.DeleteGroupsRequest, call: Call) -> wire.DeleteGroupsResponse | None:
    names = list(dict.fromkeys(request.group_names))
    if not names:
        return wire.DeleteGroupsResponse(results=[])
    codes: dict[str, ErrorCode] = {}
    lock = threading.Lock()

    def done(name: str, code: ErrorCode) -> None:
        with lock:
            codes[name] = code
            if len(codes) < len(names):
                return
        call.respond(
            wire.DeleteGroupsResponse(results=[wire.DeleteGroupsResult(group_id=n, error_code=codes[n]) for n in names])
        )

    for name in names:
        call.context.groups.delete(name, lambda code, name=name: done(name, code))  # type: ignore[misc]
    return None
