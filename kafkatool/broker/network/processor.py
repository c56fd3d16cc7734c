"""The processor: one thread and one epoll over its share of a listener's connections (BRK-13 to 19).

epoll does the hand-overs between threads. A connection is armed for one event at a time (EPOLLONESHOT) and its present
owner re-arms it, from any thread: the acceptor gives a socket to a processor by registering it, a handler that wrote a
whole response re-arms reading, one that could not arms writing and so hands the rest to the processor. Nobody needs
waking for that; the eventfd is rung only for a stop and when a full request channel has room again.

A hand-over to a handler thread costs more than most requests do. So while there is nothing else to do - this request
alone was ready, no other is queued - the processor serves a request of a kind that never waits by itself. Measured on
two cores with one request in flight: 7,000 requests a second through the channel, 7,000 to 22,000 this way.
"""

import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.network.connection import Connection, FrameTooLargeError, HandshakeError
from kafkatool.broker.network.request_channel import Request, RequestChannel
from kafkatool.broker.runtime.few_lines import FewLines
from kafkatool.broker.security.login import Login, Verdict
from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.types import Chunk

log = logging.getLogger(__name__)

_KEY_SIZE = 2  # a request begins with its api key
_FAILURES_A_SECOND = 10  # lines about peers that do not get in, of one listener
_LONGEST_TOLD = 200  # characters of what a peer chose; half a megabyte may come before a login
_POLL_S = 0.3  # BRK-18: idle connections are looked for at least this often


class PeerLines:
    """What one listener says of peers that do not get in: so many lines a second (SEC-60). Thread-safe: its processors
    share it.
    """

    def __init__(self) -> None:
        self._of_listener = FewLines(_FAILURES_A_SECOND, 1)

    def info(self, text: str, *values: object) -> None:
        """Say it, or count it."""
        left_out = self._of_listener.admit()
        if left_out:
            log.info("%d more connections did not get in", left_out)
        if left_out is not None:
            log.info(text, *values)


