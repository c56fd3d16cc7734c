"""A raw socket that speaks frames, and a server whose handler is a plain function."""

import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.settings.config import BrokerConfig
from tests.waiting import eventually

_PATIENCE_S = 200.0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(request: Request) -> None:
    """Answer a frame with itself."""
    request.connection.send([frame(bytes(request.frame))])


class RawClient:
    """Sends and reads frames; every wait has a deadline."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, receive_buffer_bytes: int = 0, from_address: str = ""
    ) -> None:
        self.socket = socket.socket()
        if from_address:
            self.socket.bind((from_address, 0))
        self.socket.settimeout(_PATIENCE_S)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((host, port))

    def send(self, *bodies: bytes) -> None:
        self.socket.sendall(b"".join(frame(b) for b in bodies))

    def read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            more = self.socket.recv(size_bytes - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self) -> bytes:
        return self.read(struct.unpack(">i", self.read(4))[0])

    def ask(self, body: bytes) -> bytes:
        self.send(body)
        return self.receive()

    def is_closed_by_server(self) -> bool:
        """Wait until the server has closed; False when it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def answers_nothing_for(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(_PATIENCE_S)
        return False

    def close(self) -> None:
        self.socket.close()


def network_config(**properties: str) -> BrokerConfig:
    given = {
        "zookeeper.connect": "none:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.network.threads": "1",
        "num.io.threads": "2",
    }
    return BrokerConfig.from_properties(given | {k.replace("_", "."): v for k, v in properties.items()})


@contextmanager
def serving(
    handle: Callable[[Request], None] = echo, quick_apis: Collection[int] = (), **properties: str
) -> Iterator[SocketServer]:
    """Yield a network layer that is up; ``properties`` with ``_`` for ``.``."""
    server = SocketServer(network_config(**properties))
    try:
        server.bind()
        server.serve(handle, quick_apis=quick_apis)
        yield server
    finally:
        server.close()


@contextmanager
def connected(server: SocketServer, listener: int = 0, *, receive_buffer_bytes: int = 0) -> Iterator[RawClient]:
    client = RawClient(server.endpoints[listener].port, receive_buffer_bytes=receive_buffer_bytes)
    try:
        yield client
    finally:
        client.close()


def wait_until(condition: Callable[[], bool], seconds: float = _PATIENCE_S) -> None:
    eventually(condition, "what this test waits for", seconds)
