"""The session against a real ZooKeeper: conditional writes, transactions, watches, lost connections, expiry."""

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import (
    ChrootMissingError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    NoPermissionError,
    UsageError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperUnavailableError,
)
from kafkatool.core.zookeeper.connect_string import split_connect
from kafkatool.core.zookeeper.link import LinkWatch, Reply
from kafkatool.core.zookeeper.session import (
    Check,
    Create,
    Delete,
    Node,
    Op,
    SessionState,
    SetData,
    TransactionError,
    WatchEvent,
    ZooKeeper,
)
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.core.zookeeper.sessions import end_session, link_of
from tests.ports import free_port
from tests.waiting import eventually


@pytest.mark.spec("Z-1")
def test_connect_string_is_hosts_and_one_chroot() -> None:
    assert split_connect("a:1,b:2/kafka/x") == ("a:1,b:2", "/kafka/x")
    assert split_connect("a:1/") == ("a:1", "")
    for bad in ("localhost:2181/ kafka", "", "/kafka", "a:b"):
        with pytest.raises(UsageError):
            split_connect(bad)


@pytest.mark.spec("Z-2", "COM-1")
def test_a_missing_chroot_is_an_error_and_is_not_made(zookeeper_server: ZooKeeperProcess) -> None:
    connect = f"{zookeeper_server.connect}/nobody/made/this"
    for _ in range(2):
        with pytest.raises(ChrootMissingError, match="/nobody/made/this"), ZooKeeper(connect):
            pass


@pytest.mark.spec("Z-2", "Z-3")
def test_a_broker_makes_each_missing_part_of_the_chroot_and_paths_are_relative_to_it(
    zookeeper_server: ZooKeeperProcess,
) -> None:
    server = zookeeper_server.connect
    with ZooKeeper(f"{server}/made/by/broker", create_chroot=True) as inside:
        assert inside.create("/a", b"x") == "/a"
        assert inside.children("/") == ["a"]
        fired: queue.Queue[WatchEvent] = queue.Queue()
        inside.get("/a", fired.put)
        inside.set("/a", b"y", 0)
        assert fired.get(timeout=60) == WatchEvent("changed", "/a")
    with ZooKeeper(server) as outside:
        nodes = outside.get_many(["/made", "/made/by", "/made/by/broker", "/made/by/broker/a"])
        assert [n and (n.data, n.ephemeral_owner) for n in nodes] == [(b"", 0)] * 3 + [(b"y", 0)]
    with ZooKeeper(f"{server}/made/by/broker") as tool:
        assert tool.children("/") == ["a"]


def test_no_server_is_reported_within_the_connection_timeout() -> None:
    with pytest.raises(ZooKeeperUnavailableError), ZooKeeper(f"127.0.0.1:{free_port()}", connection_timeout_ms=300):
        pass


@pytest.mark.spec("Z-17")
def test_writes_are_bound_to_the_version_read(zk: ZooKeeper) -> None:
    zk.create("/a", b"1")
    assert zk.set("/a", b"2", 0) == 1
    with pytest.raises(VersionConflictError):
        zk.set("/a", b"3", 0)
    with pytest.raises(VersionConflictError):
        zk.delete("/a", 0)
    with pytest.raises(NodeExistsError):
        zk.create("/a")
    with pytest.raises(NoNodeError):
        zk.set("/b", b"", 0)
    node = zk.get("/a")
    assert node is not None and (node.data, node.version, node.ephemeral_owner) == (b"2", 1, 0)


def test_reads_are_pipelined_and_absence_is_none(zk: ZooKeeper) -> None:
    for i in range(20):
        zk.create(f"/n{i}", str(i).encode())
    nodes = zk.get_many([f"/n{i}" for i in range(21)])
    assert [n and n.data for n in nodes] == [str(i).encode() for i in range(20)] + [None]
    assert zk.children("/absent") is None
    first, second = zk.children_many(["/", "/absent"])
    assert len(first or []) == 20 and second is None


