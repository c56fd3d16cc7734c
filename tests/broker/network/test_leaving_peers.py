"""Peers of a TLS or SASL listener that leave in the middle, or are not let in: each ends alone, its place is free again."""

import re
import socket
import ssl
import struct
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority, Certificate
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.core.security import scram
from tests.broker.network.raw_client import RawClient, frame, wait_until
from tests.broker.network.secured import (
    ALICE,
    HANDSHAKE_0,
    HANDSHAKE_1,
    METADATA,
    PASSWORD,
    VERSIONS_0,
    authenticate,
    client,
    handshake,
    secured,
    tls_client,
)
from tests.waiting import awaited

SCRAM_FIRST = authenticate(scram.encode_client_first(scram.client_first("alice", "a-nonce-of-twenty-four-by")))
LOGGED_IN = [HANDSHAKE_1, authenticate(ALICE)]
STATES: dict[str, tuple[list[bytes], bytes]] = {
    "first": ([], b""),
    "half a length": ([], b"\0\0"),
    "half a request": ([], frame(VERSIONS_0)[:9]),
    "versions": ([VERSIONS_0], b""),
    "tokens": ([HANDSHAKE_1], b""),
    "half a token": ([HANDSHAKE_1], frame(authenticate(ALICE))[:20]),
    "bare tokens": ([HANDSHAKE_0], b""),
    "half a bare token": ([HANDSHAKE_0], frame(ALICE)[:9]),
    "in the middle of SCRAM": ([handshake("SCRAM-SHA-256"), SCRAM_FIRST], b""),
    "refused, and the answer unread": ([HANDSHAKE_1], frame(authenticate(b"\0alice\0bad"))),
    "ready": (LOGGED_IN, b""),
    "half a request behind the login": (LOGGED_IN, frame(METADATA)[:9]),
    "an answer unread": (LOGGED_IN, frame(METADATA)),
}
"""What is asked, and what is sent behind it, when the peer leaves."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"))


def leave(peer: RawClient, *, by_reset: bool) -> None:
    if by_reset:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def connected(server: SocketServer, authority: Authority | None) -> RawClient:
    return tls_client(server, authority) if authority else RawClient(server.endpoints[0].port)


@pytest.mark.spec("SEC-62", "SEC-116")
@pytest.mark.parametrize("by_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_peer_may_leave_in_every_state_and_nobody_else_notices(
    protocol: str, by_reset: bool, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Two places for the address: one is another client's, so that each peer needs the place of the one before."""
    caplog.set_level("INFO", "kafkatool.broker")
    tls = authority if protocol == "SASL_SSL" else None
    serving = secured(
        protocol,
        tls,
        connection_failed_authentication_delay_ms="0",
        max_connections_per_ip="2",
        num_network_threads="1",
    )
    with serving as server:
        other = connected(server, tls)
        for request in LOGGED_IN:
            other.ask(request)

        def has_left(asked: list[bytes], last: bytes) -> bool | None:
            """None: the one before is still there."""
            try:
                peer = connected(server, tls)
            except OSError:
                return None
            try:
                for request in asked:
                    peer.ask(request)
                peer.socket.sendall(last)
            except (OSError, EOFError):
                peer.close()
                return None
            leave(peer, by_reset=by_reset)
            return True

        for state, (asked, last) in STATES.items():
            awaited(lambda a=asked, b=last: has_left(a, b), f"a place, to leave in state {state!r}")  # type: ignore[misc]
            assert other.ask(METADATA) == METADATA, state
        other.close()
    assert "Traceback" not in caplog.text
    assert not [r for r in caplog.records if r.levelname != "INFO" and "max.connections.per.ip" not in r.getMessage()]


