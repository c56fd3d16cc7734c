"""What the flags of ``kt acls`` mean: resources, principals, and the entries for them, as kafka-acls reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from kafkatool.commands.completion import complete_topics
from kafkatool.commands.shared.bootstrap import NAMED_ZOOKEEPER, Bootstrap
from kafkatool.commands.shared.options import all_of, cluster_options
from kafkatool.core.errors import UsageError
from kafkatool.core.model.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

F = TypeVar("F", bound=Callable[..., Any])
O = Operation  # noqa: E741


def _keep_zookeeper(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> None:
    properties = dict(text.partition("=")[::2] for text in given)
    if named := properties.get("zookeeper.connect"):
        ctx.meta[NAMED_ZOOKEEPER] = named, "--authorizer-properties zookeeper.connect"


resource_options = all_of(
    cluster_options,
    click.option(
        "--authorizer-properties",
        metavar="KEY=VALUE",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_zookeeper,
        help="As kafka-acls takes them: zookeeper.connect=HOST:PORT, in place of --zookeeper.",
    ),
    click.option("--topic", multiple=True, shell_complete=complete_topics, help="This topic; * is any."),
    click.option("--group", multiple=True, help="This consumer group; * is any."),
    click.option("--cluster", is_flag=True, help="The cluster."),
    click.option("--transactional-id", multiple=True, help="This transactional id; * is any."),
    click.option("--delegation-token", multiple=True, help="This delegation token; * is any."),
    click.option(
        "--resource-pattern-type",
        type=click.Choice(("literal", "prefixed", "any", "match"), case_sensitive=False),
        default="literal",
        show_default=True,
        help="literal: of that name; prefixed: names that begin so; any: both; match: all that apply to the name.",
    ),
)
"""Where the cluster is, and which resources are meant."""

entry_options = all_of(
    click.option("--allow-principal", multiple=True, metavar="User:NAME", help="Who may. User:* is everybody."),
    click.option("--deny-principal", multiple=True, metavar="User:NAME", help="Who may not; goes before any allow."),
    click.option("--allow-host", multiple=True, metavar="ADDRESS", help="From where. [default: *]"),
    click.option("--deny-host", multiple=True, metavar="ADDRESS", help="From where not. [default: *]"),
    click.option("--operation", multiple=True, metavar="NAME", help="What, as Read or DescribeConfigs. [default: All]"),
    click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe, Create on its topics."),
    click.option(
        "--consumer", is_flag=True, help="What a consumer needs: Read, Describe on topics, Read on its group."
    ),
    click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster."),
)
"""Which entries are meant."""

NO_RESOURCE: Final = (
    "You must specify at least one resource: --topic <topic> or --cluster or --group <group> or "
    "--transactional-id <id> or --delegation-token <token>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The flags, as click has parsed them."""

    zookeeper: str | None
    bootstrap: Bootstrap | None
    topic: Sequence[str]
    group: Sequence[str]
    cluster: bool
    transactional_id: Sequence[str]
    delegation_token: Sequence[str]
    resource_pattern_type: str
    allow_principal: Sequence[str] = ()
    deny_principal: Sequence[str] = ()
    allow_host: Sequence[str] = ()
    deny_host: Sequence[str] = ()
    operation: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.read(self.resource_pattern_type)

    @property
    def filters(self) -> list[Filter]:
        """Return which patterns are meant; none named: all there are."""
        kind = self.pattern_type
        named = [
            (ResourceType.TOPIC, self.topic),
            (ResourceType.GROUP, self.group),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
            (ResourceType.DELEGATION_TOKEN, self.delegation_token),
        ]
        found = [Filter(type_, name.strip(), kind) for type_, names in named for name in names]
        if self.cluster or (self.idempotent and self.producer):
            found.append(Filter(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        return found

    def patterns(self) -> list[ResourcePattern]:
        """Return the patterns to add entries to. Raises UsageError."""
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise UsageError(
                f"A '--resource-pattern-type' value of '{self.pattern_type.name}' is not valid when adding acls."
            )
        if not self.filters:
            raise UsageError(NO_RESOURCE)
        return [ResourcePattern(one.type, one.name or "", one.pattern_type) for one in self.filters]

    def bindings(self) -> list[Binding]:
        """Return each pattern with each entry that the flags make for it. Raises UsageError."""
        return [Binding(pattern, entry) for pattern in self.patterns() for entry in self.entries(pattern.type)]

    @property
    def names_entries(self) -> bool:
        """Tell whether single entries are meant, not all of a resource."""
        return bool(self.allow_principal or self.deny_principal or self.producer or self.consumer)

    def entries(self, kind: ResourceType) -> list[Entry]:
        """Return the entries meant for resources of that type. Raises UsageError."""
        self._check()
        operations = self._operations(kind)
        sides = (
            (Permission.ALLOW, self.allow_principal, self.allow_host),
            (Permission.DENY, self.deny_principal, self.deny_host),
        )
        return [
            Entry(who.strip(), host.strip(), operation, permission)
            for permission, principals, hosts in sides
            for who in principals
            for host in hosts or (WILDCARD,)
            for operation in operations
        ]

    def _operations(self, kind: ResourceType) -> list[Operation]:
        if self.producer or self.consumer:
            return [operation for role in self._roles() for operation in role.get(kind, ())]
        try:
            operations = [Operation.read(name) for name in self.operation] or [Operation.ALL]
        except ValueError as e:
            raise UsageError(f"--operation: {e}") from e
        supported = (*OPERATIONS[kind], Operation.ALL)
        if wrong := [one for one in operations if one not in supported]:
            raise UsageError(
                f"ResourceType {kind.name} only supports operations {','.join(one.name for one in supported)}, "
                f"not {wrong[0].name}"
            )
        return operations

    def _roles(self) -> list[dict[ResourceType, tuple[Operation, ...]]]:
        roles: list[dict[ResourceType, tuple[Operation, ...]]] = []
        if self.producer:
            roles.append(
                {
                    ResourceType.TOPIC: (O.WRITE, O.DESCRIBE, O.CREATE),
                    ResourceType.TRANSACTIONAL_ID: (O.WRITE, O.DESCRIBE),
                    ResourceType.CLUSTER: (O.IDEMPOTENT_WRITE,) if self.idempotent else (),
                }
            )
        if self.consumer:
            roles.append({ResourceType.TOPIC: (O.READ, O.DESCRIBE), ResourceType.GROUP: (O.READ,)})
        return roles

    def _check(self) -> None:
        for who in (*self.allow_principal, *self.deny_principal):
            if not all(who.partition(":")):
                raise UsageError(f"{who!r} is no principal: write User:NAME")
        if self.allow_host and not self.allow_principal:
            raise UsageError("--allow-host needs --allow-principal")
        if self.deny_host and not self.deny_principal:
            raise UsageError("--deny-host needs --deny-principal")
        if self.idempotent and not self.producer:
            raise UsageError("--idempotent needs --producer")
        if self.producer or self.consumer:
            if self.operation or self.deny_principal:
                raise UsageError("--producer and --consumer say which operations are allowed: no --operation, no deny")
            if not self.topic:
                raise UsageError("With --producer and --consumer you must specify a --topic")
            if self.consumer and not self.group:
                raise UsageError("With --consumer you must specify a --topic and a --group")
