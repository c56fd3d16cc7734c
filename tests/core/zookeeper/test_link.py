"""Both implementations of the link keep one contract: a real ZooKeeper through kazoo, and the ensemble in memory."""

import queue
from collections.abc import Callable

import pytest

from kafkatool.core.errors import NodeExistsError, NoNodeError, NotEmptyError, VersionConflictError, ZooKeeperError
from kafkatool.core.zookeeper.session import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    SetData,
    TransactionError,
    WatchEvent,
    ZooKeeper,
)
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper


@pytest.fixture(params=["kazoo", "memory"])
def session(request: pytest.FixtureRequest) -> ZooKeeper:
    """Return a session; ``/t`` has one child, ``/t/a``, of version 1."""
    zk: ZooKeeper = (
        request.getfixturevalue("zk") if request.param == "kazoo" else MemoryZooKeeper(MemoryEnsemble()).start()
    )
    assert zk.create("/t/a", b"0", make_parents=True) == "/t/a"
    assert zk.set("/t/a", b"1", 0) == 1
    return zk


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda zk: zk.create("/t/a"), NodeExistsError),
        (lambda zk: zk.create("/absent/child"), NoNodeError),
        (lambda zk: zk.set("/t/a", b"", 0), VersionConflictError),
        (lambda zk: zk.set("/absent", b"", ANY_VERSION), NoNodeError),
        (lambda zk: zk.delete("/t/a", 0), VersionConflictError),
        (lambda zk: zk.delete("/absent"), NoNodeError),
        (lambda zk: zk.delete("/t"), NotEmptyError),
    ],
    ids=[
        "exists",
        "no parent",
        "set, other version",
        "set, absent",
        "delete, other version",
        "delete, absent",
        "parent",
    ],
)
@pytest.mark.spec("Z-17")
def test_writes_that_cannot_be_done_say_why(
    session: ZooKeeper, write: Callable[[ZooKeeper], object], error: type[ZooKeeperError]
) -> None:
    with pytest.raises(error):
        write(session)


@pytest.mark.parametrize(
    ("ops", "index", "cause"),
    [
        ([Create("/t/b"), Check("/t/a", 0)], 1, VersionConflictError),
        ([Delete("/t/a", 1), Delete("/t/a", 1)], 1, NoNodeError),
        ([Create("/t/b"), Create("/t/b/c"), Create("/t/b")], 2, NodeExistsError),
        ([Create("/t/a/b"), Delete("/t/a", 1)], 1, NotEmptyError),
        ([SetData("/absent", b"", 0), Create("/t/b")], 0, NoNodeError),
    ],
    ids=["check", "deleted before", "made before", "child made before", "absent"],
)
def test_a_transaction_that_is_refused_names_the_operation_and_leaves_nothing(
    session: ZooKeeper, ops: list[Op], index: int, cause: type[ZooKeeperError]
) -> None:
    with pytest.raises(TransactionError) as refused:
        session.commit(ops)
    assert refused.value.index == index and isinstance(refused.value.cause, cause)
    node = session.get("/t/a")
    assert session.children("/t") == ["a"] and node is not None and (node.data, node.version) == (b"1", 1)


def test_a_transaction_sees_its_own_writes_and_tells_new_versions(session: ZooKeeper) -> None:
    ops: list[Op] = [Delete("/t/a", 1), Create("/t/a", b"new"), Create("/t/a/b"), SetData("/t", b"x", 0)]
    assert session.commit(ops) == [None, None, None, 1]
    nodes = session.get_many(["/t/a", "/t/a/b", "/t", "/absent"])
    assert [n and (n.data, n.version, n.ephemeral_owner) for n in nodes] == [
        (b"new", 0, 0),
        (b"", 0, 0),
        (b"x", 1, 0),
        None,
    ]
    made, written = nodes[0], nodes[2]
    assert made is not None and written is not None
    assert made.czxid == made.mzxid == written.mzxid > written.czxid


def test_sequential_nodes_are_numbered_by_the_children_ever_made(session: ZooKeeper) -> None:
    session.delete("/t/a")
    assert session.create("/t/n", sequential=True) == "/t/n0000000001"
    assert session.create("/t/m", sequential=True) == "/t/m0000000002"


def test_an_ephemeral_node_belongs_to_its_session(session: ZooKeeper) -> None:
    session.create("/t/mine", ephemeral=True)
    node = session.get("/t/mine")
    assert node is not None and node.ephemeral_owner == session.session_id != 0


@pytest.mark.spec("Z-43", "Z-44")
def test_a_watch_fires_once_for_what_it_is_set_on(session: ZooKeeper) -> None:
    events: queue.Queue[WatchEvent] = queue.Queue()
    told: list[tuple[Callable[[], object], Callable[[], object], WatchEvent]] = [
        (lambda: session.get("/t/b", events.put), lambda: session.create("/t/b"), WatchEvent("created", "/t/b")),
        (lambda: session.get("/t/b", events.put), lambda: session.set("/t/b", b"", 0), WatchEvent("changed", "/t/b")),
        (lambda: session.get("/t/b", events.put), lambda: session.delete("/t/b"), WatchEvent("deleted", "/t/b")),
        (lambda: session.children("/t", events.put), lambda: session.create("/t/c"), WatchEvent("children", "/t")),
        (lambda: session.children("/t/c", events.put), lambda: session.delete("/t/c"), WatchEvent("deleted", "/t/c")),
    ]
    for watch, act, expected in told:
        watch()
        act()
        assert events.get(timeout=60) == expected
    session.set("/t/a", b"2", 1)
    assert events.empty()
