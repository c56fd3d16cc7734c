"""What is changed below kazoo's surface: a server that accepts a connection and says nothing, as a starting ZooKeeper may;

and thousands of requests at once: all answered, in order, also when the connection drops in the middle.
"""

import contextlib
import signal
import socket
import struct
import threading
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.commands.main import kt
from kafkatool.core.errors import ZooKeeperError, ZooKeeperRefusedError
from kafkatool.core.security.secret import Secret
from kafkatool.core.security.zookeeper_security import ZooKeeperLogin, ZooKeeperSecurity
from kafkatool.core.zookeeper import kazoo_link
from kafkatool.core.zookeeper.kazoo_link import Handshake
from kafkatool.core.zookeeper.session import Create, SessionState, SetData, TransactionError, WatchEvent, ZooKeeper
from tests.core.zookeeper.sessions import link_of
from tests.faults.proxy import Proxy
from tests.serving import serving
from tests.waiting import eventually

COUNT = 2_000


# --- a connection that is never answered ------------------------------------------------------------


@pytest.mark.spec("SEC-22")
def test_a_server_that_demands_a_login_is_said_at_once_and_not_asked_for_ever() -> None:
    """As with enforce.auth.enabled: it takes the session, refuses the first request with -124 and closes."""
    sessions: list[int] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            stream.read(int.from_bytes(stream.read(4)))
            sessions.append(1)
            session = struct.pack(">iiqi16s?", 0, 60_000, 7, 16, bytes(16), False)
            connection.sendall(len(session).to_bytes(4) + session)
            request = stream.read(int.from_bytes(stream.read(4)))
            if len(request) >= 4:
                refused = request[:4] + struct.pack(">qi", 0, -124)
                connection.sendall(len(refused).to_bytes(4) + refused)

    with serving(serve) as port:
        address = f"127.0.0.1:{port}"
        listed = CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, ["topics", "list", "--zookeeper", address])
    assert (listed.exit_code, listed.stdout) == (1, "")
    assert "ZooKeeper demands a login (" in listed.stderr and "): give --zk-auth-file" in listed.stderr
    assert len(sessions) < 5, len(sessions)


