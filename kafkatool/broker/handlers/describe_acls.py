"""DescribeAcls (key 29), versions 0-2: the entries that a filter selects, as this broker goes by them (SEC-88, ADM-76)."""

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Filter, Operation, PatternType, Permission, ResourceType
from kafkatool.core.protocol.messages import describe_acls as wire
from kafkatool.core.protocol.messages.delete_acls import DeleteAclsFilter
from kafkatool.core.protocol.messages.error_codes import ErrorCode

NO_AUTHORIZER = AdminError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


@Served(wire.API, versions=(0, 2), asks=(cluster(Operation.DESCRIBE, with_text=True),))
def handle(request: wire.DescribeAclsRequest, call: Call) -> wire.DescribeAclsResponse:
    admin = call.context.acl_admin
    try:
        if admin is None:
            raise NO_AUTHORIZER
        found = admin.find(filter_of(request))
    except AdminError as e:
        return wire.DescribeAclsResponse(error_code=e.code, error_message=str(e), resources=[])
    return wire.DescribeAclsResponse(
        resources=[
            wire.DescribedAclResource(
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[
                    wire.DescribedAcl(
                        principal=one.principal, host=one.host, operation=one.operation, permission_type=one.permission
                    )
                    for one in entries
                ],
            )
            for pattern, entries in found.items()
            if call.header.api_version > 0 or pattern.pattern_type is PatternType.LITERAL
        ]
    )


def filter_of(request: wire.DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    """Read a filter. Raises AdminError for numbers that stand for nothing."""
    try:
        return Filter(
            ResourceType(request.resource_type),
            request.resource_name,
            PatternType(request.pattern_type),
            request.principal,
            request.host,
            Operation(request.operation),
            Permission(request.permission_type),
        )
    except ValueError as e:
        raise AdminError(ErrorCode.INVALID_REQUEST, f"the filter names what is not known: {e}") from e
