"""The session against a real ZooKeeper: conditional writes, transactions, watches, lost connections, expiry."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import (
    ChrootMissingError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    NoPermissionError,
    SessionExpiredError,
    UsageError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from kafkatool.core.security.zookeeper_security import read_zookeeper_security
from kafkatool.core.zookeeper.acls import ALL_RIGHTS, OPEN, READ, Acl, NodeAcls
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


@pytest.mark.spec("Z-1", "COM-1")
def test_connect_string_is_hosts_and_one_chroot() -> None:
    assert split_connect("a:1,b:2/kafka/x") == ("a:1,b:2", "/kafka/x")
    assert split_connect("a:1/") == ("a:1", "")
    assert split_connect("a,b:2/x") == ("a,b:2", "/x")
    assert split_connect("a:1,b:2,c:3") == ("a:1,b:2,c:3", "")
    for bad in ("", "/kafka", "a:b", "a:1,,b:2"):
        with pytest.raises(UsageError, match="not of the form host:port"):
            split_connect(bad)
    for bad in ("a:1/kafka,b:2", "a:1/kafka,b:2/kafka", "a:1/k/x,b:2,c:3/k"):
        with pytest.raises(UsageError, match="the chroot stands once, behind the last host"):
            split_connect(bad)
    assert split_connect("a:1/one,two") == ("a:1", "/one,two"), "a znode's name may hold a comma"
    for bad in ("localhost:2181/ kafka", "a:1, b:2", " a:1"):
        with pytest.raises(UsageError, match="contains a space"):
            split_connect(bad)


@pytest.mark.spec("Z-2", "COM-1")
def test_a_missing_chroot_is_an_error_and_is_not_made(zookeeper_server: ZooKeeperProcess) -> None:
    connect = f"{zookeeper_server.connect}/nobody/made/this"
    for _ in range(2):
        with pytest.raises(ChrootMissingError, match="/nobody/made/this"), ZooKeeper(connect):
            pass
    with ZooKeeper(zookeeper_server.connect) as outside:
        assert outside.get("/nobody") is None, "nor a part of it"


@pytest.mark.spec("Z-2", "Z-3")
def test_a_broker_makes_each_missing_part_of_the_chroot_and_paths_are_relative_to_it(
    zookeeper_server: ZooKeeperProcess,
) -> None:
    server = zookeeper_server.connect
    with ZooKeeper(server) as before:
        before.create("/there-before", b"kept")
    with ZooKeeper(f"{server}/there-before/made", create_chroot=True) as below:
        assert below.children("/") == []
    with ZooKeeper(f"{server}/made/by/broker", create_chroot=True) as inside:
        assert inside.create("/a", b"x") == "/a"
        assert inside.children("/") == ["a"]
        fired: queue.Queue[WatchEvent] = queue.Queue()
        inside.get("/a", fired.put)
        inside.set("/a", b"y", 0)
        assert fired.get(timeout=60) == WatchEvent("changed", "/a")
        for refused, named in (
            (lambda: inside.create("/a"), "/a"),
            (lambda: inside.set("/none", b"", 0), "/none"),
            (lambda: inside.delete("/a", 0), "/a"),
        ):
            with pytest.raises(ZooKeeperError, match=rf"{named}\b") as error:
                refused()
            assert "/made" not in str(error.value)
    with ZooKeeper(server) as outside:
        nodes = outside.get_many(["/made", "/made/by", "/made/by/broker", "/made/by/broker/a"])
        assert [n and (n.data, n.ephemeral_owner) for n in nodes] == [(b"", 0)] * 3 + [(b"y", 0)]
        former, made = outside.get_many(["/there-before", "/there-before/made"])
        assert former is not None and (former.data, former.version) == (b"kept", 0)
        assert made is not None and (made.data, made.ephemeral_owner) == (b"", 0)
    with ZooKeeper(f"{server}/made/by/broker") as tool:
        assert tool.children("/") == ["a"]


def test_no_server_is_reported_within_the_connection_timeout() -> None:
    with pytest.raises(ZooKeeperUnavailableError), ZooKeeper(f"127.0.0.1:{free_port()}", connection_timeout_ms=300):
        pass


@pytest.mark.spec("Z-5", "COM-1")
def test_the_session_timeout_is_what_zookeeper_is_asked_for(zk_connect: str) -> None:
    with ZooKeeper(zk_connect, session_timeout_ms=47_000) as session:
        assert vars(link_of(session).client)["_session_timeout"] == 47_000


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
    zk.create("/below/parents", make_parents=True)
    zk.create("/alive", ephemeral=True)
    numbered = zk.create("/number-", sequential=True)
    zk.commit([Create("/in-a-transaction")])
    for path in ("/open", "/below", "/below/parents", "/alive", numbered, "/in-a-transaction"):
        assert kazoo.get_acls(path)[0] == OPEN_ACL_UNSAFE, path
    kazoo.create("/closed", b"")
    kazoo.create("/closed/below", b"")
    kazoo.set_acls("/closed", [make_digest_acl("somebody", "secret", all=True)])
    for forbidden in (
        lambda: zk.get("/closed"),
        lambda: zk.children("/closed"),
        lambda: zk.children_many(["/", "/closed"]),
        lambda: zk.delete("/closed/below", 0),
        lambda: zk.set("/closed", b"", 0),
        lambda: zk.create("/closed/child"),
        lambda: zk.get_many(["/open", "/closed"]),
    ):
        with pytest.raises(NoPermissionError, match="no permission for znode /closed"):
            forbidden()
    with pytest.raises(TransactionError) as refused:
        zk.commit([SetData("/closed", b"", 0)])
    assert isinstance(refused.value.cause, NoPermissionError)
    assert "no permission for znode /closed" in str(refused.value.cause)


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
    with pytest.raises(ZnodeTooLargeError, match=r"over ZooKeeper's limit of 1048575 bytes .*: use smaller batches"):
        zk.create("/large", b"x" * 1_048_575)
    largest = 1_048_575 - len("/large") - 47 - len(zk.link.chroot)
    assert zk.create("/large", b"x" * largest) == "/large"
    with pytest.raises(ZnodeTooLargeError, match=r"over ZooKeeper's limit of 1048575 bytes .*: use smaller batches"):
        zk.commit([SetData("/large", b"x" * 600_000, 0), SetData("/large", b"x" * 600_000, 1)])


@pytest.mark.spec("COM-10X")
@pytest.mark.parametrize(
    ("kind", "overhead"), [("create", 47), ("set", 20), ("create in a transaction", 47 + 110), ("set in one", 20 + 110)]
)
def test_the_size_of_a_packet_is_path_and_data_and_what_its_kind_adds(
    zk_connect: str, kind: str, overhead: int
) -> None:
    with ZooKeeper(zk_connect, max_packet_bytes=1024) as zk:
        zk.create("/there")
        path = "/made" if "create" in kind else "/there"
        largest = b"x" * (1024 - len(zk.link.chroot) - len(path) - overhead)

        def write(data: bytes) -> None:
            match kind:
                case "create":
                    zk.create(path, data)
                case "set":
                    zk.set(path, data, 0)
                case _:
                    zk.commit([Create(path, data) if "create" in kind else SetData(path, data, 0)])

        with pytest.raises(
            ZnodeTooLargeError, match=f"znode {path} needs a packet of 1025 bytes, over .* of 1024 bytes"
        ):
            write(largest + b"x")
        node = zk.get(path)
        assert node is None if path == "/made" else node is not None and node.version == 0
        write(largest)
        node = zk.get(path)
        assert node is not None and node.data == largest


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


@pytest.mark.spec("Z-41", "CTL-20")
@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("get", lambda zk: zk.get("/a")),
        ("get", lambda zk: zk.get_many(["/a"])),
        ("children", lambda zk: zk.children("/a")),
        ("create", lambda zk: zk.create("/a/new")),
        ("set", lambda zk: zk.set("/a", b"2", 0)),
        ("delete", lambda zk: zk.delete("/a")),
        ("commit", lambda zk: zk.commit([SetData("/a", b"2", 0)])),
    ],
    ids=["get", "get_many", "children", "create", "set", "delete", "commit"],
)
def test_after_a_lost_connection_it_is_asked_again_and_after_a_lost_session_it_is_not(
    monkeypatch: pytest.MonkeyPatch, method: str, ask: Callable[[ZooKeeper], object]
) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create("/a", b"1")
    request, times = getattr(zk.memory, method), 0

    class Lost:
        def get(self, timeout_s: float, /) -> None:
            raise ConnectionLostError("lost before it arrived")

    def twice_lost(*arguments: object, **options: object) -> object:
        nonlocal times
        times += 1
        return Lost() if times <= 2 else request(*arguments, **options)

    if method == "get":
        monkeypatch.setattr(zk.memory, "reads", lambda: lambda path: twice_lost(path, None))
    monkeypatch.setattr(zk.memory, method, twice_lost)
    ask(zk)
    assert times >= 3
    zk.expire()
    times = 2
    with pytest.raises(SessionExpiredError):
        ask(zk)
    assert times == 3, "asked once"


@pytest.mark.spec("Z-40")
@pytest.mark.parametrize("theirs", [False, True], ids=["own write", "another's write"])
@pytest.mark.parametrize(
    ("method", "ask", "outcome", "refusal"),
    [
        ("create", lambda zk: zk.create("/new", b"x"), "/new", NodeExistsError),
        ("create", lambda zk: zk.create("/new", b"x", ephemeral=True), "/new", NodeExistsError),
        ("set", lambda zk: zk.set("/a", b"2", 0), 1, VersionConflictError),
        ("commit", lambda zk: zk.commit([SetData("/a", b"2", 0)]), [1], TransactionError),
    ],
    ids=["create", "create ephemeral", "set", "transaction"],
)
def test_a_write_whose_reply_was_lost_is_told_from_anothers(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    ask: Callable[[ZooKeeper], object],
    outcome: object,
    refusal: type[Exception],
    theirs: bool,
) -> None:
    ensemble = MemoryEnsemble()
    zk, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)
    zk.create("/a", b"1")
    request, asked = getattr(zk.memory, method), list[bool]()

    class Lost:
        def get(self, timeout_s: float, /) -> None:
            raise ConnectionLostError("lost")

    def lost_behind(*arguments: object, **options: object) -> object:
        asked.append(True)
        if len(asked) > 1:
            return request(*arguments, **options)
        if not theirs:
            request(*arguments, **options)
        elif method == "create":
            other.create("/new", b"y")
        else:
            other.set("/a", b"3", 0)
        return Lost()

    monkeypatch.setattr(zk.memory, method, lost_behind)
    if not theirs:
        assert ask(zk) == outcome
        assert len(asked) == 1, "not repeated"
        return
    with pytest.raises(refusal):
        ask(zk)
    assert [n and n.data for n in zk.get_many(["/new", "/a"])] in ([b"y", b"1"], [None, b"3"])


@pytest.mark.spec("Z-40")
@pytest.mark.parametrize("their_own_ephemeral", [True, False])
def test_a_node_of_the_same_content_is_not_our_ephemeral_one(
    monkeypatch: pytest.MonkeyPatch, their_own_ephemeral: bool
) -> None:
    ensemble = MemoryEnsemble()
    zk, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)

    class Lost:
        def get(self, timeout_s: float, /) -> None:
            raise ConnectionLostError("lost")

    def lost(*_: object, **__: object) -> Lost:
        other.create("/new", b"x", ephemeral=their_own_ephemeral)
        return Lost()

    monkeypatch.setattr(zk.memory, "create", lost)
    with pytest.raises(NodeExistsError):
        zk.create("/new", b"x", ephemeral=True)
    node = zk.get("/new")
    assert node is not None and node.ephemeral_owner != zk.session_id


@pytest.mark.spec("Z-40")
@pytest.mark.parametrize("others_write", [False, True])
def test_the_same_content_does_not_show_that_a_write_was_made(
    monkeypatch: pytest.MonkeyPatch, others_write: bool
) -> None:
    """It was there before, or two others have written it since."""
    ensemble = MemoryEnsemble()
    zk, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)
    zk.create("/a", b"same")
    request, asked = zk.memory.set, list[str]()

    class Lost:
        def get(self, timeout_s: float, /) -> int:
            raise ConnectionLostError("lost")

    def lost_once(path: str, data: bytes, version: int) -> Reply[int]:
        asked.append(path)
        if len(asked) > 1:
            return request(path, data, version)
        if others_write:
            for before in (0, 1):
                other.set(path, data, before)
        return Lost()

    monkeypatch.setattr(zk.memory, "set", lost_once)
    if others_write:
        with pytest.raises(VersionConflictError):
            zk.set("/a", b"same", 0)
    else:
        assert zk.set("/a", b"same", 0) == 1 and len(asked) == 2


@pytest.mark.spec("Z-40", "Z-42")
def test_a_deletion_whose_reply_was_lost_is_done_and_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create("/a")
    request, asked = zk.memory.delete, list[str]()

    class Lost:
        def get(self, timeout_s: float, /) -> None:
            raise ConnectionLostError("lost")

    def lost_behind(path: str, version: int) -> Lost:
        asked.append(path)
        request(path, version)
        return Lost()

    monkeypatch.setattr(zk.memory, "delete", lost_behind)
    zk.delete("/a", 0)
    assert zk.get("/a") is None and asked == ["/a"]


@pytest.mark.spec("SEC-25")
def test_what_would_be_refused_is_known_before_anything_is_written(zk: ZooKeeper) -> None:
    zk.create("/open", b"1")
    zk.create("/closed-parent")
    link_of(zk).client.set_acls("/closed-parent", [make_digest_acl("someone", "else", all=True)])
    zk.check_permitted([Create("/open/new", b"x"), SetData("/open", b"2", 0)])
    zk.check_permitted([Create("/none/at-all"), Create("/open")])  # what does not tell is no refusal
    with pytest.raises(NoPermissionError, match="/closed-parent/new"):
        zk.check_permitted([SetData("/open", b"2", 0), Create("/closed-parent/new")])
    node = zk.get("/open")
    assert node is not None and (node.data, node.version) == (b"1", 0)
    assert zk.children("/open") == []


@pytest.mark.spec("SEC-24")
def test_a_refusal_names_the_node_its_owner_and_this_session(zk: ZooKeeper) -> None:
    zk.create("/theirs")
    acl = [make_digest_acl("someone", "else", all=True), *READ_ACL_UNSAFE]
    link_of(zk).client.set_acls("/theirs", acl)
    with pytest.raises(NoPermissionError) as refused:
        zk.set("/theirs", b"", 0)
    whose = "no permission for znode /theirs: it belongs to digest:someone, this session has no login"
    assert str(refused.value) == whose  # and no hash of the password
    assert refused.value.now == "log in by --zk-auth-file, or as Kafka's tools by KAFKA_OPTS"
    with pytest.raises(NoPermissionError, match="/theirs/new: its parent belongs to digest:someone"):
        zk.create("/theirs/new")


@pytest.mark.spec("SEC-24")
def test_where_an_acl_may_not_be_read_nobody_is_named(zk: ZooKeeper) -> None:
    zk.create("/theirs")
    link_of(zk).client.set_acls("/theirs", [make_digest_acl("someone", "else", all=True)])
    with pytest.raises(NoPermissionError) as refused:
        zk.set("/theirs", b"", 0)
    whose = "no permission for znode /theirs: its ACL does not allow this, this session has no login"
    assert str(refused.value) == whose


@pytest.mark.spec("SEC-24", "SEC-5")
def test_a_session_is_named_by_its_login(tmp_path: Path) -> None:
    for scheme in ("sasl", "digest"):
        login = tmp_path / scheme
        login.touch(0o600)
        login.write_text(f"scheme={scheme}\nusername=alice\npassword=geheim\n")
        assert read_zookeeper_security(auth_file=str(login)).identity == f"this session is {scheme}:alice"


@pytest.mark.spec("SEC-28")
def test_parents_made_on_the_way_have_their_own_rights_whoever_makes_them_first(zk: ZooKeeper) -> None:
    owner = Acl(ALL_RIGHTS, "world", "anyone"), Acl(ALL_RIGHTS, "ip", "127.0.0.1")
    zk.make_nodes_as(NodeAcls(owner))
    zk.create("/config/users/alice", make_parents=True)
    zk.create("/config/changes/config_change_", sequential=True, make_parents=True)
    zk.create("/consumers/g/offsets", make_parents=True)
    for path in ("/config/users/alice", "/config/users"):
        assert set(zk.acls(path)) == set(owner), path
    for path in ("/config", "/config/changes", "/consumers/g", "/consumers/g/offsets"):
        assert set(zk.acls(path)) == {*owner, Acl(READ, "world", "anyone")}, path
    assert tuple(zk.acls("/consumers")) == OPEN
