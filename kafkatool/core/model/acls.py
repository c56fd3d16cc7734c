"""Access control lists: who may do what to which resources, as values; what matches, and what implies what (SEC-78, 80).

Principals are texts here (``User:alice``), hosts addresses as Java writes them. Source: Kafka 2.8.0 common/acl/*.java,
common/resource/*.java, security/authorizer/AclEntry.scala.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple, Self

from kafkatool.core.errors import KafkatoolError

WILDCARD: Final = "*"
"""As a resource's name: all of the type. As a host: any."""
ANYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one name that a resource of type CLUSTER has."""


class _Word(IntEnum):
    """A number on the wire, and a word in znodes and on command lines.

    One that no release known here has is shown and kept as it came: ``of`` and ``named`` make it, none is a member.
    """

    @property
    def is_known(self) -> bool:
        return self._name_ in type(self).__members__

    @property
    def word(self) -> str:
        """Return it as znodes have it: ``TransactionalId``."""
        return self.name.title().replace("_", "") if self.is_known else self.name[len("UNKNOWN(") : -1]

    @classmethod
    def of(cls, number: int) -> Self:
        """Return what a broker means by a number, or the number as it came."""
        try:
            return cls(number)
        except ValueError:
            return cls._unknown(number, str(number))

    @classmethod
    def named(cls, word: str) -> Self:
        """Return what a node means by a word, or the word as it came."""
        try:
            return cls.read(word)
        except ValueError:
            return cls.strange(word)

    @classmethod
    def strange(cls, word: str) -> Self:
        """Return a word as it came; as a number it is like no other, and none on the wire."""
        return cls._unknown(int.from_bytes(b"\1" + word.encode()), word)

    @classmethod
    def _unknown(cls, number: int, came_as: str) -> Self:
        made = int.__new__(cls, number)
        made._name_, made._value_ = f"UNKNOWN({came_as})", number
        return made

    @classmethod
    def read(cls, text: str) -> Self:
        """Find what a word, or a name in capitals, stands for, without regard to case. Raises ValueError."""
        key = text.strip().replace("_", "").lower()
        for member in cls:
            if member.word.lower() == key:
                return member
        raise ValueError(f"{text!r} is none of {', '.join(member.word for member in cls)}")


class ResourceType(_Word):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7  # Kafka >= 3.3 has it, for delegation tokens: read and shown, asked for nowhere


class PatternType(_Word):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Word):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13  # Kafka >= 3.3, as the next; like USER they are read and shown, asked for and made nowhere
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15  # Kafka >= 4.0


class Permission(_Word):
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
IMPLIED_BY: Final[Mapping[Operation, tuple[Operation, ...]]] = {
    _O.DESCRIBE: (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.ALTER_CONFIGS,),
}
"""What else allows an operation; a Deny denies the operation named alone."""

OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
}  # fmt: skip
"""The operations that there are on a resource of that type; ALL besides."""


class ResourcePattern(NamedTuple):
    """The resources that an entry is about: those of one name, of any, or of names that begin so."""

    type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        """Return it as Kafka's tools print it."""
        return f"ResourcePattern(resourceType={self.type.name}, name={self.name}, patternType={self.pattern_type.name})"

    def covers(self, name: str) -> bool:
        """Tell whether a resource of that name, and of this type, is among them."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Entry(NamedTuple):
    """One line of a list: who, from where, what, and whether he may."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """Return it as Kafka's tools print it."""
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )

    @property
    def is_known(self) -> bool:
        """Tell whether nothing of it is unknown, or ANY, which is for filters: else nobody can say what it means."""
        any_of = self.operation is Operation.ANY or self.permission is Permission.ANY
        return self.operation.is_known and self.permission.is_known and not any_of


class Binding(NamedTuple):
    """An entry and what it is about."""

    pattern: ResourcePattern
    entry: Entry


@dataclass(frozen=True, slots=True)
class FoundAcls:
    """The entries that were found, by pattern, and by path why those of other nodes could not be read."""

    entries: Mapping[ResourcePattern, frozenset[Entry]]
    unreadable: Mapping[str, KafkatoolError] = field(default_factory=dict)

    def all(self) -> Mapping[ResourcePattern, frozenset[Entry]]:
        """Return the entries. Raises the first error where these are not all."""
        if self.unreadable:
            raise next(iter(self.unreadable.values()))
        return self.entries


