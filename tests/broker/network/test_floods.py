"""Floods of what comes before a login: nothing of it is served, nothing of it stays."""

import contextlib
import gc
import random
import socket
import ssl
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kafkatool.broker.embedded.secured.certificates import Authority
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.network.socket_server import SocketServer
from tests.broker.network.raw_client import RawClient, echo, frame, wait_until
from tests.broker.network.secured import (
    ALICE,
    HANDSHAKE_0,
    HANDSHAKE_1,
    METADATA,
    VERSIONS_0,
    authenticate,
    handshake,
    secured,
    tls_client,
)

FRAMES = 50
"""Of one connection, of which the first few are read."""
TLS_FRAMES = 200
"""The same where each costs a handshake."""
SEEDS = [
    *(HANDSHAKE_1, HANDSHAKE_0, VERSIONS_0, authenticate(ALICE), METADATA, handshake("SCRAM-SHA-256")),
    *(handshake("SCRAM-SHA-512", 0), authenticate(b"n,,n=alice,r=x"), bytes.fromhex("001200630000000100026b7400")),
]
CODES = {0, 33, 34, 35, 42, 58}
"""What table S answers, but for bare tokens of SCRAM."""


def noise(rng: random.Random) -> bytes:
    """Make a frame of what may come: a step of a login, mutated or cut, another request, or anything."""
    kind = rng.random()
    if kind < 0.15:
        start = struct.pack(
            ">hhi2s2s", rng.randrange(-1, 80), rng.randrange(-1, 16), rng.randrange(1 << 31), b"\0\2", b"kt"
        )
        return frame(start + rng.randbytes(rng.randrange(60)))
    if kind < 0.25:
        return rng.randbytes(rng.randrange(1, 40))
    body = bytearray(rng.choice(SEEDS))
    if body.endswith(b"alice-secret"):
        body[-1] ^= 1
    if rng.random() < 0.6:
        body[rng.randrange(len(body))] = rng.randrange(256)
    if body.endswith(b"alice-secret"):
        body[-1] ^= 1
    if rng.random() < 0.2:
        del body[rng.randrange(len(body)) :]
    return frame(bytes(body)) * (2 if rng.random() < 0.1 else 1)


def is_of_table_s(answers: bytes) -> bool:
    """Tell whether that is what the table answers, and nothing else."""
    while len(answers) >= 8:
        (length,) = struct.unpack_from(">i", answers)
        body, answers = answers[4 : 4 + length], answers[4 + length :]
        bare = not body or body.startswith((b"r=", b"e="))
        if not bare and int.from_bytes(body[4:6], "big") not in CODES:
            return False
    return True


def read_all(peer: RawClient) -> bytes:
    """Read until the server has closed."""
    answers = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while more := peer.socket.recv(65536):
            answers += more
    return answers


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


Flood = Callable[[SocketServer, random.Random], None]


def flood_of_frames(connect: Callable[[SocketServer], RawClient], frames: int) -> Flood:
    def flood(server: SocketServer, rng: random.Random) -> None:
        peer = connect(server)
        with contextlib.suppress(OSError):
            peer.socket.sendall(b"".join(noise(rng) for _ in range(frames)))
            socket.socket.shutdown(peer.socket, socket.SHUT_WR)  # also under TLS, whose own would be an end of its own
        answers = read_all(peer)
        assert is_of_table_s(answers), answers
        peer.close()

    return flood


