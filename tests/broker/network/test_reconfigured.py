"""Numbers of threads and of connections that change while the network serves (KIP-226)."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.network.socket_server import SocketServer
from tests.broker.network.raw_client import RawClient, connected, echo, network_config, serving, wait_until


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Release whoever waits at the end."""
    made = threading.Event()
    yield made
    made.set()


def running(server: SocketServer, kind: str) -> int:
    """Count the threads of that kind that run; servers of other tests have other names."""
    mine = [thread.name for thread in threading.enumerate() if thread.name.startswith(server_name(server))]
    return sum(f"-{kind}-" in name for name in mine)


def server_name(server: SocketServer) -> str:
    return f"reconfigured-{id(server)}"


@pytest.fixture
def server() -> Iterator[SocketServer]:
    made = SocketServer(network_config(num_network_threads="2"))
    try:
        made.bind(server_name(made))
        made.serve(echo)
        yield made
    finally:
        made.close()


@pytest.mark.spec("BRK-125")
def test_more_handlers_serve_what_few_could_not(gate: threading.Event) -> None:
    def gated(request: Request) -> None:
        if request.frame == b"wait":
            gate.wait(60)
        echo(request)

    with serving(gated, num_io_threads="1") as server, connected(server) as slow, connected(server) as other:
        slow.send(b"wait")
        other.send(b"x")
        assert other.answers_nothing_for(0.1)
        server.reconfigure(network_config(num_io_threads="2"))
        assert other.receive() == b"x"
        gate.set()
        assert slow.receive() == b"wait"


@pytest.mark.spec("BRK-125")
def test_handlers_too_many_end_and_come_again(server: SocketServer) -> None:
    for number in (1, 3, 2):
        server.reconfigure(network_config(num_io_threads=str(number), num_network_threads="2"))
        wait_until(lambda n=number: running(server, "handler") == n)  # type: ignore[misc]
        with connected(server) as client:
            assert client.ask(b"x") == b"x"


@pytest.mark.spec("BRK-125")
def test_a_processor_too_many_ends_with_its_connections_and_a_new_one_serves(server: SocketServer) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(4)]  # two at each
        assert [client.ask(b"x") for client in clients] == [b"x"] * 4
        server.reconfigure(network_config(num_network_threads="1"))
        assert running(server, "processor") == 1
        ended = [client for client in clients if not answers(client)]
        assert len(ended) == 2
    server.reconfigure(network_config(num_network_threads="3"))
    assert running(server, "processor") == 3
    with ExitStack() as stack:
        assert [stack.enter_context(connected(server)).ask(b"y") for _ in range(6)] == [b"y"] * 6


def answers(client: RawClient) -> bool:
    try:
        return client.ask(b"x") == b"x"
    except (EOFError, OSError):
        return False


@pytest.mark.spec("BRK-125", "BRK-20", "SEC-95")
def test_who_comes_is_held_against_the_limits_of_now(server: SocketServer) -> None:
    with connected(server) as first:
        assert first.ask(b"x") == b"x"
        server.reconfigure(network_config(num_network_threads="2", max_connections_per_ip="1"))
        with connected(server) as second:
            assert second.is_closed_by_server()
        assert first.ask(b"x") == b"x", "who is in stays"
        both = {"max_connections_per_ip": "1", "max_connections_per_ip_overrides": "127.0.0.1:2"}
        server.reconfigure(network_config(num_network_threads="2", **both))
        with connected(server) as second:
            assert second.ask(b"x") == b"x"
        server.reconfigure(network_config(num_network_threads="2", max_connections="1"))
        with connected(server), connected(server) as waiting:  # one may come that was being accepted already
            waiting.send(b"x")
            assert waiting.answers_nothing_for(0.1), "all places are taken"
            server.reconfigure(network_config(num_network_threads="2", max_connections="3"))
            assert waiting.receive() == b"x"