@pytest.mark.spec("SEC-60", "SEC-116")
def test_a_peer_may_leave_in_the_middle_of_a_handshake(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkatool.broker")
    with secured("SSL", authority, num_network_threads="1", connection_failed_authentication_delay_ms="0") as server:
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
        whole = hello.read()
        other = tls_client(server, authority)
        for size_bytes in (0, 1, 5, len(whole) // 2, len(whole)):
            for by_reset in (False, True):
                with client(server) as peer:
                    peer.socket.sendall(whole[:size_bytes])
                    if size_bytes == len(whole):
                        assert peer.socket.recv(1) == b"\x16"  # the server's turn is over, the peer's would be next
                    leave(peer, by_reset=by_reset)
                assert other.ask(METADATA) == METADATA
        other.close()
    assert "Traceback" not in caplog.text
    assert not [r for r in caplog.records if r.levelname != "INFO"]


def refused_by_server(server: SocketServer, authority: Authority, mine: Certificate | None) -> None:
    files = {"certificate": mine.certificate, "key": mine.key} if mine else {}
    with pytest.raises((OSError, EOFError)):
        tls_client(server, authority, **files).ask(METADATA)


@pytest.mark.spec("SEC-60", "SEC-116")
def test_who_is_not_let_in_and_who_does_not_want_in_are_one_line_each(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkatool.broker")
    early = authority.certificate("early", "CN=early", PASSWORD, validity="not yet")
    b1 = authority.certificate("b1", "CN=b1", PASSWORD, names=["b1.example"])
    with secured("SSL", authority, ssl_client_auth="requested", ssl_keystore_location=str(b1.keystore)) as server:
        refused_by_server(server, authority, None)  # it is not localhost's, says the client
        refused_by_server(server, Authority.open(tmp_path), None)  # nor of an authority that it trusts
        wait_until(lambda: caplog.text.count("the TLS handshake failed") == 2)
    with secured("SSL", authority, ssl_client_auth="requested") as server:
        refused_by_server(server, authority, early)
        wait_until(lambda: caplog.text.count("the TLS handshake failed") == 3)
    lines = [re.sub(r":\d+ ", ":PORT ", r.getMessage()) for r in caplog.records if "listener MINE: " in r.getMessage()]
    start = "listener MINE: 127.0.0.1:PORT the TLS handshake failed: "
    assert [re.sub(r"failed: .* alert", "failed: alert", line) for line in lines] == [
        f"{start}alert bad certificate",
        f"{start}alert unknown ca",
        f"{start}certificate is not yet valid",
    ]
    assert {r.levelname for r in caplog.records} == {"INFO"}


@pytest.mark.spec("SEC-68", "SEC-116")
def test_a_mechanism_that_is_not_offered_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkatool.broker")
    with secured("SASL_PLAINTEXT", sasl_enabled_mechanisms="PLAIN") as server, client(server) as peer:
        assert peer.ask(handshake("SCRAM-SHA-256"))[4:] == struct.pack(">hih5s", 33, 1, 5, b"PLAIN")
        assert peer.is_closed_by_server()
    told = [re.sub(r":\d+ ", ":PORT ", r.getMessage()) for r in caplog.records if "could not" in r.getMessage()]
    why = "mechanism 'SCRAM-SHA-256' is not enabled"
    assert told == [f"listener MINE: 127.0.0.1:PORT could not log in by no mechanism as '': {why}"]


@pytest.mark.spec("SEC-97", "SEC-116")
def test_a_token_that_comes_byte_by_byte_prolongs_nothing(authority: Authority) -> None:
    """Whole tokens, behind whole handshakes: one time for all of it."""
    with secured("SASL_SSL", authority, kt_authentication_timeout_ms="1000") as server:
        peer = tls_client(server, authority)
        try:
            peer.ask(HANDSHAKE_1)
            for byte in frame(authenticate(b"\0alice\0" + b"x" * 10_000)):
                peer.socket.sendall(bytes([byte]))
                peer.socket.settimeout(0.05)
                try:
                    assert not peer.socket.recv(1)
                    break
                except TimeoutError:
                    continue
            else:
                pytest.fail("each byte prolonged it")
        except (OSError, EOFError):
            pass  # closed while it was writing
        finally:
            peer.close()
