"""The nodes that hold ACLs for an authorizer, and those that tell of their changes (SEC-77, 78).

No other module spells their paths. Names of resources stand in paths as they are; none may hold a slash.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType

_VERSION: Final = 1
_LITERAL, _EXTENDED = "/kafka-acl", "/kafka-acl-extended"
_PREFIXED = f"{_EXTENDED}/prefixed"
ACL_ROOTS: Final = {PatternType.LITERAL: _LITERAL, PatternType.PREFIXED: _PREFIXED}
"""Where the nodes of the types of resources lie, by type of pattern."""
_TYPES: Final = tuple(t for t in ResourceType if t not in (ResourceType.ANY, ResourceType.USER))


class AclZnode:
    """/kafka-acl/Type/name, /kafka-acl-extended/prefixed/Type/name: the entries about one pattern."""

    @staticmethod
    def type_path(kind: ResourceType, pattern_type: PatternType) -> str:
        return f"{ACL_ROOTS[pattern_type]}/{kind.word}"

    @classmethod
    def path(cls, pattern: ResourcePattern) -> str:
        return f"{cls.type_path(pattern.type, pattern.pattern_type)}/{pattern.name}"

    @staticmethod
    def encode(entries: Iterable[Entry]) -> bytes:
        acls = [
            {
                "principal": principal,
                "permissionType": permission.word,
                "operation": operation.word,
                "host": host,
            }
            for principal, host, operation, permission in entries
        ]
        return orjson.dumps({"version": _VERSION, "acls": acls})

    @classmethod
    def decode(cls, pattern: ResourcePattern, data: bytes) -> frozenset[Entry]:
        """Read the entries; no content means none. Raises ZnodeFormatError: then nobody may be let in by it (SEC-78)."""
        if not data.strip():
            return frozenset()
        path = cls.path(pattern)
        try:
            value = orjson.loads(data)
            if value["version"] != _VERSION:
                raise ValueError(f"version {value['version']!r} is not supported")
            return frozenset(
                Entry(
                    _text(one["principal"]),
                    _text(one["host"]),
                    Operation.named(one["operation"]),
                    Permission.named(one["permissionType"]),
                )
                for one in value["acls"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise ZnodeFormatError(f"znode {path} holds no ACLs that can be read: {e}") from e

    @classmethod
    def check_known(cls, pattern: ResourcePattern, entries: Iterable[Entry]) -> None:
        """Raise ZnodeFormatError, too, for an entry that is not understood: it may deny what another allows."""
        if strange := [str(entry) for entry in sorted(entries) if not entry.is_known]:
            raise ZnodeFormatError(f"znode {cls.path(pattern)} holds ACLs that are not known: {', '.join(strange)}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


class AclChangeZnode:
    """The sequence nodes that tell brokers which pattern's node to read again.

    /kafka-acl-changes/acl_changes_N in the form of Kafka 2.3, which all versions read: ``Topic:orders``;
    /kafka-acl-extended-changes/acl_changes_N is JSON.
    """

    PATHS: Final = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}

    @classmethod
    def prefix(cls, pattern: ResourcePattern) -> str:
        return f"{cls.PATHS[pattern.pattern_type]}/acl_changes_"

    @staticmethod
    def encode(pattern: ResourcePattern) -> bytes:
        if pattern.pattern_type is PatternType.LITERAL:
            return f"{pattern.type.word}:{pattern.name}".encode()
        value = {
            "version": _VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
        return orjson.dumps(value)

    @classmethod
    def decode(cls, pattern_type: PatternType, data: bytes) -> ResourcePattern:
        """Read which pattern changed. Raises ZnodeFormatError: any of them may have."""
        try:
            if pattern_type is PatternType.LITERAL:
                kind, _, name = data.decode().partition(":")
                return ResourcePattern(ResourceType.read(kind), name, PatternType.LITERAL)
            value = orjson.loads(data)
            return ResourcePattern(
                ResourceType.read(value["resourceType"]),
                _text(value["name"]),
                PatternType.read(value["patternType"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise ZnodeFormatError(f"a change of ACLs below {cls.PATHS[pattern_type]} holds {data!r}") from e


ACL_PATHS: Final[Sequence[str]] = (
    *(AclZnode.type_path(kind, pattern_type) for pattern_type in ACL_ROOTS for kind in _TYPES),
    *AclChangeZnode.PATHS.values(),
)
"""The nodes that a broker with an authorizer makes sure exist at its start; their parents besides."""
