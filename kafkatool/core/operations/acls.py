"""Reading and changing the ACLs that an authorizer goes by (SEC-88, 89, 92).

A change reads the node, merges, and writes with the version it read and makes one change node, both or neither: brokers
that were not told would go by what they know for ever. Two that add at once lose nothing. What stays as it is is not
written. A person's command tells of it all the same, and so does a broker that did not know it yet: Kafka's brokers write
first and then tell, so it may be the second try of what was cut short in between.
"""

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import (
    KafkatoolError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RefusedError,
    VersionConflictError,
    ZnodeFormatError,
)
from kafkatool.core.model.acls import Entry, Filter, FoundAcls, PatternType, ResourcePattern, ResourceType
from kafkatool.core.zookeeper.acl_znodes import ACL_ROOTS, AclChangeZnode, AclZnode
from kafkatool.core.zookeeper.session import Create, Delete, Node, Op, SetData, TransactionError, ZooKeeper

_ATTEMPTS: Final = 10
_PAUSE_S: Final = (0.1, 0.15)

Entries = frozenset[Entry]


@dataclass(frozen=True, slots=True)
class AclChange:
    """The entries about one pattern as they were read, and as they shall be; ``told``, even if they stay as they are."""

    pattern: ResourcePattern
    node: Node | None
    before: Entries
    after: Entries
    told: bool

    @property
    def ops(self) -> tuple[Op, ...]:
        """Return the writes, the change node last; none where nothing changes and nothing is told."""
        path = AclZnode.path(self.pattern)
        told = Create(AclChangeZnode.prefix(self.pattern), AclChangeZnode.encode(self.pattern), sequential=True)
        if self.before == self.after:
            return (told,) if self.told else ()
        if self.node is None:
            return Create(path, AclZnode.encode(sorted(self.after))), told
        if not self.after:
            return Delete(path, self.node.version), told
        return SetData(path, AclZnode.encode(sorted(self.after)), self.node.version), told


def read_acls(zk: ZooKeeper, wanted: Filter) -> FoundAcls:
    """Read the entries that a filter selects; a damaged node is told of, and hides no other."""
    patterns: list[ResourcePattern] = []
    for pattern_type, root in ACL_ROOTS.items():
        known = {kind.word: kind for kind in ResourceType if kind is not ResourceType.ANY}
        kinds = [known.get(word) or ResourceType.strange(word) for word in zk.children(root) or ()]
        kinds = [kind for kind in kinds if wanted.type in (ResourceType.ANY, kind)]
        names = zk.children_many([AclZnode.type_path(kind, pattern_type) for kind in kinds])
        for kind, found in zip(kinds, names, strict=True):
            patterns += (ResourcePattern(kind, name, pattern_type) for name in found or ())
    patterns = sorted(pattern for pattern in patterns if wanted.meets(pattern))
    nodes = zk.get_many([AclZnode.path(pattern) for pattern in patterns])
    read: dict[ResourcePattern, Entries] = {}
    unreadable: dict[str, KafkatoolError] = {}
    for pattern, node in zip(patterns, nodes, strict=True):
        if node is None:
            continue
        try:
            selected = frozenset(filter(wanted.selects, AclZnode.decode(pattern, node.data)))
        except ZnodeFormatError as e:
            unreadable[AclZnode.path(pattern)] = e
            continue
        if selected:
            read[pattern] = selected
    return FoundAcls(read, unreadable)


def plan_change(
    zk: ZooKeeper, pattern: ResourcePattern, update: Callable[[Entries], Entries], *, always_told: bool = False
) -> AclChange:
    """Read the entries about a pattern; return what ``update`` makes of them, unwritten.

    Raises RefusedError, and ZnodeFormatError for a damaged node: what it holds would be lost.

    ``always_told``: what stays as it is is told, too, where brokers look for changes.
    """
    path = AclZnode.path(pattern)
    node = zk.get(path)
    before = AclZnode.decode(pattern, node.data) if node is not None else frozenset()
    after = update(before)
    prefixed = pattern.pattern_type is PatternType.PREFIXED
    if prefixed and after != before and zk.children(ACL_ROOTS[PatternType.PREFIXED]) is None:
        raise RefusedError(
            f"{ACL_ROOTS[PatternType.PREFIXED]} is missing: no broker of 2.0 or later has started here with an "
            "authorizer, and older ones know no prefixed patterns"
        )
    told = always_told and zk.children(AclChangeZnode.PATHS[pattern.pattern_type]) is not None
    return AclChange(pattern, node, before, after, told)


def change_acls(
    zk: ZooKeeper, pattern: ResourcePattern, update: Callable[[Entries], Entries], *, always_told: bool = False
) -> AclChange:
    """Change the entries about a pattern and tell the brokers. Raises VersionConflictError when others never cease."""
    for _ in range(_ATTEMPTS):
        change = plan_change(zk, pattern, update, always_told=always_told)
        if not change.ops:
            return change
        try:
            zk.commit(change.ops)
        except TransactionError as e:
            if isinstance(e.cause, NoNodeError) and isinstance(change.ops[e.index], Create):
                _make_parent(zk, change.ops[e.index].path)
            elif isinstance(e.cause, NodeExistsError | NoNodeError | NotEmptyError | VersionConflictError):
                time.sleep(random.uniform(*_PAUSE_S))  # somebody else wrote meanwhile: decide on what is there now
            else:
                raise e.cause from e
            continue
        return change
    raise VersionConflictError(f"the ACLs of {pattern} are being changed by somebody else all the time; try again")


def _make_parent(zk: ZooKeeper, path: str) -> None:
    with contextlib.suppress(NodeExistsError):
        zk.create(path.rpartition("/")[0], make_parents=True)


def remove_acls(zk: ZooKeeper, wanted: Filter) -> Mapping[ResourcePattern, Entries]:
    """Remove the entries that a filter selects; return them by pattern. Raises ZnodeFormatError before any goes."""
    removed: dict[ResourcePattern, Entries] = {}
    for pattern in read_acls(zk, wanted).all():
        change = change_acls(zk, pattern, lambda before: frozenset(e for e in before if not wanted.selects(e)))
        if gone := change.before - change.after:
            removed[pattern] = gone
    return removed
