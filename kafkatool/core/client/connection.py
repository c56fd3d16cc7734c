"""A blocking connection to one broker: one request, one answer.

Followers fetch with it, the controller sends its requests and the tools ask with it. It negotiates nothing: the caller
says the version (BRK-3). With a ``ClientSecurity`` it speaks TLS, and logs in before it is used; without, none of that is
imported or asked for.
"""

import select
import socket
import threading
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeVar

from kafkatool.core.client.addresses import Address
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, TlsError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.frames import decode_response, encode_request

if TYPE_CHECKING:
    from kafkatool.core.client.login import BrokerLogin
    from kafkatool.core.protocol.codec.types import Buffer
    from kafkatool.core.security.client_security import ClientSecurity

_Response = TypeVar("_Response")

_LENGTH = Struct(">i")
_TIMEVAL = Struct("@ll")  # seconds, microseconds
_FIRST_READ_BYTES = 4096  # most answers come whole with it; of a larger one this much is copied once
_LATE_MS = 10  # so much of the time may go into writing before the wait for the answer gets shorter
_TLS_ALERTS = (0x1503, 0x1502)  # an alert of TLS, read as a length
_NEVER = float("inf")
_MAX_RESPONSE_BYTES = 1 << 30  # more is not an answer but another protocol, or damage


