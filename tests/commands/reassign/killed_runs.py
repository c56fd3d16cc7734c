"""Runs of kt reassign that die before one of their writes, as if killed; and the cluster they are run on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.planner import plan_files
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.core.operations.reassignment.plans import plan
from tests.waiting import eventually

BEFORE = {0: (1,), 1: (2,), 2: (3,)}
GOAL = {0: (2,), 1: (3,), 2: (1,)}
BROKER_1 = {"x": "y", throttles.RATES[0]: "77"}  # what somebody has set before, and wants back


class Killed(BaseException):
    """An end as by SIGKILL: no handler of the command sees it."""


class Writes:
    """The writes of a command, to ZooKeeper and to its files: counted, and ended before one of them as by a kill."""

    def __init__(self) -> None:
        self.count = 0
        self.die_at: int | None = None
        self._thread = threading.current_thread()  # the controller writes on its own

    def around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not self._thread:
                return write(*args, **kwargs)
            self.count += 1
            if self.count == self.die_at:
                raise Killed
            return write(*args, **kwargs)

        return wrapped

    @contextmanager
    def killing(self, number: int | None) -> Iterator[None]:
        self.count, self.die_at = 0, number
        try:
            yield
        finally:
            self.die_at = None


def count_writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """Count all writes of a command that the calling thread makes."""
    found = Writes()
    monkeypatch.setattr(ZooKeeper, "create", found.around(ZooKeeper.create))
    monkeypatch.setattr(ZooKeeper, "set", found.around(ZooKeeper.set))
    monkeypatch.setattr(plan_files, "replace_file", found.around(plan_files.replace_file))
    monkeypatch.setattr("kafkatool.core.operations.reassignment.runs.saved_run.replace_file", plan_files.replace_file)
    monkeypatch.setattr(Path, "unlink", found.around(Path.unlink))
    return found


def reset(zk: ZooKeeper) -> None:
    """Make the cluster what it was before the first run; the controller of the test carries the way back out."""
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan(BEFORE)))
    eventually(lambda: zk.get(ReassignmentZnode.PATH) is None, "the way back", 60)
    empty: dict[str, str] = {}
    for kind, name, value in (
        ("brokers", "1", BROKER_1),
        ("brokers", "2", empty),
        ("brokers", "3", empty),
        ("topics", "t", empty),
    ):
        path = ConfigZnode.path(kind, name)
        if zk.get(path) is None:
            zk.create(path, ConfigZnode.encode(value), make_parents=True)
        else:
            zk.set(path, ConfigZnode.encode(value), -1)
