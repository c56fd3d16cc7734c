"""A client's connection to a listener with TLS or a login: its limits, and new logins while it lives."""

import socket
import struct
import threading
from dataclasses import replace
from time import monotonic

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority
from kafkatool.broker.network.request_channel import Request
from kafkatool.core.client import connection as module
from kafkatool.core.client import login
from kafkatool.core.client.connection import Connection
from kafkatool.core.client.login import BrokerLogin
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.protocol.frames import encode_response
from kafkatool.core.protocol.messages import heartbeat
from kafkatool.core.security.client_security import ClientSecurity, read_client_security
from tests.broker.network.raw_client import wait_until
from tests.broker.network.secured import secured

LIFETIME_S = 3600
HEARTBEAT = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"))


def by_tls(authority: Authority) -> ClientSecurity:
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.directory / "ca.pem")}
    return read_client_security(given, "test")


def by_password(mechanism: str) -> ClientSecurity:
    kind = "Plain" if mechanism == "PLAIN" else "Scram"
    jaas = f'x.{kind}LoginModule required username="alice" password="alice-secret";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return read_client_security(given, "test")


def connect(port: int, security: ClientSecurity, timeout_ms: int = 100_000) -> Connection:
    return Connection("localhost", port, client_id="test", timeout_ms=timeout_ms, security=security)


def answer(request: Request) -> None:
    (correlation_id,) = struct.unpack_from(">i", request.frame, 4)
    request.connection.send(encode_response(heartbeat.API, 0, correlation_id, heartbeat.HeartbeatResponse()))


@pytest.mark.spec("SEC-34")
@pytest.mark.parametrize("is_here", [True, False])
def test_who_is_told_of_an_open_password_is_asked_by_the_peers_address(
    monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    asked, told = list[str](), list[str]()

    def is_loopback(address: str) -> bool:
        asked.append(address)
        return is_here

    monkeypatch.setattr(login, "is_loopback", is_loopback)
    with secured("SASL_PLAINTEXT", None, answer) as server:
        connect(server.endpoints[0].port, replace(by_password("PLAIN"), warn=told.append)).close()
    assert asked in (["127.0.0.1"], ["::1"])
    assert len(told) == (0 if is_here else 1)


@pytest.mark.spec("SEC-37")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_connection_logs_in_again_between_requests_before_its_login_ends(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped_s, logins, connections = [0.0], list[float](), set[object]()
    run = BrokerLogin.run

    def noting(self: BrokerLogin) -> int:
        logins.append(skipped_s[0])
        return run(self)

    def served(request: Request) -> None:
        connections.add(request.connection)
        answer(request)

    monkeypatch.setattr(BrokerLogin, "run", noting)
    monkeypatch.setattr(module, "monotonic", lambda: monotonic() + skipped_s[0])
    with (
        secured("SASL_PLAINTEXT", None, served, connections_max_reauth_ms=str(LIFETIME_S * 1000)) as server,
        connect(server.endpoints[0].port, by_password(mechanism)) as connection,
    ):
        for skipped_s[0] in (0.0, 0.84 * LIFETIME_S, 0.951 * LIFETIME_S, 1.7 * LIFETIME_S):
            assert connection.send(heartbeat.API, 0, HEARTBEAT).error_code == 0
    assert logins == [0.0, 0.951 * LIFETIME_S], "not before 85 % of its life, and at 95 %; and then for another one"
    assert len(connections) == 1, "without being closed"


@pytest.mark.spec("SEC-37")
def test_a_login_that_holds_for_ever_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    run, logins, skipped_s = BrokerLogin.run, list[int](), [0.0]

    def noting(self: BrokerLogin) -> int:
        logins.append(1)
        return run(self)

    monkeypatch.setattr(BrokerLogin, "run", noting)
    monkeypatch.setattr(module, "monotonic", lambda: monotonic() + skipped_s[0])
    with (
        secured("SASL_PLAINTEXT", None, answer) as server,
        connect(server.endpoints[0].port, by_password("PLAIN")) as connection,
    ):
        for skipped_s[0] in (0.0, 1e9):
            assert connection.send(heartbeat.API, 0, HEARTBEAT).error_code == 0
    assert logins == [1]


@pytest.mark.spec("SEC-41")
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_handshake_and_login_count_into_the_limit_of_connecting(protocol: str, authority: Authority) -> None:
    """Of a peer that takes the connection and says nothing."""
    security = by_tls(authority) if protocol == "SSL" else by_password("PLAIN")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(BrokerUnreachableError, match="timed out"):
        connect(silent.getsockname()[1], security, 300)


@pytest.mark.spec("SEC-41")
def test_a_close_wakes_who_waits_for_an_answer_by_tls(authority: Authority) -> None:
    waiting: list[Request] = []
    failed: list[BrokerUnreachableError] = []
    with secured("SSL", authority, waiting.append) as server:
        connection = connect(server.endpoints[0].port, by_tls(authority), 3_600_000)

        def ask() -> None:
            try:
                connection.send(heartbeat.API, 0, HEARTBEAT)
            except BrokerUnreachableError as e:
                failed.append(e)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: bool(waiting))
        connection.close()
        asking.join(100)
        assert not asking.is_alive() and len(failed) == 1


@pytest.mark.spec("SEC-41")
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_request_that_is_not_answered_in_time_is_given_up(protocol: str, authority: Authority) -> None:
    security = by_tls(authority) if protocol == "SSL" else by_password("PLAIN")
    with (
        secured(protocol, authority if protocol == "SSL" else None, lambda _: None) as server,
        connect(server.endpoints[0].port, security) as connection,
        pytest.raises(BrokerUnreachableError, match="timed out"),
    ):
        connection.send(heartbeat.API, 0, HEARTBEAT, timeout_ms=300)
