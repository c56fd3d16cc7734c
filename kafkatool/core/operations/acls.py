"""Reading and changing the ACLs that an authorizer goes by (SEC-88, 89, 92).

A change reads the node, merges, and writes with the version it read, then makes one change node. Two that add at once
lose nothing. What stays as it is is neither written nor told.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import NodeExistsError, NoNodeError, NotEmptyError, RefusedError, VersionConflictError
from kafkatool.core.model.acls import Entry, Filter, PatternType, ResourcePattern, ResourceType
from kafkatool.core.zookeeper.acl_znodes import ACL_ROOTS, AclChangeZnode, AclZnode
from kafkatool.core.zookeeper.session import Create, Delete, Node, Op, SetData, ZooKeeper

_ATTEMPTS: Final = 10
_PAUSE_S: Final = (0.1, 0.15)

Entries = frozenset[Entry]


@dataclass(frozen=True, slots=True)
class AclChange:
    """The entries about one pattern as they were read, and as they shall be."""

    pattern: ResourcePattern
    node: Node | None
    before: Entries
    after: Entries

    @property
    def ops(self) -> tuple[Op, ...]:
        """Return the writes, the change node last; none where nothing changes."""
        if self.before == self.after:
            return ()
        path = AclZnode.path(self.pattern)
        told = Create(AclChangeZnode.prefix(self.pattern), AclChangeZnode.encode(self.pattern))
        if self.node is None:
            return Create(path, AclZnode.encode(sorted(self.after))), told
        if not self.after:
            return Delete(path, self.node.version), told
        return SetData(path, AclZnode.encode(sorted(self.after)), self.node.version), told


def read_acls(zk: ZooKeeper, wanted: Filter) -> dict[ResourcePattern, Entries]:
    """Read the entries that a filter selects, by pattern. Raises ZnodeFormatError for a node that cannot be read."""
    patterns: list[ResourcePattern] = []
    for pattern_type, root in ACL_ROOTS.items():
        known = {kind.word: kind for kind in ResourceType if kind is not ResourceType.ANY}
        kinds = [known[word] for word in zk.children(root) or () if word in known]
        kinds = [kind for kind in kinds if wanted.type in (ResourceType.ANY, kind)]
        names = zk.children_many([AclZnode.type_path(kind, pattern_type) for kind in kinds])
        for kind, found in zip(kinds, names, strict=True):
            patterns += (ResourcePattern(kind, name, pattern_type) for name in found or ())
    patterns = sorted(pattern for pattern in patterns if wanted.meets(pattern))
    nodes = zk.get_many([AclZnode.path(pattern) for pattern in patterns])
    read = {
        pattern: frozenset(filter(wanted.selects, AclZnode.decode(pattern, node.data)))
        for pattern, node in zip(patterns, nodes, strict=True)
        if node is not None
    }
    return {pattern: entries for pattern, entries in read.items() if entries}


def plan_change(zk: ZooKeeper, pattern: ResourcePattern, update: Callable[[Entries], Entries]) -> AclChange:
    """Read the entries about a pattern; return what ``update`` makes of them, unwritten. Raises RefusedError."""
    if pattern.pattern_type is PatternType.PREFIXED and zk.children(ACL_ROOTS[PatternType.PREFIXED]) is None:
        raise RefusedError(
            f"{ACL_ROOTS[PatternType.PREFIXED]} is missing: no broker of 2.0 or later has started here with an "
            "authorizer, and older ones know no prefixed patterns"
        )
    path = AclZnode.path(pattern)
    node = zk.get(path)
    before = AclZnode.decode(pattern, node.data) if node is not None else frozenset()
    return AclChange(pattern, node, before, update(before))


def change_acls(zk: ZooKeeper, pattern: ResourcePattern, update: Callable[[Entries], Entries]) -> AclChange:
    """Change the entries about a pattern and tell the brokers. Raises VersionConflictError when others never cease."""
    for _ in range(_ATTEMPTS):
        change = plan_change(zk, pattern, update)
        if not change.ops:
            return change
        write, told = change.ops
        try:
            match write:
                case Create(path, data):
                    zk.create(path, data, make_parents=True)
                case SetData(path, data, version):
                    zk.set(path, data, version)
                case Delete(path, version):
                    zk.delete(path, version)
        except (NodeExistsError, NoNodeError, NotEmptyError, VersionConflictError):
            time.sleep(random.uniform(*_PAUSE_S))  # somebody else wrote meanwhile: decide on what is there now
            continue
        zk.create(told.path, AclChangeZnode.encode(pattern), sequential=True, make_parents=True)
        return change
    raise VersionConflictError(f"the ACLs of {pattern} are being changed by somebody else all the time; try again")


def remove_acls(zk: ZooKeeper, wanted: Filter) -> Mapping[ResourcePattern, Entries]:
    """Remove the entries that a filter selects; return them by pattern."""
    removed: dict[ResourcePattern, Entries] = {}
    for pattern in read_acls(zk, wanted):
        change = change_acls(zk, pattern, lambda before: frozenset(e for e in before if not wanted.selects(e)))
        if gone := change.before - change.after:
            removed[pattern] = gone
    return removed