class Filter(NamedTuple):
    """Which bindings are meant: None and ANY leave open; MATCH: all whose patterns cover the name."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @classmethod
    def just(cls, binding: Binding) -> Self:
        """Return the filter that means that binding and no other."""
        (kind, name, pattern_type), (principal, host, operation, permission) = binding
        return cls(kind, name, pattern_type, principal, host, operation, permission)

    @property
    def named(self) -> tuple[ResourcePattern, ...]:
        """Return the patterns of just its name that there can be; of others that it may mean nothing is known."""
        if self.name is None or _NO_NODE.search(self.name):
            return ()
        several = self.pattern_type in (PatternType.ANY, PatternType.MATCH)
        kinds = (PatternType.LITERAL, PatternType.PREFIXED) if several else (self.pattern_type,)
        return tuple(ResourcePattern(self.type, self.name, kind) for kind in kinds)

    def meets(self, pattern: ResourcePattern) -> bool:
        """Tell whether entries about that pattern may be meant."""
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.covers(self.name) if self.pattern_type is PatternType.MATCH else pattern.name == self.name

    def selects(self, entry: Entry) -> bool:
        """Tell whether that entry is meant, about a pattern that is."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


_NO_NODE = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^\.{0,2}$")  # ZooKeeper's own rule


def check_changeable(binding: Binding) -> None:
    """Raise ValueError for an entry that is only shown: releases of the cluster may not know it, or it is not known here."""
    (kind, _, pattern_type), (_, _, operation, permission) = binding
    unknown = [word for word in (kind, pattern_type, operation, permission) if not word.is_known]
    if operation > Operation.IDEMPOTENT_WRITE or unknown:
        named = unknown[0] if unknown else operation
        raise ValueError(
            f"an ACL about {named.name} is shown here, not changed: the tools of a Kafka release that has it do that"
        )


def check_binding(binding: Binding, *, prefixed_allowed: bool = True) -> None:
    """Raise ValueError if no node can hold that entry, or no broker would ever go by it (SEC-88)."""
    (kind, name, pattern_type), (principal, host, operation, permission) = binding
    if kind is ResourceType.ANY or operation is Operation.ANY or permission is Permission.ANY:
        raise ValueError("ANY is for filters: an ACL names resource type, operation and permission")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError(f"an ACL is about a literal or a prefixed pattern, not {pattern_type.name}")
    if pattern_type is PatternType.PREFIXED and not prefixed_allowed:
        raise ValueError("prefixed patterns need inter.broker.protocol.version 2.0")
    if _NO_NODE.search(name):
        raise ValueError(f"ACL binding contains invalid resource name: {name}")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise ValueError(f"the only resource of type CLUSTER is {CLUSTER_NAME}, not {name}")
    if not host:
        raise ValueError("an ACL names a host, or * for any")
    if not all(principal.partition(":")):
        raise ValueError(f"a principal is written Type:name, as User:alice, not {principal!r}")
    check_changeable(binding)


def as_sorted(bindings: Iterable[Binding]) -> dict[ResourcePattern, list[Entry]]:
    """Put entries under their patterns, both in order."""
    found: dict[ResourcePattern, list[Entry]] = {}
    for pattern, entry in sorted(set(bindings)):
        found.setdefault(pattern, []).append(entry)
    return found


@lru_cache(maxsize=4096)
def host_as_java_writes_it(address: str) -> str:
    """Spell a peer's address as ACLs do: IPv6 in all its groups without a scope, mapped IPv4 as IPv4 (SEC-80)."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))


def why_from_nowhere(host: str) -> str:
    """Say why no client can come from the host of an entry, which then means nobody; empty: one can (SEC-80)."""
    if host == WILDCARD:
        return ""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return "brokers go by single addresses, not by names or networks"
    written = host_as_java_writes_it(host)
    return "" if written == host else f"brokers write it {written}"
