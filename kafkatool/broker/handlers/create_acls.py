"""CreateAcls (key 30), versions 0-2: add entries; answered when this broker goes by them (SEC-88, 89, ADM-76)."""

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.describe_acls import NO_AUTHORIZER
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.protocol.messages import create_acls as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=(cluster(Operation.ALTER, with_text=True),))
def handle(request: wire.CreateAclsRequest, call: Call) -> wire.CreateAclsResponse:
    admin = call.context.acl_admin
    outcomes: list[AdminError | None]
    if admin is None:
        outcomes = [NO_AUTHORIZER] * len(request.creations)
    else:
        outcomes = admin.add([_binding(one) for one in request.creations])
    return wire.CreateAclsResponse(
        results=[
            wire.AclCreationResult()
            if error is None
            else wire.AclCreationResult(error_code=error.code, error_message=str(error))
            for error in outcomes
        ]
    )


def _binding(one: wire.AclCreation) -> Binding | AdminError:
    try:
        pattern = ResourcePattern(ResourceType(one.resource_type), one.resource_name, PatternType(one.pattern_type))
        return Binding(
            pattern, Entry(one.principal, one.host, Operation(one.operation), Permission(one.permission_type))
        )
    except ValueError as e:
        return AdminError(ErrorCode.INVALID_REQUEST, f"the ACL names what is not known: {e}")
