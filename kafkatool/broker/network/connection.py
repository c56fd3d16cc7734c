"""One accepted connection: frames in, responses out, one request in work at a time (BRK-8, 13, 21).

The processor reads. The thread that answers the request in work writes; what the socket does not take at once is the
processor's to write. The lock only keeps a close and a write apart.

A client mostly sends its next request when it has the answer. So a connection stays armed for reading while a request
is in work, and is muted only if bytes come meanwhile; and one read takes a small frame whole, length and body. Each
spares a system call per request.
"""

import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from kafkatool.broker.limits import Limit
from kafkatool.broker.network.outgoing import Outgoing
from kafkatool.broker.network.request_memory import RequestMemory
from kafkatool.broker.security.login import Login
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.types import Chunk

log = logging.getLogger(__name__)

_TLS = b"\x16\x03"  # the first bytes of a handshake, as a length far above what is allowed
_MAPPED = "::ffff:"
_LENGTH = struct.Struct(">i")
_FIRST_READ_BYTES = 4096  # most requests are smaller; of a larger one this much is copied once
_FIRST_BODY_BYTES = 128 << 10  # a body starts with room for so much and grows as it comes
_LOGIN_BYTES = 32 << 10  # of a frame before the login, so that all that a stranger costs is less than 64 KB
READ = select.EPOLLIN
AT_ONCE = select.EPOLLIN | select.EPOLLOUT  # writable it is: an event comes for certain
WRITE = select.EPOLLOUT | select.EPOLLONESHOT
_MUTED = select.EPOLLONESHOT  # a hang-up is still told, but once only


def host_of(name: object) -> str:
    """Return the host of a socket's name; of who comes by IPv4 to a socket of IPv6, as limits and logs have it."""
    host = str(name[0] if isinstance(name, tuple) else name)
    mapped = host.removeprefix(_MAPPED)
    return host if ":" in mapped else mapped


def _address(name: object) -> tuple[str, int]:
    return host_of(name), int(name[1]) if isinstance(name, tuple) else 0


class HandshakeError(ProtocolError):
    """A peer whose TLS handshake failed, or that speaks none; ``answered``: it was told so, as far as TLS can."""

    def __init__(self, text: str, *, answered: bool = True) -> None:
        super().__init__(text)
        self.answered = answered


class FrameTooLargeError(ProtocolError):
    """A frame whose length is none, or beyond the limit named."""

    def __init__(self, limit: Limit, size_bytes: int, most_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} bytes, allowed are 0 to {most_bytes}")
        self.limit = limit
        self.told = (size_bytes, most_bytes)


