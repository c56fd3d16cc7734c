"""A login at ZooKeeper whose answer is late; a TLS port that stands still when it is asked what it is."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import ZooKeeperRefusedError
from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity, read_zookeeper_security
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.holding_proxy import HoldingProxy
from tests.ports import free_port

SASL = 102  # the type of a login's requests
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
