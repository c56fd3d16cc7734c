"""A connection over TLS: the handshake, and reading and writing through OpenSSL (SEC-57 to 60).

An OpenSSL object is used by one thread at a time: the connection's lock covers reading, too. What OpenSSL has decrypted
and nobody has read makes no event, so a connection that reads on is woken by one that comes for certain. There is no
sendfile: pieces of log files are read and encrypted, with the interpreter lock released.
"""

import os
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from kafkatool.broker.network.connection import AT_ONCE, READ, WRITE, Connection, HandshakeError
from kafkatool.broker.security.principal import Principal
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.types import Buffer, Chunk

_Result = TypeVar("_Result")

_HANDSHAKE_RECORD = b"\x16"
_PIECE_BYTES = 128 << 10
_READ_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class _TlsSocket:
    """Looks like a socket that does not block; ``waits_for_room`` says why the last call would have."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self.tls = tls
        self.waits_for_room = False

    def recv(self, size_bytes: int) -> bytes:
        return self._do(self.tls.recv, size_bytes)

    def recv_into(self, view: memoryview) -> int:
        return self._do(self.tls.recv_into, view)

    def send(self, data: memoryview) -> int:
        return self._do(self.tls.send, data)

    def shake_hands(self) -> None:
        self._do(self.tls.do_handshake)

    def _do(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        try:
            return call(*arguments)
        except ssl.SSLWantReadError:
            self.waits_for_room = False
        except ssl.SSLWantWriteError:
            self.waits_for_room = True
        raise BlockingIOError

    def close(self) -> None:
        self.tls.close()


class _Outgoing:
    """The part of one response still to be encrypted; no more of it in memory than a piece. Not thread-safe."""

    __slots__ = ("_at", "_chunks", "_piece")

    def __init__(self, chunks: list[Chunk]) -> None:
        """Take over ``chunks``; they are changed."""
        self._chunks = chunks
        self._at = 0
        self._piece = memoryview(b"")

    def write(self, sock: Any) -> bool:
        """Write until done (True) or until OpenSSL has to wait (False). Raises OSError when the connection is gone."""
        try:
            while self._piece or self._next():
                self._piece = self._piece[sock.send(self._piece) :]
        except BlockingIOError:
            return False  # OpenSSL wants the same bytes again
        return True

    def _next(self) -> bool:
        """Fill the piece: with bytes as long as they are small, so that a record holds several, or from a file."""
        joined: list[Buffer] = []
        size_bytes = 0
        while self._at < len(self._chunks) and size_bytes < _PIECE_BYTES:
            chunk = self._chunks[self._at]
            if isinstance(chunk, FileRegion):
                if not chunk.size_bytes:
                    self._at += 1
                    continue
                data: Buffer = os.pread(chunk.fd_owner.fileno(), min(chunk.size_bytes, _PIECE_BYTES), chunk.position)
                if not data:
                    raise OSError(f"{chunk.size_bytes} bytes of a response are missing in the log file")
                rest = chunk.size_bytes - len(data)
                if rest:
                    self._chunks[self._at] = FileRegion(chunk.fd_owner, chunk.position + len(data), rest)
                else:
                    self._at += 1
            else:
                data = chunk
                self._at += 1
            joined.append(data)
            size_bytes += len(data)
        self._piece = memoryview(joined[0] if len(joined) == 1 else b"".join(joined))
        return size_bytes > 0


class EncryptedConnection(Connection):
    """Its first reads are the handshake. ``identify`` tells who a certificate is, None where that is nobody's."""

    _outgoing_type = _Outgoing

    def __init__(
        self,
        sock: socket.socket,
        epoll: select.epoll,
        *,
        context: ssl.SSLContext,
        identify: Callable[[ssl.SSLSocket], Principal] | None,
        listener: str,
        index: int,
        max_frame_bytes: int,
    ) -> None:
        super().__init__(sock, epoll, listener=listener, index=index, max_frame_bytes=max_frame_bytes)
        self._plain = sock
        self._context = context
        self._identify = identify
        self._tls: _TlsSocket | None = None
        self._shaken = False

    def receive(self) -> bytearray | None:
        """Bring the handshake further, then read; as of a plain one. Raises HandshakeError as well."""
        with self._lock:
            if not self._shaken and not self._ending:
                try:
                    self._shake_hands()
                except BlockingIOError:
                    return None
            return super().receive()

    def _shake_hands(self) -> None:
        if self._tls is None:
            first = self._plain.recv(1, socket.MSG_PEEK)
            if not first:
                raise EOFError
            if first != _HANDSHAKE_RECORD:
                raise HandshakeError("does not speak TLS", answered=False)
            tls = self._context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
            self._tls = _TlsSocket(tls)
            self._socket = self._tls  # type: ignore[assignment]  # all of a socket that a connection uses
        try:
            self._tls.shake_hands()
        except ssl.SSLError as e:
            raise HandshakeError(f"the TLS handshake failed: {_reason(e)}") from None
        self._shaken = True
        if self._identify is not None:
            try:
                self.principal = self._identify(self._tls.tls)
            except ConnectionRefusedError as e:
                raise HandshakeError(str(e)) from None
        if self.login is None:
            self.become_ready()

    def await_bytes(self) -> None:
        """Arm for what OpenSSL waits for."""
        with self._lock:
            if self._tls is not None and self._tls.waits_for_room:
                self._arm(WRITE)
            else:
                self._arm(AT_ONCE if self._has_decrypted() else READ)

    def _has_decrypted(self) -> bool:
        return self._shaken and self._tls is not None and self._tls.tls.pending() > 0

    def _await_room(self) -> None:
        assert self._tls is not None
        self._arm(WRITE if self._tls.waits_for_room else _READ_ONCE)

    def _has_more(self) -> bool:
        return super()._has_more() or self._has_decrypted()

    def _say_goodbye(self) -> None:
        if self._shaken and self._tls is not None:
            try:
                self._tls.tls.unwrap()
            except (OSError, ValueError):
                pass  # it is sent, and nobody waits for the peer's; or the connection is gone


def _reason(error: ssl.SSLError) -> str:
    """Say OpenSSL's reason in words: a certificate's fault by its own text."""
    verify = getattr(error, "verify_message", None)
    return verify or (error.reason or str(error)).lower().replace("_", " ")