def test_a_transaction_is_all_or_nothing(zk: ZooKeeper) -> None:
    zk.create("/epoch", b"1")
    assert zk.commit([Check("/epoch", 0), Create("/x", b"x"), SetData("/epoch", b"2", 0)]) == [None, None, 1]
    with pytest.raises(TransactionError) as refused:
        zk.commit([Create("/y"), Check("/epoch", 0), Delete("/x")])
    assert refused.value.index == 1 and isinstance(refused.value.cause, VersionConflictError)
    assert zk.get("/y") is None and zk.get("/x") is not None
    done, failed = zk.commit_many([[Delete("/x")], [Create("/no/parent")]])
    assert done == [None]
    assert isinstance(failed, TransactionError) and isinstance(failed.cause, NoNodeError)


@pytest.mark.spec("Z-6")
def test_nodes_are_open_to_all_and_a_permission_error_is_told_as_such(zk: ZooKeeper) -> None:
    zk.create("/open")
    kazoo = link_of(zk).client
    acls, _ = kazoo.get_acls("/open")
    assert acls == OPEN_ACL_UNSAFE
    kazoo.create("/closed", b"", acl=[make_digest_acl("somebody", "secret", all=True)])
    for forbidden in (
        lambda: zk.get("/closed"),
        lambda: zk.children("/closed"),
        lambda: zk.set("/closed", b"", 0),
        lambda: zk.create("/closed/child"),
        lambda: zk.get_many(["/open", "/closed"]),
    ):
        with pytest.raises(NoPermissionError, match="no permission for znode /closed"):
            forbidden()
    with pytest.raises(TransactionError) as refused:
        zk.commit([SetData("/closed", b"", 0)])
    assert isinstance(refused.value.cause, NoPermissionError)


@pytest.mark.spec("Z-43", "Z-44")
def test_a_watch_on_an_absent_node_fires_at_its_creation(zk: ZooKeeper) -> None:
    events: queue.Queue[WatchEvent] = queue.Queue()
    assert zk.get("/later", events.put) is None
    zk.create("/later")
    assert events.get(timeout=60) == WatchEvent("created", "/later")
    assert zk.children("/later", events.put) == []
    zk.create("/later/child")
    assert events.get(timeout=60) == WatchEvent("children", "/later")


@pytest.mark.spec("COM-10X", "Z-23")
def test_an_oversized_packet_is_refused_before_it_is_sent(zk: ZooKeeper) -> None:
    with pytest.raises(ZnodeTooLargeError, match="1048575"):
        zk.create("/large", b"x" * 1_048_575)
    largest = 1_048_575 - len("/large") - 47 - len(zk.link.chroot)
    assert zk.create("/large", b"x" * largest) == "/large"
    with pytest.raises(ZnodeTooLargeError):
        zk.commit([SetData("/large", b"x" * 600_000, 0), SetData("/large", b"x" * 600_000, 1)])


_READY_MS = 100_000


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path, free_port()).start()
    try:
        yield server.wait_ready(_READY_MS)
    finally:
        server.stop(gentle=False)


@pytest.mark.spec("CTL-18", "Z-41")
def test_a_restart_of_zookeeper_keeps_session_and_watches(own_server: ZooKeeperProcess) -> None:
    states: list[SessionState] = []
    events: queue.Queue[WatchEvent] = queue.Queue()
    with ZooKeeper(own_server.connect, session_timeout_ms=60_000, connection_timeout_ms=60_000) as zk:
        zk.add_session_listener(states.append)
        zk.create("/mine", ephemeral=True)
        session = zk.session_id
        zk.get("/mine", events.put)
        own_server.stop(gentle=False)
        own_server.start()
        node = zk.get("/mine")  # waits for the connection
        assert node is not None and node.ephemeral_owner == session == zk.session_id
        assert events.get(timeout=60) == WatchEvent("reconnected", "/mine")
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


