"""The network layer as one object: listeners, processors, request channel, handlers."""

import itertools
import logging
import os
import struct
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.network.acceptor import Acceptor
from kafkatool.broker.network.admission import ConnectionQuotas, PendingLogins, Places
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.processor import PeerLines, Processor
from kafkatool.broker.network.request_channel import Request, RequestChannel
from kafkatool.broker.network.request_memory import RequestMemory
from kafkatool.broker.security.listeners import OPEN, ListenerSecurity
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Serving:
    """What is done with requests: ``quick`` ones begin with one of these."""

    handle: Callable[[Request], None]
    quick: frozenset[bytes]


@dataclass(slots=True)
class _Listener:
    """A listener's acceptor and the processors it hands connections to; ``make_processor`` makes the one of that number."""

    acceptor: Acceptor
    processors: list[Processor]
    make_processor: Callable[[int], Processor]


def _memory_bytes(config: BrokerConfig) -> int:
    """Return how many bytes of requests the broker may hold; it is said where nothing says so (SEC-98)."""
    if config.queued_max_request_bytes > 0:
        return config.queued_max_request_bytes
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit_bytes = max(machine_bytes // 4, 2 * config.socket_request_max_bytes)
    log.info("requests take at most %d bytes of memory: a quarter, as queued.max.request.bytes is not set", limit_bytes)
    return limit_bytes


class SocketServer:
    """The network of one broker: ``bind`` (accepts, reads nothing), ``serve``, ``stop_serving`` (drains), ``close``.

    Meanwhile ``reconfigure`` may come from any thread.
    """

    def __init__(
        self,
        config: BrokerConfig,
        security: Mapping[str, ListenerSecurity] | None = None,
        *,
        limits: Limits | None = None,
    ) -> None:
        """Make it; ``security`` by listener, and none where it names none."""
        self._limits = limits or Limits()
        self._config = config
        self._security = security or {}
        self._pending = PendingLogins(config.kt_max_unauthenticated_connections, self._limits)
        self._name = "network"
        self._channel = RequestChannel(config.queued_max_requests)
        self._memory = RequestMemory(_memory_bytes(config), on_full=lambda: self._limits.reached(Limit.REQUEST_BYTES))
        self._quotas = ConnectionQuotas(config.max_connections_per_ip, config.max_connections_per_ip_overrides)
        self._places = Places(config.max_connections, Limit.CONNECTIONS)
        self._lock = threading.Lock()  # of what follows
        self._listeners: list[_Listener] = []
        self._serving: _Serving | None = None
        self._handlers: list[threading.Thread] = []
        self._handler_numbers = itertools.count()
        self._handler_count = 0  # of those that have not been told to end

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the listeners with the ports they are bound to."""
        return tuple(one.acceptor.endpoint for one in self._listeners)

    @property
    def received_bytes(self) -> int:
        """Return the bytes of requests that are not answered yet; without the brokers' own, where they have a listener."""
        return self._memory.received_bytes

    def bind(self, name: str = "network") -> None:
        """Open all listeners. Raises KafkatoolError when one cannot be bound; then ``close`` cleans up.

        ``name`` starts the names of the threads.
        """
        config = self._config
        self._name = name
        indexes = itertools.count()
        for endpoint in config.listeners:
            security = self._security.get(endpoint.listener, OPEN)
            for_brokers = endpoint.listener == config.inter_broker_listener_name and len(config.listeners) > 1
            broker = None if for_brokers else self._places
            places = Places(security.max_connections, Limit.CONNECTIONS_OF_LISTENER, broker)
            failures = PeerLines()
            make_processor = self._processors_of(endpoint.listener, places, failures)
            processors = [make_processor(number) for number in range(config.num_network_threads)]
            thread_name = f"{self._name}-{endpoint.listener}-acceptor"
            acceptor = Acceptor(
                endpoint,
                processors,
                self._quotas,
                indexes,
                config,
                name=thread_name,
                security=security,
                pending=self._pending,
                places=places,
                memory=None if for_brokers else self._memory,  # followers and controller are always read
                failures=failures,
                limits=self._limits,
            )
            self._listeners.append(_Listener(acceptor, processors, make_processor))
            log.info("listening on %s", acceptor.endpoint)

    def _processors_of(self, listener: str, places: Places, failures: PeerLines) -> Callable[[int], Processor]:
        def make(number: int) -> Processor:
            return Processor(
                f"{self._name}-{listener}-processor-{number}",
                self._channel,
                max_idle_ms=self._config.connections_max_idle_ms,
                on_close=self._on_close(places),
                login_timeout_ms=self._config.kt_authentication_timeout_ms,
                failure_delay_ms=self._config.connection_failed_authentication_delay_ms,
                failures=failures,
                limits=self._limits,
            )

        return make

    def _on_close(self, places: Places) -> Callable[[Connection], None]:
        def release(connection: Connection) -> None:
            self._quotas.release(connection.remote_host)
            places.give_back()

        return release

    def serve(self, handle: Callable[[Request], None], *, quick_apis: Collection[int] = ()) -> None:
        """Read requests from now on. ``handle`` gets each on a handler thread; it answers through its connection.

        ``quick_apis`` are keys of requests that never wait by themselves: processors may serve them when idle.
        """
        serving = _Serving(handle, frozenset(struct.pack(">h", key) for key in quick_apis))
        with self._lock:
            self._serving = serving
            self._set_handlers(self._config.num_io_threads, serving)
            for listener in self._listeners:
                for processor in listener.processors:
                    processor.start(serving.handle, serving.quick)

    def use(self, security: Mapping[str, ListenerSecurity]) -> None:
        """Ask that of connections that come from now on; who is connected stays (SEC-61)."""
        with self._lock:
            self._security = security
            for listener in self._listeners:
                listener.acceptor.use(security.get(listener.acceptor.endpoint.listener, OPEN))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by changed numbers of threads and of connections (KIP-226).

        A processor too many is ended with its connections, whose clients come again.
        """
        self._quotas.set_limits(config.max_connections_per_ip, config.max_connections_per_ip_overrides)
        self._places.set_limit(config.max_connections)
        with self._lock:
            self._config = config
            if self._serving is not None:
                self._set_handlers(config.num_io_threads, self._serving)
            for listener in self._listeners:
                self._set_processors(listener, config.num_network_threads)

    def _set_handlers(self, number: int, serving: _Serving) -> None:
        self._handlers = [handler for handler in self._handlers if handler.is_alive()]
        while self._handler_count < number:
            handler = threading.Thread(
                target=self._run_handler,
                args=(serving.handle,),
                name=f"{self._name}-handler-{next(self._handler_numbers)}",
                daemon=True,
            )
            self._handlers.append(handler)
            self._handler_count += 1
            handler.start()
        if self._handler_count > number:
            self._channel.end_handlers(self._handler_count - number)
            self._handler_count = number

    def _set_processors(self, listener: _Listener, number: int) -> None:
        for new in range(len(listener.processors), number):
            processor = listener.make_processor(new)
            if self._serving is not None:
                processor.start(self._serving.handle, self._serving.quick)
            listener.processors.append(processor)
        listener.acceptor.hand_out_to(listener.processors[:number])
        gone, listener.processors[number:] = listener.processors[number:], []
        for processor in gone:
            processor.stop_reading()
            processor.stop()

    def fall_silent(self) -> None:
        """End every connection there is, and answer none that comes until ``speak_again``, not even a handshake."""
        for listener in self._listeners:
            listener.acceptor.fall_silent()
        for listener in self._listeners:
            for processor in listener.processors:
                processor.drop_connections()

    def speak_again(self) -> None:
        """Serve who comes from now on; who came meanwhile is closed, unread."""
        for listener in self._listeners:
            listener.acceptor.speak_again()

    def stop_serving(self) -> None:
        """Accept and read no more, handle what was queued, end the handlers. Parked requests may still be answered."""
        for listener in self._listeners:
            listener.acceptor.stop()
        for listener in self._listeners:
            for processor in listener.processors:
                processor.stop_reading()
        with self._lock:
            self._serving = None
            handlers, self._handlers = self._handlers, []
            self._channel.end_handlers(self._handler_count)
            self._handler_count = 0
        for handler in handlers:
            handler.join()

    def close(self) -> None:
        """Close every connection and end all threads. Safe to call twice, and after a failed ``bind``."""
        self.stop_serving()
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            for processor in listener.processors:
                processor.stop()

    def _run_handler(self, handle: Callable[[Request], None]) -> None:
        while (request := self._channel.take()) is not None:
            try:
                handle(request)
            except Exception:  # the handler thread survives whatever a request does (BRK-17)
                log.exception("closing %s: its request failed", request.connection)
                request.connection.end()
