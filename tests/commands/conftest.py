"""Fixtures of the command tests."""

import socket
from typing import Any

import pytest

from kafkatool.broker.embedded import running
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.reassign.killed_runs import Writes, count_writes
from tests.core.operations.reassignment.plans import NINE
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.fixture(autouse=True)
def no_local_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no cluster of this machine found, whatever runs on the developer's."""
    monkeypatch.setattr(running, "running_clusters", dict)


@pytest.fixture(autouse=True)
def no_other_kt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no kt of this machine carry out a plan, whatever other tests do at this moment."""
    monkeypatch.setattr(run_lock, "any_held", lambda: False)


@pytest.fixture
def seed(zk: ZooKeeper) -> ZooKeeper:
    """Make the documents' topic of nine partitions on three brokers."""
    nodes.make_cluster(zk, topics={"t": NINE})
    return zk


@pytest.fixture
def no_such_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a name that does not exist, without a name server being asked."""
    name, look_up = "no-such-host.invalid", socket.getaddrinfo

    def answer(host: Any, *args: Any, **more: Any) -> Any:
        if host == name:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return name


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """Count the writes of this test's commands from here on, to die before one of them."""
    return count_writes(monkeypatch)