@pytest.mark.spec("Z-40")
def test_a_write_whose_connection_drops_tells_its_true_outcome(own_server: ZooKeeperProcess) -> None:
    """Keep writing while the server is killed again and again: what was told is what is there."""
    with ZooKeeper(own_server.connect, session_timeout_ms=60_000, connection_timeout_ms=60_000) as zk:
        zk.create("/counter", b"0")
        stop = threading.Event()
        told: list[int] = []

        def write() -> None:
            version = 0
            while not stop.is_set():
                version = zk.set("/counter", str(version + 1).encode(), version)
                told.append(version)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(2):
            before = len(told)
            eventually(lambda n=before: len(told) > n + 20, "some writes")  # type: ignore[misc]
            own_server.stop(gentle=False)
            own_server.start().wait_ready(_READY_MS)
        before = len(told)
        eventually(lambda: len(told) > before, "a write")
        stop.set()
        writer.join()
        node = zk.get("/counter")
        assert node is not None and node.version == len(told) == int(node.data)
        assert told == list(range(1, len(told) + 1))


@pytest.mark.spec("CTL-19")
def test_expiry_is_told_before_the_new_session_is_used(zookeeper_server: ZooKeeperProcess) -> None:
    told: list[tuple[SessionState, int]] = []
    with ZooKeeper(zookeeper_server.connect, session_timeout_ms=60_000) as zk:
        zk.add_session_listener(lambda state: told.append((state, zk.session_id)))
        session = zk.session_id
        end_session(zk.connect, lambda: zk.session_id)
        eventually(
            lambda: SessionState.EXPIRED in dict(told) and told[-1][0] is SessionState.CONNECTED, "a new session"
        )
        assert told[-1][1] == zk.session_id != session
    until_expiry = told[: [state for state, _ in told].index(SessionState.EXPIRED) + 1]
    assert {used for _, used in until_expiry} == {session}


@pytest.mark.spec("Z-40")
def test_no_write_waits_longer_than_the_connection_timeout_for_a_server_that_is_gone(
    own_server: ZooKeeperProcess,
) -> None:
    with ZooKeeper(own_server.connect, session_timeout_ms=60_000, connection_timeout_ms=60_000) as zk:
        own_server.stop(gentle=False)
        hasty = ZooKeeper(own_server.connect, connection_timeout_ms=500, link=zk.link)  # to connect may take longer
        for sequential in (False, True):
            with pytest.raises(ConnectionLostError):
                hasty.create("/node", sequential=sequential)


@pytest.mark.spec("Z-43")
def test_a_read_repeated_in_a_new_session_watches_in_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create("/a", b"x")
    watches: list[LinkWatch | None] = []
    get = zk.memory.get

    class Lost:
        def get(self, timeout_s: float, /) -> Node:
            for state in (SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED):
                zk.memory.tell(state)
            raise ConnectionLostError("lost")

    def lost_once(path: str, watch: LinkWatch | None) -> Reply[Node]:
        watches.append(watch)
        return Lost() if len(watches) == 1 else get(path, watch)

    monkeypatch.setattr(zk.memory, "get", lost_once)
    events: list[WatchEvent] = []
    assert zk.get("/a", events.append) is not None
    first, second = watches
    assert first is not None and second is not None
    first(None)
    assert events == [], "an expiry drops the watches of its session"
    second(None)
    assert events == [WatchEvent("reconnected", "/a")]


@pytest.mark.spec("Z-40")
def test_a_node_deleted_and_made_anew_shows_that_its_transaction_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create("/place", b"old")
    taken: list[Op] = [Delete("/place", 0), Create("/place", b"new")]
    commit, times = zk.memory.commit, 0

    class Lost:
        def get(self, timeout_s: float, /) -> list[int | None]:
            raise ConnectionLostError("lost")

    def lost_before_and_after(ops: Sequence[Op]) -> Reply[list[int | None]]:
        nonlocal times
        times += 1
        if times == 2:
            commit(ops)
        return Lost()

    monkeypatch.setattr(zk.memory, "commit", lost_before_and_after)
    assert zk.commit(taken) == [None, None]
    assert times == 2, "again after the one that did not take effect, not after the one that did"
    node = zk.get("/place")
    assert node is not None and node.data == b"new"