class Connection:
    """Connected when made. Used by one thread at a time; only ``close`` may be called by another, and wakes it.

    ``timeout_ms`` bounds connecting, with TLS and login, and each request from its first byte to the last byte of the
    answer. After any error the connection is closed: answers could no longer be told apart.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str | None, timeout_ms: int, security: "ClientSecurity | None"
    ) -> None:
        """Connect. Raises BrokerUnreachableError: TlsError and LoginRefusedError where trying again does not help."""
        self.host = host
        self.port = port
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self.closed = False  # or being closed: it can no longer be used
        self._waits_ms = 0.0  # how long the socket waits; 0: not told yet
        self._in_use = threading.Lock()  # held while a request is under way; who has it may close the descriptor
        self._encrypted = False
        self._login: BrokerLogin | None = None
        self._login_again_at = _NEVER
        deadline = monotonic() + timeout_ms / 1000
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(None)
        except (OSError, UnicodeError) as error:  # the latter: no host can have that name
            raise BrokerUnreachableError(f"cannot connect to {host}:{port}: {error}") from error
        if security is not None and security.protocol != "PLAINTEXT":
            try:
                self._secure(security, deadline)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, api: Api, version: int, request: Request[_Response], *, timeout_ms: int | None = None) -> _Response:
        """Ask, and wait for the answer; record batches in it are views into the frame received.

        ``timeout_ms`` replaces the connection's for this request. Raises BrokerUnreachableError when the connection
        breaks or the time is up, ProtocolError when request or answer cannot be written or read.
        """
        if self._login_again_at < monotonic():
            self._log_in(monotonic() + self._timeout_ms / 1000)
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(api, version, correlation_id, self._client_id, request)
        try:
            with self._in_use:
                answer = self._exchange(frame, self._timeout_ms if timeout_ms is None else timeout_ms)
            answered_id, response = decode_response(api, version, answer)
            if answered_id != correlation_id:
                raise ProtocolError(f"{self._name} answered request {answered_id} instead of {correlation_id}")
        except OSError as error:
            self.close()
            if self._encrypted and (refusal := self._tls_refusal(error)):
                raise TlsError(refusal) from error
            reason = "timed out" if isinstance(error, BlockingIOError | TimeoutError) else error
            raise BrokerUnreachableError(f"{self._name} did not answer {api.name}: {reason}") from error
        except (BrokerUnreachableError, ProtocolError):
            self.close()
            raise
        finally:
            if self.closed:
                self._release()
        result: _Response = response
        return result

    @property
    def has_ended(self) -> bool:
        """Tell, while no request is under way, whether the other side has ended it, as brokers end idle ones."""
        watch = select.poll()
        try:
            watch.register(self._socket, select.POLLIN)
        except ValueError:  # closed here meanwhile
            return True
        return bool(watch.poll(0))  # as nothing is due, there is nothing to read but the end

    def close(self) -> None:
        """End the connection; a ``send`` waiting in another thread fails at once."""
        self.closed = True
        try:
            if self._encrypted:  # OpenSSL's own would have a thread that writes go on in plain text
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            else:
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

    # --- security ----------------------------------------------------------------------------------------------------

    def _secure(self, security: "ClientSecurity", deadline: float) -> None:
        """Speak TLS and log in, as the protocol asks. Raises BrokerUnreachableError."""
        if security.tls is not None:
            from kafkatool.core.security.handshake import shake_hands

            raw = self._socket
            raw.settimeout(max(deadline - monotonic(), 0.001))
            try:
                self._socket = shake_hands(security.tls, raw, self.host, self._name)
            except OSError as error:
                raise BrokerUnreachableError(f"{self._name}: no TLS: {error}") from error
            self._encrypted = True
        if security.login is not None:
            from kafkatool.core.client.login import BrokerLogin

            address = self._socket.getpeername()[0]
            self._login = BrokerLogin(self._name, address, security, self._ask_to_log_in, self._exchange_token)
            self._log_in(deadline)

    def _tls_refusal(self, error: OSError) -> str | None:
        from kafkatool.core.security.handshake import alert_text

        return alert_text(error, self._name)

    def _log_in(self, deadline: float) -> None:
        """Log in, for the first time or again."""
        assert self._login is not None
        self._login_again_at, self._login_deadline = _NEVER, deadline
        if lifetime_ms := self._login.run():
            import random  # who logs in alone needs it

            self._login_again_at = monotonic() + lifetime_ms / 1000 * random.uniform(0.85, 0.95)  # as Kafka (SEC-37)

    def _ask_to_log_in(self, api: Api, version: int, request: Request[_Response]) -> _Response:
        return self.send(api, version, request, timeout_ms=self._ms_to_log_in())

    def _exchange_token(self, token: bytes) -> "Buffer":
        try:
            with self._in_use:
                return self._exchange(_LENGTH.pack(len(token)) + token, self._ms_to_log_in())
        except OSError as error:
            raise BrokerUnreachableError(f"{self._name} did not answer: {error}") from error

    def _ms_to_log_in(self) -> int:
        return max(1, int((self._login_deadline - monotonic()) * 1000))

    @property
    def _name(self) -> str:
        return str(Address(self.host, self.port))

    def _exchange(self, frame: bytes, timeout_ms: float) -> bytearray:
        """Write a frame, read the next one, without its length. OSError, BrokerUnreachableError, ProtocolError."""
        started = monotonic()
        self._bound_waits(timeout_ms)
        sent = self._socket.send(frame)
        while sent < len(frame):  # only when the time was up; a peer that reads slowly does not get it again
            self._bound_waits(timeout_ms - (monotonic() - started) * 1000)
            sent += self._socket.send(memoryview(frame)[sent:])
        if (late_ms := (monotonic() - started) * 1000) > _LATE_MS:
            self._bound_waits(timeout_ms - late_ms)
        start = self._socket.recv(_FIRST_READ_BYTES)
        while 0 < len(start) < _LENGTH.size:
            self._bound_waits(timeout_ms - (monotonic() - started) * 1000)
            if not (more := self._socket.recv(_FIRST_READ_BYTES)):
                break
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

    def _receive(self, buffer: bytearray, filled: int, deadline: float) -> None:
        """Fill the rest of ``buffer``."""
        with memoryview(buffer) as view:
            while filled < len(view):
                self._bound_waits((deadline - monotonic()) * 1000)
                count = self._socket.recv_into(view[filled:])
                if count == 0:
                    if len(view) >> 16 in _TLS_ALERTS and not self._encrypted:
                        raise BrokerUnreachableError(
                            f"{self._name} speaks TLS: give --command-config for that listener"
                        )
                    raise BrokerUnreachableError(f"{self._name} closed the connection")
                filled += count

    def _bound_waits(self, timeout_ms: float) -> None:
        """Have the kernel end a wait after so long (EAGAIN); Python's own timeout asks it before every call."""
        if timeout_ms <= 0:
            raise TimeoutError("timed out")
        if timeout_ms != self._waits_ms:
            self._waits_ms = timeout_ms
            if self._encrypted:
                self._socket.settimeout(timeout_ms / 1000)  # OpenSSL would wait on where the kernel ends a wait
                return
            micros = int(timeout_ms * 1000) or 1
            bound = _TIMEVAL.pack(*divmod(micros, 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