def flood_of_handshakes(server: SocketServer, rng: random.Random) -> None:
    """Send TLS's first message, mutated or cut, then anything; or shake hands without the certificate that is asked for."""
    peer = RawClient(server.endpoints[0].port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = bytearray(outgoing.read())
    for _ in range(rng.randrange(4)):
        hello[rng.randrange(1, len(hello))] = rng.randrange(256)
    if rng.random() < 0.3:
        del hello[rng.randrange(5, len(hello)) :]
    records = [bytes(hello)]
    for _ in range(TLS_FRAMES - 1):
        body = rng.randbytes(rng.randrange(60))
        records.append(struct.pack(">BHH", rng.choice((20, 21, 22, 23)), 0x0303, len(body)) + body)
    with contextlib.suppress(OSError):
        peer.socket.sendall(b"".join(records))
        peer.socket.shutdown(socket.SHUT_WR)
    read_all(peer)
    peer.close()


@contextlib.contextmanager
def flooded(protocol: str, authority: Authority) -> Iterator[tuple[SocketServer, list[Request], RawClient, Flood]]:
    """Give a server, what its handlers saw but for one kind of request, a client that is logged in, and a flood."""
    served: list[Request] = []

    def note(request: Request) -> None:
        if request.frame == METADATA and request.connection.principal.name == (
            "CN=good" if protocol == "SSL" else "alice"
        ):
            echo(request)
        else:
            served.append(request)

    context = ssl.create_default_context(cafile=authority.directory / "ca.pem")

    def encrypted(server: SocketServer) -> RawClient:
        made = open_(server)
        made.socket = context.wrap_socket(made.socket, server_hostname="localhost")
        return made

    def open_(server: SocketServer) -> RawClient:
        return RawClient(server.endpoints[0].port)

    properties = {"connection_failed_authentication_delay_ms": "0", "num_network_threads": "2"}
    if protocol == "SSL":
        properties["ssl_client_auth"] = "required"
    certified = None if protocol == "SASL_PLAINTEXT" else authority
    with secured(protocol, certified, note, **properties) as server:
        if protocol == "SSL":
            mine = authority.certificate("good", "CN=good", "secret")
            good = tls_client(server, authority, certificate=mine.certificate, key=mine.key)
            flood: Flood = flood_of_handshakes
        else:
            connect = encrypted if protocol == "SASL_SSL" else open_
            good, flood = connect(server), flood_of_frames(connect, FRAMES if connect is open_ else TLS_FRAMES)
            good.ask(HANDSHAKE_1)
            good.ask(authenticate(ALICE))
        try:
            yield server, served, good, flood
        finally:
            good.close()


PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL", "SSL"]


@pytest.mark.spec("SEC-115", "SEC-63")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_flood_before_the_login_reaches_no_handler_and_leaves_nothing(
    protocol: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    with flooded(protocol, authority) as (server, served, good, flood):
        descriptors = open_files()
        for _ in range(60):
            flood(server, rng)
            assert good.ask(METADATA) == METADATA
        wait_until(lambda: open_files() <= descriptors)
        wait_until(lambda: server.received_bytes == 0)
    assert not served
    assert "Traceback" not in caplog.text


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
@pytest.mark.spec("SEC-115", "SEC-63")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_million_frames_before_the_login_leave_memory_and_descriptors_as_they_were(
    protocol: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    connections = 1_000_000 // (FRAMES if protocol == "SASL_PLAINTEXT" else TLS_FRAMES)
    with flooded(protocol, authority) as (server, served, good, flood):
        descriptors, resident, waits_ms = open_files(), 0, list[float]()
        for number in range(connections):
            if number == connections // 5:  # allocators keep what they had once
                caplog.clear()
                gc.collect()
                resident = psutil.Process().memory_info().rss
            flood(server, rng)
            if number % 20 == 0:
                asked = time.perf_counter()
                assert good.ask(METADATA) == METADATA
                waits_ms.append((time.perf_counter() - asked) * 1000)
        wait_until(lambda: open_files() <= descriptors)
        wait_until(lambda: server.received_bytes == 0)
        assert "Traceback" not in caplog.text
        caplog.clear()
        gc.collect()
        left = psutil.Process().memory_info().rss
        median, p99 = (statistics.quantiles(waits_ms, n=100)[at] for at in (49, 98))
        print(f"resident {resident >> 10} KiB, then {left >> 10}; another waits {median:.1f} ms, p99 {p99:.1f}")
        assert left <= 1.05 * resident
        assert good.ask(METADATA) == METADATA
    assert not served


@pytest.mark.spec("SEC-63", "SEC-96")
def test_nothing_is_kept_of_who_left_before_his_login() -> None:
    half_a_megabyte = struct.pack(">i", 524288) + bytes(524287)
    with secured("SASL_PLAINTEXT") as server:
        port = server.endpoints[0].port
        stays = RawClient(port)  # the oldest that is waited for, as long as this test lasts
        for _ in range(20):
            leaves = RawClient(port)
            leaves.socket.sendall(half_a_megabyte)
            leaves.socket.shutdown(socket.SHUT_WR)
            assert leaves.is_closed_by_server(), "all of it was read"
            leaves.close()

        def kept() -> int:
            closed = [one for one in gc.get_objects() if isinstance(one, Connection) and one.closed]
            return sum(str(one).startswith(f"127.0.0.1:{port}-") for one in closed)

        wait_until(lambda: kept() <= 1)  # the last that its processor had to do with
        assert stays.ask(VERSIONS_0)
        stays.close()


@pytest.mark.spec("SEC-60")
def test_the_log_says_little_of_who_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkatool.broker.network")
    began, tries = time.monotonic(), 0
    with secured("SASL_PLAINTEXT") as server:
        before = len(caplog.records)
        while tries < 200 or "more connections did not get in" not in caplog.text:
            with socket.create_connection(("127.0.0.1", server.endpoints[0].port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends with a reset
                peer.sendall(frame(VERSIONS_0))
            tries += 1
        seconds = int(time.monotonic() - began) + 1
        told = caplog.records[before:]
    assert all(one.levelname == "INFO" for one in told), caplog.text
    assert len(told) <= 2 * 10 * seconds  # with the counts of the others
