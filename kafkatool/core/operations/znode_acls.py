"""Whose the znodes of a cluster are: set for all of them, and looked at (SEC-31, SEC-32).

What zookeeper-security-migration does, but that it makes no node, writes no ACL that is there already, and keeps nobody's
brokers out of their own cluster. Source: Kafka 2.8.0 admin/ZkSecurityMigrator.scala.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import NoNodeError, NoPermissionError, RefusedError
from kafkatool.core.zookeeper.acls import (
    ALL_RIGHTS,
    OPEN_NODES,
    OWN_NODES,
    ROOTS_NOT_ALWAYS_THERE,
    SECURED_ROOTS,
    Acl,
    NodeAcls,
    acls_like,
    is_open,
    is_sensitive,
    is_world_readable,
)
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, BrokerZnode, ControllerZnode, TopicsZnode

_AT_ONCE: Final = 2000  # nodes asked for in one pass


@dataclass(frozen=True, slots=True)
class NodeRights:
    """What a node has, and what it gets or should have. ``acl`` None: it may not be read."""

    path: str
    acl: Sequence[Acl] | None
    expected: Sequence[Acl]


@dataclass(frozen=True, slots=True)
class Migration:
    """Which nodes have changed (or would), which could not be, of how many."""

    changed: Sequence[NodeRights]
    refused: Sequence[NoPermissionError]
    nodes: int


def missing_roots(zk: ZooKeeper) -> list[str]:
    """Return the roots that every cluster should have and this one has not."""
    needed = [path for path in SECURED_ROOTS if path not in ROOTS_NOT_ALWAYS_THERE]
    return [path for path, found in zip(needed, zk.acls_where_permitted(needed), strict=True) if found is None]


def check_owner(zk: ZooKeeper) -> None:
    """Raise RefusedError where brokers or a controller are registered that this session's identity is not."""
    ids = sorted(zk.children(BrokersZnode.PATH) or ())
    for path in (ControllerZnode.PATH, *(BrokerZnode.path(int(broker)) for broker in ids)):
        try:
            acls = zk.acls(path)
        except NoNodeError:
            continue
        except NoPermissionError:
            acls = []
        if not any((acl.scheme, acl.id) in zk.security.ids for acl in acls if acl.rights == ALL_RIGHTS):
            whose = ", ".join(sorted({acl.owner for acl in acls if acl.rights == ALL_RIGHTS})) or "somebody else"
            raise RefusedError(
                f"{path} belongs to {whose}, {zk.security.identity}: whoever registered it would be locked out of every "
                "node",
                now="log in as the brokers do, and have them log in (zookeeper.set.acl=true); --force secures all the same",
            )


def migrate(zk: ZooKeeper, *, secure: bool, dry_run: bool = False) -> Migration:
    """Give every node of the cluster the rights of the table, this session's identity being the owner, or open them all.

    The root first, parents before what is below them; what is right already is not written, so whatever ended it halfway,
    it can be run again. A node that goes meanwhile is none. A root without a cluster belongs to others, and stays.
    """
    made = OWN_NODES if secure else OPEN_NODES
    owners = tuple(Acl(ALL_RIGHTS, scheme, name) for scheme, name in sorted(zk.security.ids))
    expected = NodeAcls(owners) if secure else OPEN_NODES
    changed: list[NodeRights] = []
    refused: list[NoPermissionError] = []
    nodes = 0
    clusters_own = zk.children_where_permitted([BrokersZnode.PATH]) != [None]
    for paths in _levels(zk, ["/", *SECURED_ROOTS] if clusters_own else SECURED_ROOTS, refused):
        found = zip(paths, zk.acls_where_permitted(paths), strict=True)
        rights = [
            NodeRights(path, None if isinstance(acls, NoPermissionError) else acls, expected.of(path))
            for path, acls in found
            if acls is not None
        ]
        nodes += len(rights)
        wrong = [node for node in rights if node.acl is None or set(node.acl) != set(node.expected)]
        if dry_run:
            changed += wrong
            continue
        outcomes = zk.set_acls_where_permitted([(node.path, made.of(node.path)) for node in wrong])
        for node, outcome in zip(wrong, outcomes, strict=True):
            if isinstance(outcome, NoPermissionError):
                refused.append(_refusal(zk, node.path, node.acl))
            elif outcome is not None:
                changed.append(node)
    return Migration(changed, _each_once(refused), nodes)


