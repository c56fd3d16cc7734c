"""The blocking connection, against a socket that answers what the test says."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.messages import fetch, heartbeat
from tests.core.protocol.apis import APIS
from tests.ports import free_port

Answer = Callable[[socket.socket, Any, int], None]  # socket, request, correlation id
_HEARTBEAT = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@contextmanager
def _peer(answer: Answer) -> Iterator[int]:
    """Yield the port of a peer that takes one connection and answers each request of it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener.accept()[0] as connection, connection.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(length, "big"))
                api = APIS[int.from_bytes(frame[:2], "big")]
                header, body = decode_header(api, frame)
                answer(connection, decode_request(api, header.api_version, frame, body), header.correlation_id)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(timeout=60)
        listener.close()
        assert not thread.is_alive()


def _connect(port: int, timeout_ms: int = 60_000) -> Connection:
    return Connection("127.0.0.1", port, client_id="test", timeout_ms=timeout_ms, security=None)


def _frame(api: Api, version: int, correlation_id: int, message: object) -> bytes:
    return b"".join(
        c for c in encode_response(api, version, correlation_id, message) if isinstance(c, bytes | bytearray)
    )


def _beat(connection: socket.socket, request: Any, correlation_id: int) -> None:
    response = heartbeat.HeartbeatResponse(error_code=request.generation_id)
    connection.sendall(_frame(heartbeat.API, 3, correlation_id, response))


def test_requests_are_answered_one_after_the_other() -> None:
    with _peer(_beat) as port, _connect(port) as connection:
        for generation in range(3):
            request = heartbeat.HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")
            assert connection.send(heartbeat.API, 3, request).error_code == generation


def test_a_large_answer_in_pieces_is_put_together_without_copying_records() -> None:
    records = bytes(range(256)) * 4000

    def answer(connection: socket.socket, _request: Any, correlation_id: int) -> None:
        partition = fetch.FetchResponsePartition(partition=0, records=records)
        response = fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=[partition])])
        frame = _frame(fetch.API, 11, correlation_id, response)
        connection.sendall(frame[:3])
        connection.sendall(frame[3:100_000])
        connection.sendall(frame[100_000:])

    with _peer(answer) as port, _connect(port) as connection:
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[])
        received = connection.send(fetch.API, 11, request).topics[0].partitions[0].records
        assert isinstance(received, memoryview)
        assert received == records


def test_nobody_listens() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"cannot connect to 127\.0\.0\.1:\d+"):
        _connect(free_port())


def test_no_answer_in_time_ends_the_connection() -> None:
    with _peer(lambda *_: None) as port, _connect(port) as connection:
        with pytest.raises(BrokerUnreachableError, match="did not answer Heartbeat: timed out"):
            connection.send(heartbeat.API, 3, _HEARTBEAT, timeout_ms=50)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError):
            connection.send(heartbeat.API, 3, _HEARTBEAT)


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (lambda c, _r, _i: c.shutdown(socket.SHUT_RDWR), BrokerUnreachableError, "closed the connection"),
        (lambda c, _r, _i: c.sendall(b"HTTP/1.1 400 Bad Request"), ProtocolError, "is it a Kafka broker"),
        (lambda c, _r, _i: c.sendall(b"\xff\xff\xff\xff"), ProtocolError, "frame of -1 bytes"),
        (lambda c, _r, i: c.sendall(b"\0\0\0\x05" + i.to_bytes(4, "big") + b"\0"), ProtocolError, "is cut off"),
        (lambda c, r, i: _beat(c, r, i + 1), ProtocolError, "answered request 2 instead of 1"),
    ],
    ids=["closes", "HTTP", "negative length", "cut off", "other request"],
)
def test_a_peer_that_misbehaves_ends_the_connection(answer: Answer, error: type[Exception], why: str) -> None:
    with _peer(answer) as port, _connect(port) as connection:
        with pytest.raises(error, match=why):
            connection.send(heartbeat.API, 3, _HEARTBEAT)
        assert connection.closed


def test_a_request_that_cannot_be_written_leaves_the_connection_usable() -> None:
    with _peer(_beat) as port, _connect(port) as connection:
        bad = heartbeat.HeartbeatRequest(group_id="g", generation_id=2**40, member_id="m")
        with pytest.raises(ProtocolError):
            connection.send(heartbeat.API, 3, bad)
        assert connection.send(heartbeat.API, 3, _HEARTBEAT).error_code == 1


def test_closing_wakes_a_sender_in_another_thread() -> None:
    asked = threading.Event()
    with _peer(lambda *_: asked.set()) as port:
        connection = _connect(port)

        def close_when_asked() -> None:
            assert asked.wait(60)
            connection.close()

        closer = threading.Thread(target=close_when_asked)
        closer.start()
        with pytest.raises(BrokerUnreachableError):
            connection.send(heartbeat.API, 3, _HEARTBEAT)
        closer.join()


class _Waiting:
    """A socket with a request under way until ``go_on``; notes when it is closed."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.closed = False

    def recv(self, _: int) -> bytes:
        self.reached.set()
        assert self.go_on.wait(60)
        return b""

    def close(self) -> None:
        self.closed = True
        self._real.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


@pytest.mark.spec("BRK-127")
def test_a_descriptor_is_given_back_by_the_thread_that_waits_for_it_not_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stub = _Waiting(socket.create_connection(listener.getsockname()))
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: stub)
    connection = _connect(listener.getsockname()[1])
    errors: list[Exception] = []

    def ask() -> None:
        try:
            connection.send(heartbeat.API, 3, _HEARTBEAT)
        except BrokerUnreachableError as e:
            errors.append(e)

    asking = threading.Thread(target=ask)
    asking.start()
    assert stub.reached.wait(60)
    connection.close()
    assert connection.closed
    assert not stub.closed, "its number could be that of another file before the waiting thread has woken up"
    stub.go_on.set()
    asking.join(60)
    listener.close()
    assert errors
    assert stub.closed
