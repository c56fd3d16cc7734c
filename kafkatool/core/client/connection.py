"""A blocking connection to one broker: one request, one answer.

Followers fetch with it, the controller sends its requests and the tools ask with it. It negotiates nothing: the caller
says the version (BRK-3).
"""

import socket
import threading
from struct import Struct
from time import monotonic
from typing import Self, TypeVar

from kafkatool.core.errors import BrokerUnreachableError, ProtocolError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.frames import decode_response, encode_request

_Response = TypeVar("_Response")

_LENGTH = Struct(">i")
_TIMEVAL = Struct("@ll")  # seconds, microseconds
_FIRST_READ_BYTES = 4096  # most answers come whole with it; of a larger one this much is copied once
_LATE_MS = 10  # so much of the time may go into writing before the wait for the answer gets shorter
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
        self._waits_ms = 0.0  # how long the socket waits; 0: not told yet
        self._in_use = threading.Lock()  # held while a request is under way; who has it may close the descriptor
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(None)
        except (OSError, UnicodeError) as error:  # the latter: no host can have that name
            raise BrokerUnreachableError(f"cannot connect to {host}:{port}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Return whether it can no longer be used."""
        return self._closing

    def send(self, api: Api, version: int, request: Request[_Response], *, timeout_ms: int | None = None) -> _Response:
        """Ask, and wait for the answer; record batches in it are views into the frame received.

        ``timeout_ms`` replaces the connection's for this request. Raises BrokerUnreachableError when the connection
        breaks or the time is up, ProtocolError when request or answer cannot be written or read.
        """
        correlation_id = self._next_correlation_id()
        frame = encode_request(api, version, correlation_id, self._client_id, request)
        try:
            with self._in_use:
                answer = self._exchange(frame, self._timeout_ms if timeout_ms is None else timeout_ms)
            answered_id, response = decode_response(api, version, answer)
            if answered_id != correlation_id:
                raise ProtocolError(f"{self._name} answered request {answered_id} instead of {correlation_id}")
        except OSError as error:
            self.close()
            raise BrokerUnreachableError(f"{self._name} did not answer {api.name}: {_reason(error)}") from error
        except (BrokerUnreachableError, ProtocolError):
            self.close()
            raise
        finally:
            if self._closing:
                self._release()
        result: _Response = response
        return result

    def send_one_way(self, api: Api, version: int, request: Request[_Response]) -> None:
        """Send what is never answered: Produce with acks 0. Raises BrokerUnreachableError, ProtocolError."""
        frame = encode_request(api, version, self._next_correlation_id(), self._client_id, request)
        try:
            with self._in_use:
                self._send_all(frame, monotonic(), self._timeout_ms)
        except OSError as error:
            self.close()
            raise BrokerUnreachableError(f"{self._name} did not take {api.name}: {_reason(error)}") from error
        finally:
            if self._closing:
                self._release()

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

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}"

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _exchange(self, frame: bytes, timeout_ms: float) -> bytearray:
        """Write a frame, read the next one, without its length. OSError, BrokerUnreachableError, ProtocolError."""
        started = monotonic()
        self._send_all(frame, started, timeout_ms)
        if (late_ms := (monotonic() - started) * 1000) > _LATE_MS:
            self._bound_waits(timeout_ms - late_ms)
        start = self._socket.recv(_FIRST_READ_BYTES)
        while 0 < len(start) < _LENGTH.size and (more := self._socket.recv(_FIRST_READ_BYTES)):
            start += more
        if len(start) < _LENGTH.size:
            raise BrokerUnreachableError(f"{self._name} closed the connection")
        (size_bytes,) = _LENGTH.unpack_from(start)
        filled = len(start) - _LENGTH.size
        if not filled <= size_bytes <= _MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self._name} sent a frame of {size_bytes} bytes: is it a Kafka broker, unencrypted?")
        answer = bytearray(size_bytes)
        answer[:filled] = memoryview(start)[_LENGTH.size :]
        if filled < size_bytes:
            self._receive(answer, filled, started + timeout_ms / 1000)
        return answer

    def _send_all(self, frame: bytes, started: float, timeout_ms: float) -> None:
        self._bound_waits(timeout_ms)
        sent = self._socket.send(frame)
        while sent < len(frame):  # only when the time was up; a peer that reads slowly does not get it again
            self._bound_waits(timeout_ms - (monotonic() - started) * 1000)
            sent += self._socket.send(memoryview(frame)[sent:])

    def _receive(self, buffer: bytearray, filled: int, deadline: float) -> None:
        """Fill the rest of ``buffer``."""
        with memoryview(buffer) as view:
            while filled < len(view):
                self._bound_waits((deadline - monotonic()) * 1000)
                count = self._socket.recv_into(view[filled:])
                if count == 0:
                    raise BrokerUnreachableError(f"{self._name} closed the connection")
                filled += count

    def _bound_waits(self, timeout_ms: float) -> None:
        """Have the kernel end a wait after so long (EAGAIN); Python's own timeout asks it before every call."""
        if timeout_ms <= 0:
            raise TimeoutError("timed out")
        if timeout_ms != self._waits_ms:
            self._waits_ms = timeout_ms
            micros = int(timeout_ms * 1000) or 1
            bound = _TIMEVAL.pack(*divmod(micros, 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)


def _reason(error: OSError) -> str:
    return "timed out" if isinstance(error, BlockingIOError) else str(error)
