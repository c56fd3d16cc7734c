"""All ACL entries of a cluster, in the form that decisions want them; pure (SEC-78, 80, 81).

A table is never changed, a change makes another: so whoever decides needs no lock.
Source: Kafka 2.8.0 security/authorizer/AclAuthorizer.scala.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self

from kafkatool.core.model.acls import (
    ANYBODY,
    IMPLIED_BY,
    WILDCARD,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_Hosts = Mapping[tuple[str, Operation], Collection[str]]  # by principal and operation


class _Rules(NamedTuple):
    """The entries about one pattern, looked up in a few steps however many there are."""

    entries: frozenset[Entry]
    allowed: _Hosts
    denied: _Hosts

    @classmethod
    def of(cls, entries: frozenset[Entry]) -> Self:
        hosts: dict[Permission, dict[tuple[str, Operation], set[str]]] = {Permission.ALLOW: {}, Permission.DENY: {}}
        for principal, host, operation, permission in entries:
            if permission in hosts:
                hosts[permission].setdefault((principal, operation), set()).add(host)
        return cls(entries, hosts[Permission.ALLOW], hosts[Permission.DENY])


_UNREADABLE: Final = _Rules(frozenset(), {}, {(ANYBODY, Operation.ALL): {WILDCARD}})
"""What a node stands for that cannot be read: it lets nobody in (SEC-78)."""


def _names(hosts: _Hosts, principal: str, host: str, operations: Iterable[Operation]) -> bool:
    for operation in operations:
        for who in (principal, ANYBODY):
            found = hosts.get((who, operation))
            if found is not None and (host in found or WILDCARD in found):
                return True
    return False


class AclTable:
    """The entries by pattern. ``rules`` is the table's own; begin with ``AclTable()`` and ``with_entries``."""

    def __init__(self, rules: Mapping[ResourcePattern, _Rules] | None = None) -> None:
        self._rules = rules or {}
        lengths: dict[ResourceType, set[int]] = {}
        for kind, name, pattern_type in self._rules:
            if pattern_type is PatternType.PREFIXED:
                lengths.setdefault(kind, set()).add(len(name))
        self._prefix_lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def with_entries(self, changed: Mapping[ResourcePattern, frozenset[Entry] | None]) -> Self:
        """Return the table with other entries about those patterns. None: those that are there cannot be read."""
        rules = dict(self._rules)
        for pattern, entries in changed.items():
            if entries is None:
                rules[pattern] = _UNREADABLE
            elif entries:
                rules[pattern] = _Rules.of(entries)
            else:
                rules.pop(pattern, None)
        return type(self)(rules)

    def __iter__(self) -> Iterator[tuple[ResourcePattern, frozenset[Entry]]]:
        for pattern, rules in self._rules.items():
            yield pattern, rules.entries

    def entries(self, pattern: ResourcePattern) -> frozenset[Entry]:
        """Return the entries about just that pattern."""
        rules = self._rules.get(pattern)
        return frozenset() if rules is None else rules.entries

    def decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool | None:
        """Tell whether that may be done; None: no entry is about that resource."""
        applying = list(self._about(kind, name))
        if not applying:
            return None
        denying = (operation, Operation.ALL)
        if any(_names(rules.denied, principal, host, denying) for rules in applying):
            return False
        allowing = (operation, Operation.ALL, *IMPLIED_BY.get(operation, ()))
        return any(_names(rules.allowed, principal, host, allowing) for rules in applying)

    def decide_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool | None:
        """Tell whether that may be done to some resource of the type; None: nothing allows it, nothing denies it all."""
        asked = (operation, Operation.ALL)
        whole = self._rules.get(ResourcePattern(kind, WILDCARD, PatternType.LITERAL))
        if whole is not None and _names(whole.denied, principal, host, asked):
            return False
        for pattern, rules in self._rules.items():
            if pattern.type is not kind or not _names(rules.allowed, principal, host, asked):
                continue
            if rules is whole or not self._denies_all_of(pattern, principal, host, asked):
                return True
        return None

    def _denies_all_of(
        self, pattern: ResourcePattern, principal: str, host: str, operations: Iterable[Operation]
    ) -> bool:
        """Tell whether entries about it, or about a prefix of it, take back what it allows."""
        if pattern.pattern_type is PatternType.LITERAL and self._denied_by(pattern, principal, host, operations):
            return True
        return any(
            _names(rules.denied, principal, host, operations) for rules in self._prefixes(pattern[0], pattern[1])
        )

    def _denied_by(self, pattern: ResourcePattern, principal: str, host: str, operations: Iterable[Operation]) -> bool:
        return _names(self._rules[pattern].denied, principal, host, operations)

    def _about(self, kind: ResourceType, name: str) -> Iterator[_Rules]:
        for literal in (name, WILDCARD):
            rules = self._rules.get(ResourcePattern(kind, literal, PatternType.LITERAL))
            if rules is not None:
                yield rules
            if name == WILDCARD:
                break
        yield from self._prefixes(kind, name)

    def _prefixes(self, kind: ResourceType, name: str) -> Iterator[_Rules]:
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                return
            rules = self._rules.get(ResourcePattern(kind, name[:length], PatternType.PREFIXED))
            if rules is not None:
                yield rules
