"""Many reads in one request: of servers that know such requests, and of those that do not."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from kafkatool.core.errors import NoPermissionError
from kafkatool.core.zookeeper import server_version as zookeeper_version
from kafkatool.core.zookeeper.bulk_reads import NodeRead, NodesRead
from kafkatool.core.zookeeper.server_version import MultiRead
from kafkatool.core.zookeeper.session import Create, Node, ZooKeeper
from tests.core.zookeeper.sessions import link_of
from tests.waiting import eventually

COUNT = 600


@pytest.fixture
def paths(zk: ZooKeeper) -> list[str]:
    """Return paths of nodes and, between them, of none."""
    zk.commit_many([[Create(f"/n{i}", b"%d" % i)] for i in range(COUNT)])
    return [f"/{kind}{i}" for i in range(COUNT) for kind in ("n", "absent")]


def values(nodes: list[Node | None]) -> list[bytes | None]:
    return [n and n.data for n in nodes]


EXPECTED = [value for i in range(COUNT) for value in (b"%d" % i, None)]


@pytest.fixture
def requests(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the reads sent from here on, to a server that may take its time to tell its version."""
    monkeypatch.setattr(zookeeper_version, "_TIMEOUT_S", 60.0)
    sent: list[object] = []
    for kind in (NodeRead, NodesRead):

        def note(request: Any, serialize: Callable[[Any], bytes] = kind.serialize) -> bytes:
            sent.append(request)
            return serialize(request)

        monkeypatch.setattr(kind, "serialize", note)
    return sent


@pytest.mark.spec("ELE-17X", "RSN-34X")
def test_many_nodes_are_read_by_few_requests_and_are_what_single_reads_find(
    zk: ZooKeeper, paths: list[str], requests: list[object]
) -> None:
    together = zk.get_many(paths)
    assert values(together) == EXPECTED
    assert [type(r) for r in requests] == [NodesRead] * 5
    assert together == [zk.get(path) for path in paths]
    requests.clear()
    few = paths[:20]
    assert values(zk.get_many(few)) == EXPECTED[:20]
    assert [type(r) for r in requests] == [NodeRead] * 20


def test_a_server_that_does_not_know_such_requests_after_all_is_asked_one_by_one(
    zk: ZooKeeper, paths: list[str], requests: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = zk.session_id
    monkeypatch.setattr(NodesRead, "type", 99)  # it answers that and ends the connection, as 3.5 does to a multi-read
    assert values(zk.get_many(paths)) == EXPECTED
    eventually(lambda: zk.session_id == session, "the same session again")
    requests.clear()
    assert values(zk.get_many(paths)) == EXPECTED
    assert {type(r) for r in requests} == {NodeRead}


def test_a_node_that_may_not_be_read_is_named(zk: ZooKeeper, paths: list[str]) -> None:
    link_of(zk).client.create("/closed", b"", acl=[make_digest_acl("someone", "else", all=True)])
    with pytest.raises(NoPermissionError, match="no permission for znode /closed"):
        zk.get_many([*paths, "/closed"])


# --- the version -----------------------------------------------------------------------------------------------


@pytest.fixture
def serve() -> Iterator[Callable[[bytes | None], socket.socket]]:
    """Yield what makes the socket of a client whose server answers that to whoever connects; None: it never answers."""
    stack: list[socket.socket] = []

    def make(answer: bytes | None) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        stack.extend((listener, client, listener.accept()[0]))

        def answer_one() -> None:
            connection, _ = listener.accept()
            with closing(connection):
                if connection.recv(4) == b"srvr" and answer is not None:
                    connection.sendall(answer)
                else:
                    connection.recv(1)  # until the other end gives up

        threading.Thread(target=answer_one, daemon=True).start()
        return client

    yield make
    for each in stack:
        each.close()


@pytest.mark.parametrize(
    ("answer", "served"),
    [
        (b"Zookeeper version: 3.9.5-abc, built on 2025-01-01\nLatency min/avg/max: 0/0.0/0\n", True),
        (b"Zookeeper version: 3.6.0--1, built on 2020-02-25\n", True),
        (b"Zookeeper version: 3.10.0, built on 2030-01-01\n", True),
        (b"Zookeeper version: 4.0.0, built on 2030-01-01\n", True),
        (b"Zookeeper version: 3.5.9-83df9301aa5c2a5d284a9940177808c01bc35cef, built on 2021\n", False),
        (b"Zookeeper version: 3.4.6-1569965, built on 02/20/2014 09:09 GMT\n", False),
        (b"srvr is not executed because it is not in the whitelist.\n", False),
        (b"", False),
        (None, False),
    ],
)
def test_the_server_tells_its_version(
    serve: Callable[[bytes | None], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes | None,
    served: bool,
) -> None:
    monkeypatch.setattr(zookeeper_version, "_TIMEOUT_S", 60.0 if answer is not None else 0.1)
    connected = serve(answer)
    assert MultiRead(lambda: connected).is_served() is served


def test_it_is_asked_once_for_each_connection(
    serve: Callable[[bytes | None], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_version, "_TIMEOUT_S", 60.0)
    connected: socket.socket | None = serve(b"Zookeeper version: 3.9.5-abc, built on 2025\n")
    knows = MultiRead(lambda: connected)
    assert knows.is_served() and knows.is_served()  # its server answers one question only
    connected = serve(b"Zookeeper version: 3.5.9-abc, built on 2021\n")
    assert not knows.is_served() and not knows.is_served()
    connected = None  # while there is none
    assert not knows.is_served()


@pytest.mark.spec("Z-36")
def test_a_node_whose_data_is_null_is_one_without_content(zk: ZooKeeper, requests: list[object]) -> None:
    link_of(zk).client.create("/null", None)
    node = zk.get("/null")
    assert node is not None and node.data == b""
    assert values(zk.get_many(["/null", "/absent"])) == [b"", None]
    assert values(zk.get_many(["/null", "/absent"] * 200)) == [b"", None] * 200
    assert {type(request) for request in requests} == {NodeRead, NodesRead}
