"""The proxy that fault runs cut wires with."""

import socket
import threading
from collections.abc import Iterator

import pytest

from kafkatool.core.protocol.frames import encode_request
from kafkatool.core.protocol.messages import metadata
from tests.faults.proxy import ANYONE, Healing, Proxy, broker_of
from tests.serving import serving
from tests.waiting import eventually


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server that sends back what it gets."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    with serving(serve) as port:
        yield port


def says(client: socket.socket, text: bytes) -> bytes | None:
    """Return what comes back; None: nothing, b"": the end."""
    client.settimeout(60)
    try:
        client.sendall(text)
        return client.recv(100)
    except ConnectionError:
        return b""


def hears(client: socket.socket) -> bytes | None:
    client.settimeout(0.2)
    try:
        return client.recv(100)
    except TimeoutError:
        return None


@pytest.mark.parametrize(("how", "after"), [("resume", b"b:2"), ("reset", b""), ("forget", None)])
def test_one_peer_is_silenced_and_healed_while_the_other_goes_on(echo: int, how: Healing, after: bytes | None) -> None:
    with (
        Proxy(echo, lambda first: first.partition(b":")[0].decode()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as a,
        socket.create_connection(("127.0.0.1", proxy.port)) as b,
    ):
        assert (says(a, b"a:1"), says(b, b"b:1")) == (b"a:1", b"b:1")
        proxy.silence("b")
        b.sendall(b"b:2")
        assert hears(b) is None
        assert says(a, b"a:2") == b"a:2"
        proxy.heal("b", how)
        if after is not None:
            b.settimeout(60)
            assert b.recv(100) == after
        else:
            assert hears(b) is None
        with socket.create_connection(("127.0.0.1", proxy.port)) as again:
            assert says(again, b"b:3") == b"b:3"


def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_healed(echo: int) -> None:
    with Proxy(echo) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            assert says(client, b"x") == b"x"
            proxy.cut()
            assert says(client, b"y") == b""
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            assert says(client, b"y") == b""
        proxy.heal()
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            assert says(client, b"z") == b"z"


def test_its_end_ends_every_thread_though_links_are_silent(echo: int) -> None:
    before = set(threading.enumerate())
    proxy = Proxy(echo)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert says(client, b"x") == b"x"
        proxy.silence()
        client.sendall(b"y")
        proxy.close()
        assert says(client, b"z") == b""
    eventually(
        lambda: set(threading.enumerate()) <= before | {t for t in threading.enumerate() if t.daemon}, "its threads"
    )


def test_brokers_are_known_by_their_client_ids() -> None:
    def asked_by(client_id: str) -> str:
        return broker_of(encode_request(metadata.API, 1, 1, client_id, metadata.MetadataRequest(topics=[])))

    assert asked_by("broker-12-fetcher-0") == "12"
    assert asked_by("3") == "3"
    assert asked_by("rdkafka") == asked_by("broker-of-dreams") == ANYONE
    assert broker_of(b"") == broker_of(b"\xff" * 40) == ANYONE
