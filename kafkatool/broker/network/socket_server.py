"""The network layer as one object: listeners, processors, request channel, handlers."""

import itertools
import logging
import struct
import threading
from collections.abc import Callable, Collection

from kafkatool.broker.network.acceptor import Acceptor
from kafkatool.broker.network.connection_quotas import ConnectionQuotas
from kafkatool.broker.network.processor import Processor
from kafkatool.broker.network.request_channel import Request, RequestChannel
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import Endpoint

log = logging.getLogger(__name__)


class SocketServer:
    """The network of one broker: ``bind`` (accepts, reads nothing), ``serve``, ``stop_serving`` (drains), ``close``."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._name = "network"
        self._channel = RequestChannel(config.queued_max_requests)
        self._quotas = ConnectionQuotas(config.max_connections_per_ip, config.max_connections_per_ip_overrides)
        self._acceptors: list[Acceptor] = []
        self._processors: list[Processor] = []
        self._handlers: list[threading.Thread] = []

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the listeners with the ports they are bound to."""
        return tuple(a.endpoint for a in self._acceptors)

    def bind(self, name: str = "network") -> None:
        """Open all listeners. Raises KafkatoolError when one cannot be bound; then ``close`` cleans up.

        ``name`` starts the names of the threads.
        """
        config = self._config
        self._name = name
        indexes = itertools.count()
        for endpoint in config.listeners:
            processors = [
                Processor(
                    f"{self._name}-{endpoint.listener}-processor-{i}",
                    self._channel,
                    max_idle_ms=config.connections_max_idle_ms,
                    on_close=lambda connection: self._quotas.release(connection.remote_host),
                )
                for i in range(config.num_network_threads)
            ]
            self._processors += processors
            thread_name = f"{self._name}-{endpoint.listener}-acceptor"
            acceptor = Acceptor(endpoint, processors, self._quotas, indexes, config, name=thread_name)
            self._acceptors.append(acceptor)
            log.info("listening on %s", acceptor.endpoint)

    def serve(self, handle: Callable[[Request], None], *, quick_apis: Collection[int] = ()) -> None:
        """Read requests from now on. ``handle`` gets each on a handler thread; it answers through its connection.

        ``quick_apis`` are keys of requests that never wait by themselves: processors may serve them when idle.
        """
        for i in range(self._config.num_io_threads):
            handler = threading.Thread(
                target=self._run_handler, args=(handle,), name=f"{self._name}-handler-{i}", daemon=True
            )
            self._handlers.append(handler)
            handler.start()
        quick = frozenset(struct.pack(">h", key) for key in quick_apis)
        for processor in self._processors:
            processor.start(handle, quick)

    def stop_serving(self) -> None:
        """Accept and read no more, handle what was queued, end the handlers. Parked requests may still be answered."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors = []
        for processor in self._processors:
            processor.stop_reading()
        handlers, self._handlers = self._handlers, []
        self._channel.end_handlers(len(handlers))
        for handler in handlers:
            handler.join()

    def close(self) -> None:
        """Close every connection and end all threads. Safe to call twice, and after a failed ``bind``."""
        self.stop_serving()
        for processor in self._processors:
            processor.stop()
        self._processors = []

    def _run_handler(self, handle: Callable[[Request], None]) -> None:
        while (request := self._channel.take()) is not None:
            try:
                handle(request)
            except Exception:  # the handler thread survives whatever a request does (BRK-17)
                log.exception("closing %s: its request failed", request.connection)
                request.connection.end()
