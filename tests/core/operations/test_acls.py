"""Changes of ACLs: written and told as one."""

from collections.abc import Sequence

import pytest

from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.operations.acls import Entries, change_acls
from kafkatool.core.zookeeper.acl_znodes import AclChangeZnode, AclZnode
from kafkatool.core.zookeeper.session import Op, ZooKeeper

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
READ, WRITE = (Entry("User:a", "*", operation, Permission.ALLOW) for operation in (Operation.READ, Operation.WRITE))


@pytest.mark.spec("SEC-89")
def test_a_change_and_its_telling_are_one_transaction(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who dies between the two leaves brokers going by what was withdrawn, and nobody would notice."""
    writes: list[list[str]] = []
    commit = zk.commit

    def noted(ops: Sequence[Op]) -> list[int | None]:
        done = commit(ops)
        writes.append([type(op).__name__ for op in ops])
        return done

    monkeypatch.setattr(zk, "commit", noted)
    changes: list[Entries] = [frozenset({READ}), frozenset({READ, WRITE}), frozenset()]
    for number, after in enumerate(changes, 1):
        change_acls(zk, ORDERS, lambda _, after=after: after)  # type: ignore[misc]
        node = zk.get(AclZnode.path(ORDERS))
        told = sorted(zk.children(AclChangeZnode.PATHS[PatternType.LITERAL]) or ())
        assert len(told) == number and (node is not None) == bool(after)
        change = zk.get(f"{AclChangeZnode.PATHS[PatternType.LITERAL]}/{told[-1]}")
        assert change is not None and change.data == AclChangeZnode.encode(ORDERS)
        assert node is None or node.mzxid == change.czxid
    assert writes == [["Create", "Create"], ["SetData", "Create"], ["Delete", "Create"]]
    change_acls(zk, ORDERS, lambda before: before)
    assert len(writes) == 3, "what stays is neither written nor told"
