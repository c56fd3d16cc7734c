"""Logins at a real ZooKeeper: what is sent before, what a new connection does, who is refused, whose answer is late."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.commands.main import kt
from kafkatool.core.errors import NoPermissionError, ZooKeeperRefusedError, ZooKeeperUnavailableError
from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity, read_zookeeper_security
from kafkatool.core.zookeeper.acls import OWN_NODES
from kafkatool.core.zookeeper.session import SessionState, WatchEvent, ZooKeeper
from tests.core.zookeeper.sessions import end_session, link_of
from tests.integration.holding_proxy import HoldingProxy
from tests.ports import free_port
from tests.waiting import eventually

CONNECT, GET, SASL, AUTH, CLOSE = (
    0,
    4,
    102,
    100,
    -11 % (1 << 32),
)  # types of requests; a session's first has zeros there
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
PROVIDER = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
ALERT, HELLO = b"\x15", b"\x16"


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("login") / "jaas.conf"
    file.touch(0o600)
    file.write_text(
        f'Server {{ {DIGEST} required user_kafka="word"; }};\n'
        f'Client {{ {DIGEST} required username="kafka" password="word"; }};\n'
    )
    return file


@pytest.fixture(scope="module")
def server(login: Path) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(login.parent / "zookeeper", free_port(), settings=PROVIDER, login_file=login).start()
    try:
        yield process.wait_ready(100_000)
    finally:
        process.stop(gentle=False)


@pytest.fixture
def security(login: Path) -> ZooKeeperSecurity:
    return read_zookeeper_security(auth_file=str(login))


@pytest.mark.slow
@pytest.mark.spec("SEC-21")
def test_a_login_that_is_not_answered_at_once_is_made_again(
    server: ZooKeeperProcess, security: ZooKeeperSecurity
) -> None:
    logins = itertools.count()
    with (
        HoldingProxy(server.port, lambda kind, _: kind == SASL and next(logins) == 0) as proxy,
        ZooKeeper(f"127.0.0.1:{proxy.port}", security=security) as zk,
    ):
        assert proxy.held.is_set()
        zk.create("/made-after-all")


class Sent:
    """What a client sends through a proxy, by connection: the types of its requests, in order."""

    def __init__(self) -> None:
        self.connections: list[list[int]] = []
        self._of_thread: dict[int, list[int]] = {}  # each connection has one at the proxy; an old one may come late

    def note(self, kind: int, request: bytes) -> bool:
        """Hold nothing, note everything."""
        if kind == CONNECT:
            self.connections.append([])
            self._of_thread[threading.get_ident()] = self.connections[-1]
        else:
            self._of_thread[threading.get_ident()].append(kind)
        return False

    def check_logins(self, kind: int) -> None:
        """Fail unless each connection on which anything is sent begins with a login that nothing else is sent in."""
        for sent in filter(None, self.connections):
            login = list(itertools.takewhile(kind.__eq__, sent))
            assert login and kind not in sent[len(login) :], self.connections


COUNT: Final = 1_000


@pytest.mark.slow
@pytest.mark.spec("SEC-16", "SEC-20")
def test_every_connection_and_session_logs_in_before_anything_else_is_sent(
    server: ZooKeeperProcess, security: ZooKeeperSecurity
) -> None:
    sent = Sent()
    seen: list[WatchEvent] = []
    with (
        HoldingProxy(server.port, sent.note) as proxy,
        ZooKeeper(f"127.0.0.1:{proxy.port}", security=security) as zk,
    ):
        zk.make_nodes_as(OWN_NODES)
        zk.create("/mine", b"1")
        zk.create("/mine/live", ephemeral=True)
        assert zk.get("/mine", seen.append) is not None
        first = zk.session_id
        for _ in range(3):
            link_of(zk).client.drop()
            found = zk.get_many(["/mine"] * COUNT)  # asked while there is no connection
            assert [node.data for node in found if node is not None] == [b"1"] * COUNT
        assert zk.session_id == first and zk.children("/mine") == ["live"]
        zk.set("/mine", b"2", 0)  # which nobody else may
        eventually(lambda: len(seen) == 1, "the watch to be told")
        end_session(server.connect, lambda: zk.session_id)
        node = zk.get("/mine")
        assert node is not None and node.data == b"2" and zk.session_id != first
        zk.delete("/mine")  # what lived with the session is gone
    assert sum(map(bool, sent.connections)) >= 5
    sent.check_logins(SASL)


@pytest.mark.slow
@pytest.mark.spec("SEC-16", "SEC-21")
def test_a_session_whose_login_is_not_done_never_counts_as_connected(
    server: ZooKeeperProcess, security: ZooKeeperSecurity
) -> None:
    logins = itertools.count()
    states: list[SessionState] = []
    with HoldingProxy(server.port, lambda kind, _: kind == SASL and next(logins) >= 1) as proxy:
        zk = ZooKeeper(f"127.0.0.1:{proxy.port}", security=security, connection_timeout_ms=100_000)
        zk.add_session_listener(states.append)
        with pytest.raises(ZooKeeperRefusedError, match="does not answer a login: has it SASL"):
            zk.start()
        assert proxy.held.is_set(), "the server has answered the first token, not the second"
    assert SessionState.CONNECTED not in states


@pytest.mark.slow
@pytest.mark.spec("SEC-20")
def test_reads_go_on_over_a_server_that_is_killed_among_them(login: Path, tmp_path: Path) -> None:
    """Nobody but the login may read, so each answer is one of a connection that has logged in."""
    server = ZooKeeperProcess(tmp_path / "zookeeper", free_port(), settings=PROVIDER, login_file=login).start()
    try:
        server.wait_ready(100_000)
        security = read_zookeeper_security(auth_file=str(login))
        with ZooKeeper(server.connect, security=security, session_timeout_ms=60_000) as zk:
            states: list[SessionState] = []
            zk.add_session_listener(states.append)
            zk.make_nodes_as(OWN_NODES)
            zk.create("/config")
            zk.create("/config/users", b"1")  # of those that others may not even read
            zk.create("/live", ephemeral=True)
            first = zk.session_id
            found: list[object] = []

            def read() -> None:
                while len(found) < COUNT or len(states) < 2:
                    found.extend(zk.get_many(["/config/users"] * COUNT))

            reading = threading.Thread(target=read)
            reading.start()
            eventually(lambda: bool(found and link_of(zk).client.pending), "reads to be under way")
            server.stop(gentle=False)
            server.start().wait_ready(100_000)
            reading.join(100)
            assert states[:2] == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert found and None not in found
            assert zk.session_id == first and "live" in (zk.children("/") or ())
            with ZooKeeper(server.connect) as nobody, pytest.raises(NoPermissionError):
                nobody.get("/config/users")
    finally:
        server.stop(gentle=False)


@pytest.mark.slow
@pytest.mark.spec("SEC-21", "SEC-23")
def test_a_wrong_password_is_refused_and_nothing_is_sent_behind_it(server: ZooKeeperProcess, tmp_path: Path) -> None:
    file = written(tmp_path / "login", "username=kafka\npassword=guess\n")
    sent = Sent()
    with HoldingProxy(server.port, sent.note) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        done = listed(address, "--zk-auth-file", str(file))
    assert done == (1, "", f"kt: ZooKeeper at {address} refused the login of kafka (SASL DIGEST-MD5): check {file}\n")
    assert set(itertools.chain(*sent.connections)) <= {SASL, CLOSE}, sent.connections
    security = read_zookeeper_security(auth_file=str(file))
    with pytest.raises(ZooKeeperUnavailableError, match="did not answer within") as absent:
        ZooKeeper(f"127.0.0.1:{free_port()}", security=security, connection_timeout_ms=1000).start()
    assert not isinstance(absent.value, ZooKeeperRefusedError)


@pytest.mark.slow
@pytest.mark.spec("SEC-22")
@pytest.mark.parametrize(
    "settings",
    [{"sessionRequireClientSASLAuth": "true"}, {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}],
    ids=["sessionRequireClientSASLAuth", "enforce.auth.enabled"],
)
def test_a_zookeeper_that_demands_a_login_is_said_and_not_asked_for_ever(
    login: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    directory = tmp_path / "zookeeper"
    server = ZooKeeperProcess(directory, free_port(), settings=PROVIDER | settings, login_file=login).start()
    try:
        server.wait_ready(100_000)
        sent = Sent()
        with HoldingProxy(server.port, sent.note) as proxy:
            code, out, told = listed(f"127.0.0.1:{proxy.port}")
        assert (code, out) == (1, "")
        assert "ZooKeeper demands a login (" in told and told.endswith("): give --zk-auth-file\n")
        assert len(sent.connections) < 5, sent.connections
        with ZooKeeper(server.connect, security=read_zookeeper_security(auth_file=str(login))) as zk:
            zk.create("/made")
    finally:
        server.stop(gentle=False)


@pytest.mark.slow
@pytest.mark.spec("SEC-18")
def test_the_scheme_digest_is_an_identity_on_each_connection_and_a_wrong_password_another(
    server: ZooKeeperProcess, tmp_path: Path
) -> None:
    digest = "scheme=digest\nusername=me\npassword="
    mine = read_zookeeper_security(auth_file=str(written(tmp_path / "mine", f"{digest}geheim\n")))
    sent = Sent()
    with HoldingProxy(server.port, sent.note) as proxy, ZooKeeper(f"127.0.0.1:{proxy.port}", security=mine) as zk:
        zk.make_nodes_as(OWN_NODES)
        zk.create("/of-me")
        # base64 of SHA-1 of me:geheim, as `openssl dgst -sha1 -binary | base64` gives it
        assert {acl.id for acl in zk.acls("/of-me") if acl.scheme == "digest"} == {"me:HcbSGakHy/3I5hnJxvaxSk1GNQc="}
        for version in range(3):
            link_of(zk).client.drop()
            zk.set("/of-me", b"x", version)
    assert sum(map(bool, sent.connections)) >= 4
    sent.check_logins(AUTH)
    wrong = read_zookeeper_security(auth_file=str(written(tmp_path / "wrong", f"{digest}guess\n")))
    with ZooKeeper(server.connect, security=wrong) as other:
        assert other.get("/of-me") is not None
        with pytest.raises(NoPermissionError, match="it belongs to digest:me, this session is digest:me") as refused:
            other.set("/of-me", b"y", 3)
        assert refused.value.now is not None and refused.value.now.endswith("a wrong password makes another identity")


def written(file: Path, text: str) -> Path:
    file.touch(0o600)
    file.write_text(text)
    return file


def listed(address: str, *flags: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of kt topics list."""
    done = CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, ["topics", "list", "--zookeeper", address, *flags])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.spec("SEC-15")
def test_a_tls_port_that_stood_still_when_it_was_asked_is_told_all_the_same() -> None:
    with _answering_the_second_hello() as port, pytest.raises(ZooKeeperRefusedError) as refused:
        ZooKeeper(f"127.0.0.1:{port}", connection_timeout_ms=1000).start()
    assert str(refused.value) == f"127.0.0.1:{port} speaks TLS: give --zk-tls-config-file"


@contextlib.contextmanager
def _answering_the_second_hello() -> Iterator[int]:
    """Give the port of who accepts all, and says nothing but to the second beginning of TLS."""
    listener = socket.create_server(("127.0.0.1", 0))
    hellos = itertools.count()
    taken = [listener]

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if client.recv(1) == HELLO and next(hellos) == 1:
                client.sendall(ALERT)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                taken.append(client)
                threads.append(threading.Thread(target=answer, args=(client,)))
                threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        for found in taken:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for found in taken:
            found.close()
