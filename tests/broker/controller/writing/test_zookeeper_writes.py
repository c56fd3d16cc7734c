"""Deletions that meet other writers: nothing is there, or a tree changes meanwhile."""

from collections.abc import Callable, Sequence

import pytest

from kafkatool.broker.controller.writing.zookeeper_writes import FencedZooKeeper
from kafkatool.core.zookeeper.session import Delete, Op
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper


@pytest.fixture
def zk() -> MemoryZooKeeper:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create(ControllerEpochZnode.PATH, b"1")
    return zk


def fenced(zk: MemoryZooKeeper) -> FencedZooKeeper:
    return FencedZooKeeper(zk, 0, lambda: False)


def after_the_listing(zk: MemoryZooKeeper, act: Callable[[], object]) -> None:
    """Let ``act`` happen once, when the children have been listed down to the leaves."""
    listed = zk.children_many
    done: list[bool] = []

    def listing(paths: Sequence[str]) -> list[list[str] | None]:
        found = listed(paths)
        if not any(found) and not done:
            done.append(True)
            act()
        return found

    zk.children_many = listing  # type: ignore[method-assign]


@pytest.mark.spec("Z-42")
def test_to_delete_what_is_gone_is_a_success_and_keeps_nothing_else_back(zk: MemoryZooKeeper) -> None:
    zk.create("/a")
    fenced(zk).delete(["/gone", "/a", "/gone/too"])
    fenced(zk).delete_tree("/gone")
    fenced(zk).delete_as_read({"/gone": None})
    assert zk.get("/a") is None


@pytest.mark.spec("Z-42")
@pytest.mark.parametrize("meanwhile", ["nothing", "a child goes", "a child comes", "all goes"])
def test_a_tree_is_deleted_children_first_whatever_comes_and_goes(zk: MemoryZooKeeper, meanwhile: str) -> None:
    for path in ("/t", "/t/a", "/t/a/x", "/t/b"):
        zk.create(path)
    changes: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "a child goes": lambda: zk.delete("/t/a/x"),
        "a child comes": lambda: zk.create("/t/b/y"),
        "all goes": lambda: zk.commit([Delete(p) for p in ("/t/a/x", "/t/a", "/t/b", "/t")]),
    }
    after_the_listing(zk, changes[meanwhile])
    deleted: list[str] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete):
            deleted.append(op.path)

    zk.memory.ensemble.on_write = note
    fenced(zk).delete_tree("/t")
    assert zk.get("/t") is None
    assert all(deleted.index(child) < deleted.index(child.rpartition("/")[0]) for child in deleted if child != "/t")
