"""Reading ahead and muting, with an epoll that the test looks into."""

import select
import socket
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from kafkatool.broker.network.connection import Connection
from kafkatool.core.errors import ProtocolError
from tests.broker.network.raw_client import frame


class Epoll:
    """Notes what a connection is armed for, and whether its request was still in work when it was told."""

    def __init__(self) -> None:
        self.armed: list[tuple[int, bool]] = []
        self.connection: Connection | None = None

    def register(self, fd: int, events: int) -> None:
        self.armed.append((events, False))

    def modify(self, fd: int, events: int) -> None:
        assert self.connection is not None
        self.armed.append((events, self.connection.in_work))


@pytest.fixture
def made() -> Iterator[tuple[Connection, Epoll, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
    accepted.setblocking(False)
    epoll = Epoll()
    connection = epoll.connection = Connection(
        accepted,
        epoll,  # type: ignore[arg-type]
        listener="PLAINTEXT",
        index=0,
        max_frame_bytes=1000,
    )
    connection.register()
    yield connection, epoll, client
    connection.close()
    client.close()


@pytest.mark.spec("BRK-8")
@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_for_a_length_out_of_bounds_no_body_is_allocated(
    made: tuple[Connection, Epoll, socket.socket], length: int
) -> None:
    connection, _, client = made
    client.sendall(struct.pack(">i", length))
    select.select([connection.fd], [], [], 60)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            connection.receive()
        assert connection._body is None  # noqa: SLF001
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


@pytest.mark.spec("BRK-13", "BRK-16")
def test_a_client_that_waits_for_its_answer_is_never_armed_anew(made: tuple[Connection, Epoll, socket.socket]) -> None:
    connection, epoll, client = made
    for _ in range(3):
        client.sendall(frame(b"ask"))
        select.select([connection.fd], [], [], 60)
        assert connection.receive() == b"ask"
        connection.send([frame(b"answer")])
        assert client.recv(100) == frame(b"answer"), "written by the thread that answers: there is no other here"
    assert len(epoll.armed) == 1, "a system call per request more than needed"


@pytest.mark.spec("BRK-13")
def test_who_sends_early_is_muted_and_what_was_read_ahead_is_served_next(
    made: tuple[Connection, Epoll, socket.socket],
) -> None:
    connection, epoll, client = made
    client.sendall(frame(b"one") + frame(b"two")[:5])
    select.select([connection.fd], [], [], 60)
    assert connection.receive() == b"one"
    assert connection.mute_if_in_work()
    assert epoll.armed[-1][0] == select.EPOLLONESHOT
    connection.mute_if_in_work()
    assert len(epoll.armed) == 2, "a hang-up that is told again and again would keep the thread busy"
    connection.send([frame(b"answer")])
    assert epoll.armed[-1][0] == select.EPOLLIN | select.EPOLLOUT, "what is read already makes no event"
    assert connection.receive() is None
    connection.await_bytes()
    assert epoll.armed[-1][0] == select.EPOLLIN
    client.sendall(frame(b"two")[5:])
    select.select([connection.fd], [], [], 60)
    assert connection.receive() == b"two"


@pytest.mark.spec("BRK-13", "BRK-16")
def test_the_answering_thread_arms_while_the_processor_keeps_off(
    made: tuple[Connection, Epoll, socket.socket],
) -> None:
    """Both arming at a time could leave the kernel with the one and the connection with the other."""
    connection, epoll, client = made
    client.sendall(frame(b"one") + frame(b"two"))
    select.select([connection.fd], [], [], 60)
    assert connection.receive() == b"one"
    connection.send([frame(b"answer")])
    assert epoll.armed[-1] == (select.EPOLLIN | select.EPOLLOUT, True)


@pytest.mark.spec("BRK-7")
def test_an_ended_connection_stays_sure_of_its_last_event(made: tuple[Connection, Epoll, socket.socket]) -> None:
    connection, epoll, client = made
    client.sendall(frame(b"one"))
    select.select([connection.fd], [], [], 60)
    assert connection.receive() == b"one"
    connection.end()
    connection.unmute()  # a throttle's timer that comes late
    assert epoll.armed[-1][0] == select.EPOLLIN | select.EPOLLOUT
    with pytest.raises(EOFError):
        connection.receive()