class Processor:
    """The thread that reads frames into the channel, writes what handlers could not, and alone closes its connections."""

    def __init__(
        self,
        name: str,
        channel: RequestChannel,
        *,
        max_idle_ms: int,
        on_close: Callable[[Connection], None],
        login_timeout_ms: int = 10_000,
        failure_delay_ms: int = 100,
        failures: PeerLines | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._channel = channel
        self._max_idle_s = max_idle_ms / 1000 if max_idle_ms >= 0 else float("inf")
        self._on_close = on_close
        self._login_timeout_s = login_timeout_ms / 1000
        self._failure_delay_s = failure_delay_ms / 1000
        # Who is to log in, and until when; the oldest first. Weakly: who is gone must not hold what was read of it.
        self._unready: deque[tuple[float, weakref.ref[Connection]]] = deque()
        self._failed: deque[tuple[float, Connection, list[Chunk] | None]] = deque()  # who is to be closed, and when
        self._failures = failures or PeerLines()
        self._limits = limits or Limits()
        self.epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._can_wake, self._waking = True, threading.Lock()  # closed, its number may be another file's
        self.epoll.register(self._wake_fd, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._refused: deque[Request] = deque()  # whole requests for which the channel had no room
        self._unread: deque[Connection] = deque()  # readable ones that wait behind those, or until there is memory
        self._idle_check_at = 0.0
        self._reading = True
        self._reads_no_more = threading.Event()
        self._running = True
        self._handle: Callable[[Request], None] | None = None
        self._quick: frozenset[bytes] = frozenset()
        self._alone = False  # whether one connection was ready and no other
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, handle: Callable[[Request], None], quick: frozenset[bytes]) -> None:
        """Begin to serve; connections added before have waited.

        Frames that begin with one of ``quick`` may be given to ``handle`` on this thread.
        """
        self._handle, self._quick = handle, quick
        self._thread.start()

    def add(self, connection: Connection) -> None:
        """Take over a connection; called on the acceptor's thread."""
        if connection.on_ready is not None:
            self._unready.append((time.monotonic() + self._login_timeout_s, weakref.ref(connection)))
        self._connections[connection.fd] = connection
        connection.register()

    def drop_connections(self) -> None:
        """End every connection; from any thread."""
        for connection in list(self._connections.values()):
            connection.end()

    def stop_reading(self) -> None:
        """Take no further request, finish one being handled here; responses still go out."""
        self._reading = False
        self.wake()
        if self._thread.is_alive():
            self._reads_no_more.wait()

    def stop(self) -> None:
        """End the thread and close every connection. Safe without a start."""
        self._running = False
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()
        for connection in list(self._connections.values()):
            self._close(connection)
        self.epoll.close()
        with self._waking:
            self._can_wake = False
            os.close(self._wake_fd)

    def wake(self) -> None:
        """Make the poll return; from any thread, also when it has ended: who waited for room may be told of it late."""
        with self._waking:
            if self._can_wake:
                os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        while self._running:
            ready = self.epoll.poll(self._patience_s() if self._failed else _POLL_S)
            self._alone = len(ready) == 1
            for fd, events in ready:
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif connection := self._connections.get(fd):
                    self._serve(connection, events)
            if self._refused or self._unread:
                self._offer_again()
            if self._failed:
                self._close_failed()
            if self._unready:
                self._close_unready()
            self._close_idlest()
            if not self._reading:
                self._reads_no_more.set()
        self._reads_no_more.set()

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if connection.mute_if_in_work():
                return
            if connection.has_outgoing:
                connection.flush()
            elif not self._reading:
                connection.mute()
            elif self._refused or not connection.may_read(self.wake):
                connection.mute()
                self._unread.append(connection)
            else:
                self._read(connection)
        except EOFError:
            self._close(connection)
        except HandshakeError as e:
            self._failures.info("listener %s: %s:%d %s", connection.listener, *connection.peer, e)
            if e.answered:
                self._fail(connection, None)
            else:
                self._close(connection)
        except FrameTooLargeError as e:
            self._limits.reached(e.limit, connection, *e.told, key=connection.remote_host)
            self._close(connection)
        except ProtocolError as e:
            tell = log.warning if connection.on_ready is None else self._failures.info
            tell("closing %s: %s", connection, e)
            self._close(connection)
        except OSError as e:
            tell = log.info if connection.on_ready is None else self._failures.info
            tell("connection %s is gone: %s", connection, e)
            self._close(connection)
        except Exception:  # one connection's fault ends that connection, not the processor (BRK-7)
            log.exception("closing %s after an unexpected error", connection)
            self._close(connection)

    def _read(self, connection: Connection) -> None:
        """Read at most one request, so that a client with many in flight does not keep the others waiting."""
        frame = connection.receive()
        connection.last_active = time.monotonic()
        if frame is None:
            connection.await_bytes()
            return
        if connection.login is not None and not self._passes(connection, connection.login, frame):
            return
        request = Request(connection, frame)
        if self._alone and self._handle and bytes(frame[:_KEY_SIZE]) in self._quick and self._channel.is_empty:
            self._handle(request)
        elif not self._channel.offer(request, self.wake):
            self._refused.append(request)

    def _passes(self, connection: Connection, login: Login, frame: bytearray) -> bool:
        """Show the frame to the login, and do what it says; tell whether it is a request for the handlers."""
        step = login.take(frame)
        connection.end_large_login()
        if step.verdict is Verdict.READY:
            assert login.principal is not None
            connection.principal = login.principal
            if not login.expires:
                connection.login = None  # nothing is left for it to see
            connection.become_ready()
        elif step.verdict is Verdict.REFUSE:
            chosen = (login.user[:_LONGEST_TOLD], step.why[:_LONGEST_TOLD])
            told = (connection.listener, *connection.peer, login.mechanism_told, *chosen)
            self._failures.info("listener %s: %s:%d could not log in by %s as %a: %s", *told)
            self._fail(connection, step.answer)
            return False
        elif step.verdict is Verdict.CLOSE:
            log.info("closing %s: %s", connection, step.why)
            self._close(connection)
            return False
        if step.answer is not None:
            connection.send(step.answer)
        return step.verdict is Verdict.SERVE

    def _fail(self, connection: Connection, answer: list[Chunk] | None) -> None:
        """Answer, and close, after a while in which nothing is read (SEC-69)."""
        connection.mute()
        connection.in_work = True
        self._failed.append((time.monotonic() + self._failure_delay_s, connection, answer))

    def _patience_s(self) -> float:
        """Return for how long the poll may wait: until the next failed connection is due."""
        return min(_POLL_S, max(0.0, self._failed[0][0] - time.monotonic()))

    def _close_failed(self) -> None:
        while self._failed and self._failed[0][0] <= time.monotonic():
            _, connection, answer = self._failed.popleft()
            if connection.closed:
                continue
            if answer is not None:
                connection.send(answer, unmute=False)  # so short that any socket takes it
            self._close(connection)

    def _close_unready(self) -> None:
        """Close who is not ready in time, however many bytes have come (SEC-97)."""
        now = time.monotonic()
        while self._unready:
            until, there = self._unready[0]
            connection = there()
            waits = connection is not None and connection.on_ready is not None
            if waits and now < until:
                return
            self._unready.popleft()
            if connection is not None and waits:
                told = (connection.listener, *connection.peer, self._login_timeout_s * 1000)
                self._limits.reached(Limit.LOGIN_TIME, *told, key=connection.remote_host)
                self._close(connection)

    def _offer_again(self) -> None:
        while self._refused:
            if not self._channel.offer(self._refused[0], self.wake):
                return
            self._refused.popleft()
        waiting, self._unread = self._unread, deque()
        for connection in waiting:
            if not connection.closed:
                self._serve(connection, select.EPOLLIN)

    def _close_idlest(self) -> None:
        now = time.monotonic()
        if now < self._idle_check_at or not self._connections:
            return
        idlest = min(list(self._connections.values()), key=lambda c: c.last_active)
        if now - idlest.last_active >= self._max_idle_s:
            log.info("closing %s: idle for %d ms", idlest, (now - idlest.last_active) * 1000)
            self._close(idlest)
        else:
            # No other can be due sooner: a later connection or byte only moves the time out.
            self._idle_check_at = idlest.last_active + self._max_idle_s

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is not None:
            connection.close()
            self._on_close(connection)
