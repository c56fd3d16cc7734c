"""A blocking connection to one broker: one request, one answer.

What followers fetch with, the controller commands with and the tools ask with. It negotiates nothing: the caller says
the version (BRK-3).
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from time import monotonic
from typing import Self, TypeVar

from kafkatool.core.errors import BrokerUnreachableError, ProtocolError
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.schema import Api, Request

_Response = TypeVar("_Response")

_LENGTH = Struct(">i")
_MAX_RESPONSE_BYTES = 1 << 30  # more is not an answer but another protocol, or damage


class Connection:
    """Connected when made. Used by one thread at a time; only ``close`` may be called by another, and wakes it.

    ``timeout_ms`` bounds connecting, and each request from its first byte to the last byte of the answer. After any
    error the connection is closed: answers could no longer be told apart.
    """

    def __init__(self, host: str, port: int, *, client_id: str | None, timeout_ms: int) -> None:
        """Connect. Raises BrokerUnreachableError."""
        self.host = host
        self.port = port
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._closing = False
        self._in_use = threading.Lock()  # held while a request is under way; who has it may close the descriptor
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:  # the latter: no host can have that name
            raise BrokerUnreachableError(f"cannot connect to {host}:{port}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._closing

    def send(self, api: Api, version: int, request: Request[_Response], *, timeout_ms: int | None = None) -> _Response:
        """Ask, and wait for the answer; record batches in it are views into the frame received.

        ``timeout_ms`` replaces the connection's for this request. Raises BrokerUnreachableError when the connection
        breaks or the time is up, ProtocolError when request or answer cannot be written or read.
        """
        correlation_id = self._next_correlation_id()
        frame = encode_request(api, version, correlation_id, self._client_id, request)
        with self._using():
            try:
                answer = self._exchange(frame, (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000)
                answered_id, response = decode_response(api, version, answer)
                if answered_id != correlation_id:
                    raise ProtocolError(f"{self._name} answered request {answered_id} instead of {correlation_id}")
            except OSError as error:
                self.close()
                raise BrokerUnreachableError(f"{self._name} did not answer {api.name}: {error}") from error
            except (BrokerUnreachableError, ProtocolError):
                self.close()
                raise
        result: _Response = response
        return result

    def send_one_way(self, api: Api, version: int, request: Request[_Response]) -> None:
        """Send what is never answered: Produce with acks 0. Raises BrokerUnreachableError, ProtocolError."""
        frame = encode_request(api, version, self._next_correlation_id(), self._client_id, request)
        with self._using():
            try:
                self._socket.settimeout(self._timeout_ms / 1000)
                self._socket.sendall(frame)
            except OSError as error:
                self.close()
                raise BrokerUnreachableError(f"{self._name} did not take {api.name}: {error}") from error

    def close(self) -> None:
        """End the connection; a ``send`` waiting in another thread fails at once."""
        self._closing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits
        except OSError:
            pass  # the peer was first
        self._release()

    def _release(self) -> None:
        """Give the descriptor back, unless a request is under way: its thread then does.

        Closed under a thread that waits for it, its number could be given to another file before that thread has
        woken up, and the thread would go on waiting, for that other file.
        """
        if self._in_use.acquire(blocking=False):
            self._socket.close()
            self._in_use.release()

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            with self._in_use:
                yield
        finally:
            if self._closing:
                self._release()

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}"

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _exchange(self, frame: bytes, timeout_seconds: float) -> bytearray:
        """Write a frame, read the next one, without its length. OSError, BrokerUnreachableError, ProtocolError."""
        deadline = monotonic() + timeout_seconds
        self._socket.settimeout(timeout_seconds)
        self._socket.sendall(frame)
        length = bytearray(_LENGTH.size)
        self._receive(length, deadline)
        (size_bytes,) = _LENGTH.unpack(length)
        if not 0 <= size_bytes <= _MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self._name} sent a frame of {size_bytes} bytes: is it a Kafka broker, unencrypted?")
        answer = bytearray(size_bytes)
        self._receive(answer, deadline)
        return answer

    def _receive(self, buffer: bytearray, deadline: float) -> None:
        """Fill ``buffer``."""
        with memoryview(buffer) as view:
            filled = 0
            while filled < len(view):
                remaining = deadline - monotonic()
                if remaining <= 0:
                    raise TimeoutError("timed out")
                self._socket.settimeout(remaining)
                count = self._socket.recv_into(view[filled:])
                if count == 0:
                    raise BrokerUnreachableError(f"{self._name} closed the connection")
                filled += count
