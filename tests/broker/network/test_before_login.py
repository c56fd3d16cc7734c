"""What connections cost until they have logged in, in memory and in time, and others meanwhile (SEC-57, 96, 97)."""

import ssl
import statistics
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority
from kafkatool.broker.network import processor
from kafkatool.broker.network.admission import LARGE_LOGINS
from kafkatool.broker.network.encrypted import EncryptedConnection
from kafkatool.broker.network.socket_server import SocketServer
from tests.broker.network.raw_client import RawClient, wait_until
from tests.broker.network.secured import ALICE, HANDSHAKE_1, METADATA, VERSIONS_0, authenticate, secured, tls_client

SMALL = 32 << 10
LARGE = 512 << 10


def log_in(peer: RawClient) -> None:
    for step in (HANDSHAKE_1, authenticate(ALICE)):
        assert peer.ask(step)[4:6] == b"\0\0"


@contextmanager
def open_clients(server: SocketServer, number: int) -> Iterator[list[RawClient]]:
    with ExitStack() as opened:
        yield [opened.enter_context(closing(RawClient(server.endpoints[0].port))) for _ in range(number)]


def send_but_a_byte(peer: RawClient, frame_bytes: int) -> None:
    peer.socket.sendall(struct.pack(">i", frame_bytes) + bytes(frame_bytes - 1))


@pytest.mark.spec("SEC-96", "SEC-57")
def test_two_hundred_that_stall_before_their_login_cost_less_than_64_kb_each() -> None:
    with secured("SASL_PLAINTEXT") as server, open_clients(server, 1) as (good,):
        log_in(good)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            with open_clients(server, 200) as stalled:
                for peer in stalled:
                    assert len(peer.ask(VERSIONS_0)) > 100
                    send_but_a_byte(peer, SMALL)
                wait_until(lambda: server.received_bytes >= 200 * (SMALL - 1))
                cost_bytes = (tracemalloc.get_traced_memory()[0] - before) // 200
                waits_ms = []
                for _ in range(200):
                    asked = time.perf_counter()
                    assert good.ask(METADATA) == METADATA
                    waits_ms.append((time.perf_counter() - asked) * 1000)
        finally:
            tracemalloc.stop()
    p99 = statistics.quantiles(waits_ms, n=100)[98]
    print(
        f"each costs {cost_bytes} bytes, and its client; another waits {statistics.median(waits_ms):.2f} ms, p99 {p99:.2f}"
    )
    assert SMALL <= cost_bytes <= 64 << 10


@pytest.mark.spec("SEC-96", "SEC-63")
def test_few_send_large_frames_before_their_login_and_another_may_when_one_is_read_or_gone() -> None:
    wrong = authenticate(b"\0alice\0" + b"x" * (LARGE - len(authenticate(b"\0alice\0"))))
    refused = b"\0\x3a"
    assert LARGE_LOGINS == 16
    with secured("SASL_PLAINTEXT") as server, open_clients(server, LARGE_LOGINS) as large:

        def all_places_are_taken() -> bool:
            return server.received_bytes >= LARGE_LOGINS * (LARGE - 1)

        def one_is_free() -> bool:
            with open_clients(server, 1) as (more,):
                more.ask(HANDSHAKE_1)
                try:
                    return more.ask(wrong)[4:6] == refused
                except (EOFError, ConnectionError):
                    return False

        large[0].ask(HANDSHAKE_1)
        large[0].socket.sendall(struct.pack(">i", LARGE) + wrong[:-1])
        for peer in large[1:]:
            send_but_a_byte(peer, LARGE)
        wait_until(all_places_are_taken)
        assert not one_is_free()
        with open_clients(server, 1) as (small,):
            log_in(small)
            large_request = b"\0\x03" + bytes(LARGE)
            assert small.ask(large_request) == large_request, "a login is needed for no more"
        large[0].socket.sendall(wrong[-1:])
        assert large[0].receive()[4:6] == refused
        wait_until(one_is_free)
        with open_clients(server, 1) as (again,):
            send_but_a_byte(again, LARGE)
            wait_until(all_places_are_taken)
            assert not one_is_free()
        wait_until(one_is_free)


@pytest.mark.spec("SEC-97")
def test_handshake_and_login_have_one_time_together(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s = 0.0
    monkeypatch.setattr(processor, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + slept_s))
    with secured("SASL_SSL", authority, kt_authentication_timeout_ms="200000") as server:
        slow = RawClient(server.endpoints[0].port)
        tls_client(server, authority).close()  # its handshake is done, so the one that came before is timed
        slept_s = 120
        context = ssl.create_default_context(cafile=authority.directory / "ca.pem")
        slow.socket = context.wrap_socket(slow.socket, server_hostname="localhost")
        assert slow.ask(HANDSHAKE_1)[4:6] == b"\0\0"
        later = tls_client(server, authority)
        slept_s = 240
        assert slow.is_closed_by_server(), "its time began before the handshake"
        log_in(later)
        for peer in (slow, later):
            peer.close()


@pytest.mark.spec("SEC-57")
def test_handshakes_also_stalled_ones_are_made_by_the_processor_alone(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    by: set[str] = set()
    shake_hands = EncryptedConnection._shake_hands  # noqa: SLF001  # the only place where OpenSSL shakes hands

    def noted(connection: EncryptedConnection) -> None:
        by.add(threading.current_thread().name)
        shake_hands(connection)

    monkeypatch.setattr(EncryptedConnection, "_shake_hands", noted)
    with secured("SASL_SSL", authority) as server, open_clients(server, 20) as stalled:
        for peer in stalled:
            peer.socket.sendall(b"\x16\x03\x01\x02\x00")
        good = tls_client(server, authority)
        log_in(good)
        good.close()
    assert by == {"network-MINE-processor-0"}