def check(zk: ZooKeeper) -> Migration:
    """Find the nodes that do not have the rights of the table, sensitive ones that all may read first. It only reads.

    Owners are those of /brokers/topics; where that is open this session's identity, or ``auth`` without one.
    """
    owned = acls_like(_acls_of_topics(zk))
    if owned.owners is None:
        owned = (
            NodeAcls(tuple(Acl(ALL_RIGHTS, *who) for who in sorted(zk.security.ids))) if zk.security.ids else OWN_NODES
        )
    wrong: list[NodeRights] = []
    refused: list[NoPermissionError] = []
    nodes = 0
    for paths in _levels(zk, SECURED_ROOTS, refused):
        for path, acls in zip(paths, zk.acls_where_permitted(paths), strict=True):
            nodes += acls is not None
            if isinstance(acls, NoPermissionError):
                refused.append(_refusal(zk, path, None))
            elif acls is not None and set(acls) != set(owned.of(path)):
                wrong.append(NodeRights(path, acls, owned.of(path)))
    wrong.sort(key=lambda node: (not (is_sensitive(node.path) and is_world_readable(node.acl or ())), node.path))
    return Migration(wrong, _each_once(refused), nodes)


def check_hidden(zk: ZooKeeper, path: str) -> bool:
    """Tell whether what is written there is hidden from others than the owners (SEC-32): in an open cluster it is not.

    Raises RefusedError where the cluster's nodes have owners and this one, or its parent, can be read by all.
    """
    for asked in (path, path.rpartition("/")[0]):
        try:
            acls: Sequence[Acl] = zk.acls(asked)
        except NoNodeError:
            acls = zk.node_acls.of(asked)
        except NoPermissionError:
            continue
        if not is_world_readable(acls):
            continue
        if is_open(_acls_of_topics(zk)):
            return False
        raise RefusedError(
            f"{asked} can be read by everybody who reaches ZooKeeper: no credential is written there",
            now="kt zk-acl --check lists such nodes, kt zk-acl --zookeeper.acl secure mends them",
        )
    return True


def _acls_of_topics(zk: ZooKeeper) -> Sequence[Acl]:
    try:
        return zk.acls(TopicsZnode.PATH)
    except NoNodeError:
        return OPEN_NODES.of(TopicsZnode.PATH)
    except NoPermissionError:
        return ()


def _levels(zk: ZooKeeper, roots: Sequence[str], refused: list[NoPermissionError]) -> Iterator[Sequence[str]]:
    """Yield the nodes by the depth they are found at, some thousands at a time; what is below the root is not gone into.

    A node whose children may not be read is added to ``refused``.
    """
    seen: set[str] = set()
    level: Sequence[str] = roots
    while level:
        seen.update(level)
        below: list[str] = []
        for start in range(0, len(level), _AT_ONCE):
            paths = level[start : start + _AT_ONCE]
            yield paths
            parents = [path for path in paths if path != "/"]
            for path, names in zip(parents, zk.children_where_permitted(parents), strict=True):
                if isinstance(names, NoPermissionError):
                    refused.append(_refusal(zk, path, None))
                else:
                    below += [f"{path}/{name}" for name in sorted(names or ())]
        level = [path for path in below if path not in seen]


def _each_once(refused: Sequence[NoPermissionError]) -> list[NoPermissionError]:
    """Leave one refusal of each node, the first, which knows most."""
    return list({e.path: e for e in reversed(refused)}.values())[::-1]


def _refusal(zk: ZooKeeper, path: str, acls: Sequence[Acl] | None) -> NoPermissionError:
    owners = ", ".join(sorted({acl.owner for acl in acls or () if acl.rights == ALL_RIGHTS}))
    return NoPermissionError(path, f"it belongs to {owners or 'somebody else'}, {zk.security.identity}")
