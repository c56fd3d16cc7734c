"""Channels to other brokers: a thread, a connection, and one request under way for each (TXN-50, 77)."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.refused_logins import tell_of_refused_login
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, LoginRefusedError, ProtocolError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import api_versions
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest
from kafkatool.core.security.client_security import ClientSecurity

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Response = TypeVar("Response")


@dataclass(slots=True, eq=False)
class Peer:
    """A broker, connected, and the newest version of each API that it knows."""

    connection: Connection
    _newest: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.connection.send(api_versions.API, 0, ApiVersionsRequest())
        self._newest = {k.api_key: k.max_version for k in known.api_keys}

    def newest(self, api: Api) -> int:
        """Return the newest version that both know; below 0: it does not know the API."""
        return min(self._newest.get(api.key, -1), api.max_version)

    def send(self, api: Api, version: int, request: Request[Response]) -> Response:
        return self.connection.send(api, version, request)


@dataclass(eq=False)
class Channels(Generic[Item]):
    """A queue for each broker. What is queued while a request is under way goes together with the next.

    ``take`` splits a queue into what goes now and the rest, ``exchange`` sends that and deals with the answer, ``failed``
    hears of what was not answered. All run on the broker's thread.
    """

    metadata_cache: MetadataCache
    listener: str
    client_id: str
    timeout_ms: int
    security: ClientSecurity | None
    take: Callable[[Sequence[Item]], tuple[list[Item], list[Item]]]
    exchange: Callable[[int, Peer, Sequence[Item]], None]
    failed: Callable[[int, Sequence[Item]], None]
    _queues: dict[int, list[Item]] = field(default_factory=dict, init=False)
    _peers: dict[int, Peer] = field(default_factory=dict, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _closed: bool = field(default=False, init=False)

    def put(self, broker_id: int, item: Item) -> None:
        """Queue it for that broker; dropped after ``close``."""
        with self._changed:
            if self._closed:
                return
            queue = self._queues.get(broker_id)
            if queue is None:
                queue = self._queues[broker_id] = []
                name = f"{self.client_id}-{broker_id}"
                threading.Thread(target=self._serve, args=(broker_id, queue), name=name, daemon=True).start()
            queue.append(item)
            self._changed.notify_all()

    def drop(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Take out, and return, what has not been sent yet."""
        with self._changed:
            dropped = [item for queue in self._queues.values() for item in queue if unwanted(item)]
            for queue in self._queues.values():
                queue[:] = [item for item in queue if item not in dropped]
            return dropped

    def close(self) -> None:
        """Send nothing more; a request under way ends at once."""
        with self._changed:
            self._closed = True
            peers = list(self._peers.values())
            self._changed.notify_all()
        for peer in peers:
            peer.connection.close()

    def _serve(self, broker_id: int, queue: list[Item]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(queue) or self._closed)
                if self._closed:
                    return
                items, queue[:] = self.take(queue)
            try:
                self.exchange(broker_id, self._connect(broker_id), items)
            except (BrokerUnreachableError, ProtocolError) as e:
                if isinstance(e, LoginRefusedError):
                    tell_of_refused_login(self.metadata_cache.broker_id, e)
                else:
                    log.info("%s: broker %d did not answer: %s", self.client_id, broker_id, e)
                self._disconnect(broker_id)
                self.failed(broker_id, items)
            except Exception:  # the thread's top: what comes next may well succeed
                log.exception("%s: an answer of broker %d could not be dealt with", self.client_id, broker_id)
                self._disconnect(broker_id)
                self.failed(broker_id, items)

    def _connect(self, broker_id: int) -> Peer:
        endpoint = self.metadata_cache.broker_endpoint(broker_id, self.listener)
        if endpoint is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not alive, or has no listener {self.listener}")
        peer = self._peers.get(broker_id)
        if peer is not None and (peer.connection.host, peer.connection.port) == (endpoint.host, endpoint.port):
            return peer
        self._disconnect(broker_id)
        connection = Connection(
            endpoint.host, endpoint.port, client_id=self.client_id, timeout_ms=self.timeout_ms, security=self.security
        )
        peer = Peer(connection)
        with self._changed:
            if self._closed:
                connection.close()
            self._peers[broker_id] = peer
        return peer

    def _disconnect(self, broker_id: int) -> None:
        with self._changed:
            peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.connection.close()


MakeChannels = Callable[..., Channels[Any]]
"""Makes channels as their class does: another where time and wires are played."""
