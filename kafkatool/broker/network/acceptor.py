"""The acceptor: the listening socket of one listener and the thread that hands out its connections (BRK-5 to 7, 20)."""

import contextlib
import itertools
import logging
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.network.admission import ConnectionQuotas, PendingLogins, Places
from kafkatool.broker.network.connection import Connection, host_of
from kafkatool.broker.network.encrypted import EncryptedConnection
from kafkatool.broker.network.processor import PeerLines, Processor
from kafkatool.broker.network.request_memory import RequestMemory
from kafkatool.broker.runtime.file_limit import first_not_for_connections
from kafkatool.broker.security.listeners import ListenerSecurity
from kafkatool.broker.security.login import Login
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import Endpoint

log = logging.getLogger(__name__)

_BACKLOG = 512
_PAUSE_S = 0.1  # after a failed accept, most likely for want of descriptors


def _listen(endpoint: Endpoint) -> socket.socket:
    """Bind a socket; an empty host means every interface, IPv6 too where there is one. Raises KafkatoolError."""
    try:
        if not endpoint.host and socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("", endpoint.port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
                )
            except OSError:
                log.debug("no IPv6 on this machine, listening on IPv4 alone")
        family = socket.getaddrinfo(endpoint.host or "0.0.0.0", endpoint.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((endpoint.host, endpoint.port), family=family, backlog=_BACKLOG)
    except OSError as e:
        where = f"{endpoint.host or '*'}:{endpoint.port}"
        raise KafkatoolError(f"listener {endpoint.listener}: cannot listen on {where}: {e.strerror or e}") from e


class Acceptor:
    """The thread that hands each new connection to the next of its processors, in strict rotation, and forgets it."""

    def __init__(
        self,
        endpoint: Endpoint,
        processors: Sequence[Processor],
        quotas: ConnectionQuotas,
        indexes: Iterator[int],
        config: BrokerConfig,
        *,
        name: str,
        security: ListenerSecurity,
        pending: PendingLogins,
        places: Places,
        memory: RequestMemory | None,
        failures: PeerLines,
        limits: Limits,
    ) -> None:
        self._rotation = itertools.cycle(processors)
        self._rotation_lock = threading.Lock()
        self._quotas = quotas
        self._indexes = indexes
        self._config = config
        self._security = security
        self._pending = pending
        self._places = places
        self._memory = memory
        self._failures = failures
        self._limits = limits
        self._socket = _listen(endpoint)
        if (
            config.socket_receive_buffer_bytes != -1
        ):  # the window is agreed on when connecting: the listener's counts too
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        self.endpoint = endpoint._replace(port=self._socket.getsockname()[1])
        self._keeps_waiting = False  # whether somebody is left in the kernel's queue, and that is counted
        self._socket.setblocking(False)  # who is waited for may be taken by `speak_again`
        self._comes = select.poll()
        self._comes.register(self._socket, select.POLLIN)
        self._accepting = threading.Lock()
        self._speaks = threading.Event()  # cleared while it is silent
        self._speaks.set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def use(self, security: ListenerSecurity) -> None:
        """Ask that of connections accepted from now on."""
        self._security = security

    def hand_out_to(self, processors: Sequence[Processor]) -> None:
        """Give new connections to these; when it returns, no other gets one any more."""
        with self._rotation_lock:
            self._rotation = itertools.cycle(processors)

    def fall_silent(self) -> None:
        """Hand out none; when it returns, who connects is left in the kernel's queue, unread, until ``speak_again``."""
        with self._accepting:
            self._speaks.clear()

    def speak_again(self) -> None:
        """Close those who connected meanwhile, as nobody heard what they said, and hand out who comes from now on."""
        with self._accepting:
            with contextlib.suppress(OSError):  # none is left, or the socket is closed
                while True:
                    self._socket.accept()[0].close()
            self._speaks.set()

    def stop(self) -> None:
        """Accept no more. Connections handed out live on."""
        self._stopping.set()
        self._speaks.set()
        with contextlib.suppress(OSError):  # it was stopped before
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the poll
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._speaks.wait()
            if (full := self._places.wait(_PAUSE_S)) is not None:
                self._keep_waiting(full)
                continue
            self._comes.poll()
            with self._accepting:
                if self._speaks.is_set():
                    self._accept()

    def _keep_waiting(self, full: Limit) -> None:
        """Leave who comes in the kernel's queue until another closes (SEC-95); count the first, if there is one."""
        if not self._keeps_waiting and self._comes.poll(0):
            self._keeps_waiting = True
            self._limits.reached(full, self.endpoint.listener)

    def _accept(self) -> None:
        self._keeps_waiting = False
        try:
            sock, name = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as e:
            if not self._stopping.is_set():
                log.error("listener %s cannot accept: %s", self.endpoint.listener, e)
                self._stopping.wait(_PAUSE_S)
            return
        host = host_of(name)
        try:
            self._hand_out(sock, host)
        except OSError as e:  # mostly it is gone already, which its peer may have as often as it likes
            self._failures.info("listener %s: a connection from %s is gone: %s", self.endpoint.listener, host, e)
            sock.close()
        except Exception:  # an error of one connection ends that one alone (BRK-7)
            log.exception("a connection to listener %s could not be set up", self.endpoint.listener)
            sock.close()

    def _hand_out(self, sock: socket.socket, host: str) -> None:
        if sock.fileno() >= first_not_for_connections():
            self._limits.reached(Limit.OPEN_FILES, host)
            sock.close()
            return
        if not self._quotas.admit(host):
            self._limits.reached(Limit.CONNECTIONS_OF_ADDRESS, host, key=host)
            sock.close()
            return
        with self._rotation_lock:
            try:
                self._configure(sock)
                processor = next(self._rotation)
                connection = self._connection(sock, processor)
            except BaseException:
                self._quotas.release(host)
                raise
            self._places.take()
            if not self._security.is_open and not self._pending.admit(connection):
                connection.ends_at_once()
            processor.add(connection)

    def _connection(self, sock: socket.socket, processor: Processor) -> Connection:
        security, config = self._security, self._config
        options: dict[str, Any] = {
            "listener": self.endpoint.listener,
            "index": next(self._indexes),
            "max_frame_bytes": config.socket_request_max_bytes,
        }
        connection: Connection
        if security.context is None:
            connection = Connection(sock, processor.epoll, **options)
        else:
            connection = EncryptedConnection(
                sock, processor.epoll, context=security.context, identify=security.identify, **options
            )
        connection.memory = self._memory
        if security.sasl is not None:
            connection.expect_login(Login(security.sasl), config.sasl_server_max_receive_size, self._pending.large)
        return connection

    def _configure(self, sock: socket.socket) -> None:
        """Set the options of an accepted socket (BRK-6); -1 keeps the system's buffer size."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._config.socket_send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.socket_send_buffer_bytes)
        if self._config.socket_receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._config.socket_receive_buffer_bytes)
