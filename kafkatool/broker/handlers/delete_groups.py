"""DeleteGroups (key 42), versions 0-1: groups without members and all they committed (GRP-60; KIP-229).

Answered when the tombstones of all groups are replicated, which Kafka does not wait for.
"""

import threading

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.protocol.messages.delete_groups import (
    API,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


def handle(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse | None:
    names = list(dict.fromkeys(request.group_names))
    if not names:
        return DeleteGroupsResponse(results=[])
    codes: dict[str, ErrorCode] = {}
    lock = threading.Lock()

    def done(name: str, code: ErrorCode) -> None:
        with lock:
            codes[name] = code
            if len(codes) < len(names):
                return
        call.respond(DeleteGroupsResponse(results=[DeleteGroupsResult(group_id=n, error_code=codes[n]) for n in names]))

    for name in names:
        call.context.groups.delete(name, lambda code, name=name: done(name, code))  # type: ignore[misc]
    return None


SERVED = Served(api=API, versions=(0, 1), handle=handle)
