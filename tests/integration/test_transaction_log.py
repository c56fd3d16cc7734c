"""The reader of ZooKeeper's transaction log, against a ZooKeeper, and what it takes for a deposed controller's write."""

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.zookeeper.session import Check, Create, Delete, SetData, TransactionError, ZooKeeper
from tests.core.zookeeper.sessions import link_of
from tests.integration.transaction_log import Transaction, read_transactions, written_by_deposed


def test_the_reader_sees_who_did_what(zookeeper_server: ZooKeeperProcess, zk_connect: str) -> None:
    root = zk_connect.partition("/")[2]
    with ZooKeeper(zk_connect) as zk:
        session = zk.session_id
        link_of(zk).client.set_acls("/", OPEN_ACL_UNSAFE)
        zk.create("/a", b"1")
        zk.set("/a", b"2", 0)
        zk.commit([Check("/a", 1), Create("/b", ephemeral=True), SetData("/a", b"3", 1)])
        with pytest.raises(TransactionError):
            zk.commit([Delete("/a", 2), Check("/b", 7)])
        zk.delete("/a")
    seen = [t for t in read_transactions(zookeeper_server.directory / "data") if t.session == session]
    assert [(tuple((kind, path.removeprefix(f"/{root}")) for kind, path in t.changes), t.refused) for t in seen] == [
        ((("open", ""),), False),
        ((("acl", ""),), False),
        ((("create", "/a"),), False),
        ((("set", "/a"),), False),
        ((("create", "/b"), ("set", "/a")), False),
        ((), True),
        ((("delete", "/a"),), False),
        ((("close", ""),), False),
    ]


def test_what_a_deposed_controller_writes_is_found() -> None:
    rule, write, close = (("create", "/controller"),), (("set", "/x"),), (("close", ""),)
    steps = [(1, rule), (1, write), (2, write), (2, rule), (1, close), (2, write), (1, rule), (1, write)]
    transactions = [Transaction(n, session, changes, refused=False) for n, (session, changes) in enumerate(steps)]
    assert written_by_deposed(transactions) == []
    late = Transaction(9, 2, write, refused=False)
    assert written_by_deposed([*transactions, late, Transaction(10, 2, (), refused=True)]) == [late]
