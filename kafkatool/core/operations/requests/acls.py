"""ACLs by requests: what any broker with an authorizer tells and takes (SEC-88, SEC-91)."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import create_acls, delete_acls, describe_acls
from kafkatool.core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkatool.core.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkatool.core.protocol.messages.describe_acls import DescribeAclsRequest

Bindings = Mapping[ResourcePattern, Collection[Entry]]


def description(wanted: Filter) -> DescribeAclsRequest:
    """Make the request that asks for the entries a filter selects."""
    return DescribeAclsRequest(**_fields(wanted))


def read_acls(client: ClusterClient, wanted: Filter) -> dict[ResourcePattern, frozenset[Entry]]:
    """Ask for the entries that a filter selects, by pattern. Raises BrokerAnswerError."""
    request = description(wanted)
    # A broker that knows one kind of pattern only tells all there are by that kind.
    least = 0 if wanted.pattern_type is PatternType.ANY else _least(wanted.pattern_type)
    answer = client.any(describe_acls.API, request, least=least)
    if answer.error_code:
        raise client.refusal(describe_acls.API, answer.error_code, answer.error_message)
    return {
        ResourcePattern(ResourceType.of(r.resource_type), r.resource_name, PatternType.of(r.pattern_type)): frozenset(
            Entry(a.principal, a.host, Operation.of(a.operation), Permission.of(a.permission_type)) for a in r.acls
        )
        for r in answer.resources
    }


def creation(bindings: Bindings) -> CreateAclsRequest:
    """Make the request that adds these entries."""
    return CreateAclsRequest(creations=[AclCreation(**fields) for fields in _fields_of_each(bindings)])


def deletion(bindings: Bindings) -> DeleteAclsRequest:
    """Make the request that removes just these entries."""
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**fields) for fields in _fields_of_each(bindings)])


def add_acls(client: ClusterClient, bindings: Bindings) -> None:
    """Have these entries added. Raises BrokerAnswerError, the first refusal; what is not refused is done."""
    answer = client.any(create_acls.API, creation(bindings), least=least_for(bindings))
    _check(client, create_acls.API, ((one.error_code, one.error_message) for one in answer.results))


def remove_acls(client: ClusterClient, bindings: Bindings) -> None:
    """Have these entries removed; one that is gone already is none to refuse. Raises as ``add_acls``."""
    answer = client.any(delete_acls.API, deletion(bindings), least=least_for(bindings))
    removed = answer.filter_results
    _check(client, delete_acls.API, ((one.error_code, one.error_message) for one in removed))
    _check(client, delete_acls.API, ((a.error_code, a.error_message) for one in removed for a in one.matching_acls))


def _fields_of_each(bindings: Bindings) -> list[dict[str, Any]]:
    return [_fields(Filter.just(Binding(pattern, entry))) for pattern, entries in bindings.items() for entry in entries]


def _fields(wanted: Filter) -> dict[str, Any]:
    """Return a filter as the seven fields that all messages about ACLs share."""
    return {
        "resource_type": wanted.type,
        "resource_name": wanted.name,
        "pattern_type": wanted.pattern_type,
        "principal": wanted.principal,
        "host": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def least_for(bindings: Bindings) -> int:
    """Return the first version that can say what kinds of patterns these are."""
    return max((_least(pattern.pattern_type) for pattern, entries in bindings.items() if entries), default=0)


def _least(kind: PatternType) -> int:
    return 0 if kind is PatternType.LITERAL else 1


def _check(client: ClusterClient, api: Api, outcomes: Iterable[tuple[int, str | None]]) -> None:
    for code, message in outcomes:
        if code:
            raise client.refusal(api, code, message)
