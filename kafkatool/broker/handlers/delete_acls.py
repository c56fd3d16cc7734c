"""DeleteAcls (key 31), versions 0-2: remove what filters select; answered when this broker goes by it (SEC-88, ADM-76)."""

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.describe_acls import NO_AUTHORIZER, filter_of
from kafkatool.core.model.acls import Binding, Filter, Operation
from kafkatool.core.protocol.messages import delete_acls as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=(cluster(Operation.ALTER, with_text=True),))
def handle(request: wire.DeleteAclsRequest, call: Call) -> wire.DeleteAclsResponse:
    admin = call.context.acl_admin
    read: list[Filter | AdminError] = [_read(one) if admin is not None else NO_AUTHORIZER for one in request.filters]
    removed = iter(() if admin is None else admin.remove([one for one in read if isinstance(one, Filter)]))
    return wire.DeleteAclsResponse(
        filter_results=[
            wire.DeleteAclsFilterResult(error_code=one.code, error_message=str(one), matching_acls=[])
            if isinstance(one, AdminError)
            else wire.DeleteAclsFilterResult(matching_acls=[_told(*gone) for gone in next(removed)])
            for one in read
        ]
    )


def _read(one: wire.DeleteAclsFilter) -> Filter | AdminError:
    try:
        return filter_of(one)
    except AdminError as e:
        return e


def _told(binding: Binding, error: AdminError | None) -> wire.DeletedAcl:
    pattern, entry = binding
    return wire.DeletedAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