class Connection:
    """A non-blocking socket under one processor's epoll. ``index`` runs over all connections of the server."""

    _outgoing_type: type[Any] = Outgoing

    def __init__(
        self, sock: socket.socket, epoll: select.epoll, *, listener: str, index: int, max_frame_bytes: int
    ) -> None:
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        """Who the peer is. A login sets it, on the processor's thread, before a request is read."""
        self.login: Login | None = None
        """Sees every frame first, as long as it is there."""
        self.memory: RequestMemory | None = None
        """Where the bytes of its requests count, if they do."""
        self._counted_bytes = 0
        self._counted_whole = False
        self.on_ready: Callable[[], None] | None = None
        """Called once, when the peer has proved who it is, or the connection is closed."""
        self.remote_host, self._remote_port = _address(sock.getpeername())
        self._local = _address(sock.getsockname())
        self._index = index
        self._max_frame_bytes = self._max_frame_bytes_later = max_frame_bytes
        self._max_login_bytes = 0
        self._large_logins: threading.Semaphore | None = None
        self._holds_large_login = False
        self._socket = sock
        self.fd = sock.fileno()
        self._epoll = epoll
        self._lock = threading.Lock()
        self._armed = READ
        self.in_work = False  # a request is, and its response not yet written
        self._ahead = b""  # read, but not yet part of a frame
        self._body: bytearray | None = None
        self._body_bytes = 0  # what the body will have in the end
        self._filled = 0
        self._outgoing: Outgoing | None = None
        self._unmute_after = True
        self._ending = False
        self.closed = False
        self.last_active = time.monotonic()
        self.accepted_ms = self.last_active * 1000

    def __str__(self) -> str:
        """Return ``local:port-remote:port-index``: a port used again does not make two connections equal (BRK-21)."""
        host, port = self._local
        return f"{host}:{port}-{self.remote_host}:{self._remote_port}-{self._index}"

    @property
    def peer(self) -> tuple[str, int]:
        """Return the other end's address and port."""
        return self.remote_host, self._remote_port

    # --- the processor's side -----------------------------------------------------------------------------------

    def register(self) -> None:
        """Put the socket under the epoll, armed for reading."""
        self._epoll.register(self.fd, self._armed)

    @property
    def has_outgoing(self) -> bool:
        """Tell whether the socket did not take the whole response yet."""
        return self._outgoing is not None

    def mute_if_in_work(self) -> bool:
        """Tell whether an event is to wait for a request in work; no other event comes until that is answered."""
        if not self.in_work:
            return False
        with self._lock:
            waits = self.in_work and not self._ending and self._outgoing is None
            if waits:
                self._arm(_MUTED)
            return waits

    def mute(self) -> None:
        """Have no event until :meth:`await_bytes`."""
        self._arm(_MUTED)

    def receive(self) -> bytearray | None:
        """Read the next whole frame, without its length; None when the socket has no more yet.

        Raises EOFError when the peer has closed, ProtocolError on a length out of bounds (BRK-8), OSError.
        """
        if self._ending or self._outgoing is not None:
            raise EOFError  # to be closed, or woken by an error while it is written to
        try:
            if self._body is None:
                if len(self._ahead) < _LENGTH.size:
                    if not (data := self._socket.recv(_FIRST_READ_BYTES)):
                        raise EOFError
                    self._ahead += data
                    if len(self._ahead) < _LENGTH.size:
                        return None
                self._body = self._begin_body()
            return self._fill(self._body)
        except BlockingIOError:
            if self._body is not None:
                self._count(whole=False)
            return None

    def _begin_body(self) -> bytearray:
        (size_bytes,) = _LENGTH.unpack_from(self._ahead)
        if not 0 <= size_bytes <= self._max_frame_bytes and not self._begins_large_login(size_bytes):
            if self._ahead.startswith(_TLS):
                raise HandshakeError(f"speaks TLS to the plaintext listener {self.listener}", answered=False)
            if self._large_logins is None:
                raise FrameTooLargeError(Limit.FRAME, size_bytes, self._max_frame_bytes)
            raise FrameTooLargeError(Limit.FRAME_BEFORE_LOGIN, size_bytes, self._max_login_bytes)
        end = _LENGTH.size + size_bytes
        body = bytearray(self._ahead[_LENGTH.size : end])
        self._ahead = self._ahead[end:]
        self._body_bytes, self._filled = size_bytes, len(body)
        if len(body) < size_bytes:
            # A length alone must not cost memory: 500 idle connections could claim 50 GB with 4 bytes each.
            body.extend(bytes(min(size_bytes, _FIRST_BODY_BYTES) - len(body)))
        return body

    def _begins_large_login(self, size_bytes: int) -> bool:
        if self._large_logins is not None and self._max_frame_bytes < size_bytes <= self._max_login_bytes:
            self._holds_large_login = self._large_logins.acquire(blocking=False)
        return self._holds_large_login

    def end_large_login(self) -> None:
        """Let another send a large frame before its login, if this one did: it is read, or will never be."""
        if self._holds_large_login and self._large_logins is not None:
            self._holds_large_login = False
            self._large_logins.release()

    def _fill(self, body: bytearray) -> bytearray:
        while self._filled < self._body_bytes:
            if self._filled == len(body):
                body.extend(bytes(min(len(body), self._body_bytes - len(body))))
            with memoryview(body) as view:
                received = self._socket.recv_into(view[self._filled :])
            if not received:
                raise EOFError
            self._filled += received
        self._body = None
        self._count(whole=True)
        self.in_work = True
        return body

    def _count(self, *, whole: bool) -> None:
        if self.memory is not None:
            self.memory.receive(self._filled - self._counted_bytes, whole_bytes=self._filled if whole else None)
            self._counted_bytes, self._counted_whole = self._filled, whole

    def _count_no_longer(self) -> None:
        if self.memory is not None and (self._counted_bytes or self._counted_whole):
            self.memory.forget(self._counted_bytes, whole=self._counted_whole, reader=self)
            self._counted_bytes, self._counted_whole = 0, False

    def may_read(self, wake: Callable[[], None]) -> bool:
        """Tell whether there is memory for what it reads; if not, ``wake`` is called once there may be (SEC-98)."""
        return self.memory is None or self.memory.may_read(self, wake)

    def expect_login(self, login: Login, max_frame_bytes: int, large: threading.Semaphore) -> None:
        """Have a login see every frame first, none of them larger than that, until it is done (SEC-63).

        One of more than 32 KB, which no login of an honest peer is, takes one of the ``large`` places until it is read, and
        is refused if there is none (SEC-96).
        """
        self.login = login
        self._max_frame_bytes, self._max_login_bytes = min(max_frame_bytes, _LOGIN_BYTES), max_frame_bytes
        self._large_logins = large

    def ends_at_once(self) -> None:
        """Have it closed by the processor it is given to, unread."""
        self._ending = True
        self._armed = AT_ONCE

    def become_ready(self) -> None:
        """Let it ask for anything: the peer has proved who it is, or need not."""
        self._max_frame_bytes = self._max_frame_bytes_later
        self._large_logins = None
        if self.on_ready is not None:
            self.on_ready()
            self.on_ready = None

    def await_bytes(self) -> None:
        """Arm for reading."""
        self._arm(READ)

    def _arm(self, events: int) -> None:
        if events != self._armed or events == WRITE:  # that one shot is spent
            self._armed = events
            self._epoll.modify(self.fd, events)

    def flush(self) -> None:
        """Write on what is left of the response; at its end the next request may be read."""
        with self._lock:
            if self._outgoing is None:
                raise EOFError  # armed by ``end``
            self._write(self._outgoing)

    def close(self) -> None:
        """Close the socket. Only the processor calls this, so that no event of a reused descriptor gets astray."""
        with self._lock:
            self.closed = True
            self._outgoing = None
            self._count_no_longer()
            self.end_large_login()
            self._say_goodbye()
            self._socket.close()
        if self.on_ready is not None:
            self.on_ready()
            self.on_ready = None

    def _say_goodbye(self) -> None:
        """Tell the peer, where there is a way."""

    # --- the answering side -------------------------------------------------------------------------------------

    def send(self, chunks: list[Chunk], *, unmute: bool = True) -> None:
        """Write a response, from any thread; then read on, unless ``unmute`` is False (a throttled client)."""
        with self._lock:
            if self.closed:
                log.warning("the answer to %s is dropped: its connection is closed", self)
                return
            self._unmute_after = unmute
            outgoing = self._outgoing_type(chunks)
            try:
                self._write(outgoing)
            except OSError as e:
                # How often it happens is chosen by the peer, and before a login that may be anybody.
                tell = log.info if self.on_ready is None else log.debug
                tell("connection %s ended while it was answered: %s", self, e)
                self._end()

    def _write(self, outgoing: Outgoing) -> None:
        done = outgoing.write(self._socket)
        self.last_active = time.monotonic()
        if not done:
            self._outgoing = outgoing
            self._await_room()
            return
        self._outgoing = None
        self._count_no_longer()
        if self._unmute_after:
            self._read_on()

    def _read_on(self) -> None:
        self._count_no_longer()
        self._arm(AT_ONCE if self._has_more() else READ)
        self.in_work = False  # only now: until then the processor leaves the arming to us

    def _has_more(self) -> bool:
        return bool(self._ahead) or self._ending

    def _await_room(self) -> None:
        self._arm(WRITE)

    def unmute(self) -> None:
        """End the request in work without (further) bytes: the next one may be read."""
        with self._lock:
            if self.closed:
                return
            if self._outgoing is not None:
                self._unmute_after = True
            else:
                self._read_on()

    def end(self) -> None:
        """Have the processor close it; from any thread."""
        with self._lock:
            if not self.closed:
                self._end()

    def _end(self) -> None:
        self._ending = True
        self._outgoing = None
        self._arm(AT_ONCE)
