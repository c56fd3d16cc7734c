"""The channels from the controller to each broker: a queue, a sender, one request in flight (CTL-49, CTL-61).

``Channel`` is what the controller needs; the simulator gives it another. ``BrokerSender`` is the real one: a thread
per broker with a blocking connection. Answers go to the ``on_answer`` of their request, on the sender's thread.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.runtime.refused_logins import tell_of_refused_login
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, LoginRefusedError, ProtocolError
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import api_versions, leader_and_isr, stop_replica, update_metadata
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkatool.core.security.client_security import ClientSecurity

log = logging.getLogger(__name__)

Message = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Answer = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

_RETRY_S = 0.1
_API: dict[type[Message], tuple[Api, str]] = {
    LeaderAndIsrRequest: (leader_and_isr.API, "LEADER_AND_ISR"),
    UpdateMetadataRequest: (update_metadata.API, "UPDATE_METADATA"),
    StopReplicaRequest: (stop_replica.API, "STOP_REPLICA"),
}


class ControlRequest(NamedTuple):
    """A request on its way. ``on_answer`` gets the answer, never called when the broker is removed first.

    ``version`` is the newest that may be sent; an older one only to a broker that was asked what it knows.
    """

    version: int
    message: Message
    on_answer: Callable[[Answer], None] | None = None


class Channel(Protocol):
    """Ordered delivery to one incarnation of one broker."""

    def send(self, request: ControlRequest) -> None:
        """Queue a request; delivered in order, repeated until answered or ``close``d."""

    def close(self) -> None:
        """Drop what is queued; nothing is delivered afterwards but what is on the wire."""


ChannelFactory = Callable[[BrokerInfo], Channel]


@dataclass(eq=False)
class BrokerSender:
    """A thread that sends one request after the other. A failed send is repeated every 100 ms until ``close``.

    ``negotiate``: at each connection the broker is asked which versions it knows. Among brokers that is not done: there
    inter.broker.protocol.version decides (BRK-3).
    """

    broker: BrokerInfo
    _: KW_ONLY
    listener: str
    actor: str
    timeout_ms: int
    client_id: str
    state_change_log: StateChangeLog
    security: ClientSecurity | None
    negotiate: bool = False

    def __post_init__(self) -> None:
        self._newest: dict[int, int] = {}  # by API, as the broker of this connection said
        self._queue: SimpleQueue[ControlRequest | None] = SimpleQueue()
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._correlation_id = 0
        threading.Thread(target=self._run, name=f"controller-to-broker-{self.broker.id}", daemon=True).start()

    def send(self, request: ControlRequest) -> None:
        """Queue a request; see `Channel`."""
        self._queue.put(request)

    def close(self) -> None:
        """End the thread; does not wait for it, since its answers may be waiting for the caller."""
        self._closed.set()
        self._queue.put(None)
        if (connection := self._connection) is not None:
            connection.close()

    def _run(self) -> None:
        while (request := self._queue.get()) is not None and not self._closed.is_set():
            answer = self._deliver(request)
            if answer is None or self._closed.is_set():
                break
            self._note(request, answer)
            if request.on_answer is not None:
                request.on_answer(answer)
        if self._connection is not None:
            self._connection.close()

    def _deliver(self, request: ControlRequest) -> Answer | None:
        api, name = _API[type(request.message)]
        failures = 0
        while not self._closed.is_set():
            try:
                connection = self._connect()
                self._correlation_id += 1
                version = min(request.version, self._newest.get(api.key, request.version))
                message: Request[Answer] = request.message
                return connection.send(api, version, message)
            except (BrokerUnreachableError, ProtocolError) as e:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                failures += 1
                if isinstance(e, LoginRefusedError):
                    tell_of_refused_login(self.client_id, e)
                elif failures == 1 and not self._closed.is_set():
                    log.warning("%s to broker %d will be tried again until it is gone: %s", name, self.broker.id, e)
                self._closed.wait(_RETRY_S)
        return None

    def _connect(self) -> Connection:
        if self._connection is None:
            endpoint = self.broker.endpoint(self.listener)
            if endpoint is None:
                raise BrokerUnreachableError(f"broker {self.broker.id} has no listener {self.listener}")
            self._connection = Connection(
                endpoint.host,
                endpoint.port,
                client_id=self.client_id,
                timeout_ms=self.timeout_ms,
                security=self.security,
            )
            if self._closed.is_set():  # ``close`` may have come before there was a connection to end: nothing is sent
                self._connection.close()
            self._correlation_id = 0
            if self.negotiate:
                known = self._connection.send(api_versions.API, 0, ApiVersionsRequest())
                self._newest = {k.api_key: k.max_version for k in known.api_keys}
                self._correlation_id = 1
        return self._connection

    def _note(self, request: ControlRequest, answer: Answer) -> None:
        assert self._connection is not None
        node = lines.node_text(self.broker.id, self._connection.host, self._connection.port, self.broker.rack)
        name = _API[type(request.message)][1]
        self.state_change_log.write(
            "TRACE", [self.actor + lines.response_received(answer, name, self._correlation_id, node)]
        )


class Channels:
    """The channels to all registered brokers. Used by the event thread alone."""

    def __init__(self, factory: ChannelFactory) -> None:
        self._factory = factory
        self._channels: dict[int, tuple[BrokerInfo, Channel]] = {}

    def __contains__(self, broker: int) -> bool:
        return broker in self._channels

    def open(self, broker: BrokerInfo) -> None:
        """Open the channel to a broker; one to another incarnation or address of it is closed."""
        known = self._channels.get(broker.id)
        if known is None or known[0] != broker:
            self.close(broker.id)
            self._channels[broker.id] = (broker, self._factory(broker))

    def close(self, broker: int) -> None:
        """Close the channel to a broker, if there is one."""
        if (known := self._channels.pop(broker, None)) is not None:
            known[1].close()

    def close_all(self) -> None:
        """Close all of them (CTL-16)."""
        for broker in list(self._channels):
            self.close(broker)

    def send(self, broker: int, request: ControlRequest) -> None:
        """Queue a request for a broker; without channel it is dropped with a warning (CTL-49)."""
        known = self._channels.get(broker)
        if known is None:
            log.warning("not sending %s to broker %d, which is offline", type(request.message).__name__, broker)
        else:
            known[1].send(request)
