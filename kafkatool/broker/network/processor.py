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
from collections import deque
from collections.abc import Callable

from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.request_channel import Request, RequestChannel
from kafkatool.core.errors import ProtocolError

log = logging.getLogger(__name__)

_KEY_SIZE = 2  # a request begins with its api key
_POLL_S = 0.3  # BRK-18: idle connections are looked for at least this often


class Processor:
    """The thread that reads frames into the channel, writes what handlers could not, and alone closes its connections."""

    def __init__(
        self, name: str, channel: RequestChannel, *, max_idle_ms: int, on_close: Callable[[Connection], None]
    ) -> None:
        self._channel = channel
        self._max_idle_s = max_idle_ms / 1000 if max_idle_ms >= 0 else float("inf")
        self._on_close = on_close
        self.epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self._wake_fd, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._refused: deque[Request] = deque()  # whole requests for which the channel had no room
        self._unread: deque[Connection] = deque()  # readable connections that wait behind those
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
        self._connections[connection.fd] = connection
        connection.register()

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
        os.close(self._wake_fd)

    def wake(self) -> None:
        """Make the poll return; from any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        while self._running:
            ready = self.epoll.poll(_POLL_S)
            self._alone = len(ready) == 1
            for fd, events in ready:
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif connection := self._connections.get(fd):
                    self._serve(connection, events)
            if self._refused:
                self._offer_again()
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
            elif self._refused:
                connection.mute()
                self._unread.append(connection)
            elif self._reading:
                self._read(connection)
            else:
                connection.mute()
        except EOFError:
            self._close(connection)
        except ProtocolError as e:
            log.warning("closing %s: %s", connection, e)
            self._close(connection)
        except OSError as e:
            log.info("connection %s is gone: %s", connection, e)
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
        request = Request(connection, frame)
        if self._alone and self._handle and bytes(frame[:_KEY_SIZE]) in self._quick and self._channel.is_empty:
            self._handle(request)
        elif not self._channel.offer(request, self.wake):
            self._refused.append(request)

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