@pytest.mark.spec("SEC-21")
def test_a_login_that_is_not_answered_is_tried_again_before_the_server_is_said_to_know_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ZooKeeper that pauses for some seconds answers none either; it ended the start of a broker."""
    monkeypatch.setattr(kazoo_link, "_LOGIN_S", 0.5)
    logins: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            asked = [stream.read(int.from_bytes(stream.read(4)))]
            session = struct.pack(">iiqi16s?", 0, 60_000, 7, 16, bytes(16), False)
            connection.sendall(len(session).to_bytes(4) + session)
            asked.append(stream.read(int.from_bytes(stream.read(4))))
            logins.append(asked[-1])
            stream.read(1)  # until the client gives up

    security = ZooKeeperSecurity(ZooKeeperLogin("sasl", "kafka", Secret("word"), "jaas.conf"))
    with serving(serve) as port:
        address = f"127.0.0.1:{port}"
        with pytest.raises(ZooKeeperRefusedError, match="does not answer a login: has it SASL"):
            ZooKeeper(address, connection_timeout_ms=100_000, security=security).start()
    eventually(lambda: sum(map(bool, logins)) >= 2, "each try to be read")


@pytest.mark.spec("CTL-18", "BRK-122")
def test_a_connection_that_is_accepted_and_never_answered_does_not_cost_the_session(
    zookeeper_server: ZooKeeperProcess,
) -> None:
    states: list[SessionState] = []
    with (
        Proxy(zookeeper_server.port) as proxy,
        ZooKeeper(f"127.0.0.1:{proxy.port}", session_timeout_ms=60_000, connection_timeout_ms=25_000) as zk,
    ):
        zk.add_session_listener(states.append)
        session = zk.session_id
        proxy.silence()
        before = proxy.accepted
        proxy.reset()
        eventually(lambda: proxy.accepted > before, "it to connect again")
        proxy.heal(how="forget")  # the next connection works, this one is never answered
        assert zk.get("/") is not None, "within twice the connection timeout, and before the session would be over"
        assert zk.session_id == session
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


@pytest.mark.spec("CTL-18")
def test_the_limit_grows_while_nobody_answers_up_to_what_is_allowed_and_is_small_again_after() -> None:
    limits: list[float] = []
    answers = iter([TimeoutError, TimeoutError, TimeoutError, None, None])

    def invoke(timeout_s: float, request: Any, xid: Any) -> Any:
        limits.append(timeout_s)
        if error := next(answers):
            raise error
        return request

    handshake = Handshake(invoke, 1)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            handshake(3, "connect")
    assert [handshake(3, "connect"), handshake(3, "connect")] == ["connect", "connect"]
    assert limits == [1, 2, 3, 3, 1]


# --- many requests --------------------------------------------------------------------------------


def fill(zk: ZooKeeper, sizes: list[int]) -> list[str]:
    paths = [f"/n{i}" for i in range(len(sizes))]
    made = zk.commit_many(
        [[Create(p, bytes([i % 256]) * size)] for i, (p, size) in enumerate(zip(paths, sizes, strict=True))]
    )
    assert not any(isinstance(outcome, TransactionError) for outcome in made)
    return paths


def test_answers_of_all_sizes_come_in_order(zk: ZooKeeper) -> None:
    sizes = [0, 1, 300_000, 7, 262_144 - 4, 65_536, *(i % 200 for i in range(COUNT))]
    paths = fill(zk, sizes)
    asked = [path for p in paths for path in (p, "/absent")]
    nodes = zk.get_many(asked)
    assert [n and (len(n.data), n.data[:1]) for n in nodes[0::2]] == [
        (size, bytes([i % 256]) if size else b"") for i, size in enumerate(sizes)
    ]
    assert set(nodes[1::2]) == {None}
    assert zk.children_many(["/", "/absent", "/n1"])[1:] == [None, []]


def test_requests_of_other_threads_and_watches_go_on_meanwhile(zk: ZooKeeper) -> None:
    paths = fill(zk, [10] * COUNT)
    fired: list[WatchEvent] = []
    zk.get_many(paths[:500], watch=fired.append)
    done = threading.Event()
    wrong: list[object] = []

    def single() -> None:
        while not done.is_set():
            if (node := zk.get(paths[7])) is None or len(node.data) not in (10, 3):
                wrong.append(node)

    threads = [threading.Thread(target=single) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        outcomes = zk.commit_many([[SetData(p, b"new", 0)] for p in paths])
        assert outcomes == [[1]] * COUNT
        assert [n and n.data for n in zk.get_many(paths)] == [b"new"] * COUNT
    finally:
        done.set()
        for t in threads:
            t.join()
    assert wrong == []
    eventually(lambda: len(fired) == 500, "a watch of each")
    assert {event.path for event in fired} == set(paths[:500])


@pytest.mark.spec("Z-40")
@pytest.mark.slow
def test_a_connection_that_drops_in_the_middle_loses_and_doubles_nothing(zookeeper_server: ZooKeeperProcess) -> None:
    with (
        Proxy(zookeeper_server.port) as proxy,
        ZooKeeper(f"127.0.0.1:{proxy.port}/pipeline-drop", create_chroot=True) as zk,
    ):
        paths = fill(zk, [100] * COUNT)
        for version in range(5):
            seen = proxy.accepted
            cut = threading.Timer(0.003 * version, proxy.reset)
            cut.start()
            assert (
                zk.commit_many([[SetData(p, b"%d" % version, version)] for p in paths[:300]]) == [[version + 1]] * 300
            )
            cut.join()
            eventually(lambda n=seen: proxy.accepted > n, "it to connect again")  # type: ignore[misc]
            proxy.reset()
            assert [n and n.data for n in zk.get_many(paths)][:301] == [b"%d" % version] * 300 + [b"," * 100]


def test_more_wake_ups_than_fit_between_the_threads_block_nobody(zk: ZooKeeper) -> None:
    fill(zk, [10] * 3)
    zk.start()  # once more: nothing is wrapped twice
    for _ in range(5_000):  # the pair holds some hundred
        link_of(zk).client.connection.wake()
    assert [n and len(n.data) for n in zk.get_many(["/n0", "/n1", "/n2"])] == [10] * 3


@pytest.mark.spec("RSN-23X")
def test_an_interruption_while_a_request_is_sent_is_no_end_of_the_session(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake_up = link_of(zk).client.connection.wake_up

    def interrupted(data: bytes) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as once, pytest.raises(KeyboardInterrupt):
        once.setattr(wake_up, "send", interrupted)
        zk.create("/made")
    eventually(lambda: zk.children("/") == ["made"], "what was queued to be sent with what follows")


def test_a_bulk_read_that_waits_does_not_hold_up_others_nor_outlive_a_closed_session(zk: ZooKeeper) -> None:
    paths = fill(zk, [10] * COUNT)
    answers: list[int] = []
    readers = [threading.Thread(target=lambda: answers.append(len(zk.get_many(paths)))) for _ in range(4)]
    for reader in readers:
        reader.start()
    assert zk.children("/n1") == []
    for reader in readers:
        reader.join()
    assert answers == [COUNT] * 4 and zk.get_many([]) == []
    zk.close()
    with pytest.raises(ZooKeeperError):
        zk.get_many(paths)
