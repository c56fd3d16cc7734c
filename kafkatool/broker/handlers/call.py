"""What a handler's file is written with: the declaration of how its API is served, and the request under way.

A handler returns its response, or None and answers later, from any thread, through the Call it was given. Until then
the connection is muted: the next request of that client waits (BRK-13).
"""

import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Chunk
from kafkatool.core.protocol.frames import RequestHeader, encode_response
from kafkatool.core.zookeeper.session import ZooKeeper

log = logging.getLogger(__name__)

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """The parts of one broker that handlers use, put together by the composition root."""

    config: BrokerConfig
    cluster_id: str
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    log_manager: LogManager
    controller: Controller
    groups: GroupCoordinator
    topic_admin: TopicAdmin
    config_admin: ConfigAdmin
    producer_ids: ProducerIds
    zookeeper: ZooKeeper
    timer: Timer
    client_quotas: ClientQuotas


@dataclass(frozen=True, slots=True)
class Served:
    """One API as this broker serves it; decorates the function that handles it."""

    api: Api
    versions: tuple[int, int]
    """First and last version served."""
    _: KW_ONLY
    handle: Callable[[Any, Any], Any] = NotImplemented
    """The function decorated: (request, call) -> response, or None when it is answered later through the call."""
    quick: bool = False
    """Whether an idle processor may run it: it waits for a partition's lock or the page cache, never for ZooKeeper."""
    announced_from: int | None = None
    """First version that ApiVersions announces, where that is below those served; it gets an error reply."""
    throttled_at_once_from: int = 0
    """First version that is told of a throttling at once and kept muted; below, the reply itself waits (BRK-22)."""
    charge: Callable[[Any, Any, int], None] | None = None
    """(request, call, size of the frame): charges the client's quota. None: no quota counts it."""
    expects_answer: Callable[[Any], bool] | None = None
    """Whether the client of that request reads answers. None: always."""
    answer_newer: Callable[[], Any] | None = None
    """Makes the response, in version 0, to a version above those served. None: the connection is closed."""
    from_controller: bool = False
    """Whether only the controller sends it: one of a newer Kafka is told which version to lower (BRK-4)."""

    @property
    def announced(self) -> tuple[int, int]:
        """Return first and last version as ApiVersions says them."""
        first, last = self.versions
        return (first if self.announced_from is None else self.announced_from), last

    def __call__(self, handle: Handler) -> Handler:
        """Put the API, with this function as its handler, into the table of what is served."""
        _table[self.api.key] = replace(self, handle=handle)
        return handle


_table: dict[int, Served] = {}


@cache
def load_handlers() -> Mapping[int, Served]:
    """Import all handlers and return what is served by API key."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    return _table


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One request: its header, where it came from, and the one answer to it."""

    header: RequestHeader
    _served: Served
    context: HandlerContext
    _connection: Connection
    _charge: tuple[str, int | None] | None = None
    _answered: bool = False

    def charge(self, kind: str, size_bytes: int | None) -> None:
        """Have the client's quota of that kind charged when it is answered; ``size_bytes`` None: the answer's size."""
        self._charge = (kind, size_bytes)

    @property
    def listener(self) -> str:
        """Return the name of the listener the request came in on: the client is told its endpoints (BRK-114)."""
        return self._connection.listener

    @property
    def client_host(self) -> str:
        """Return the client's address."""
        return self._connection.remote_host

    def patience_ms(self, asked_ms: int) -> int:
        """Return for how long the answer may wait: well below the time until an idle connection is closed (BRK-18).

        Otherwise a client that is long gone could have its request parked for weeks.
        """
        idle_ms = self.context.config.connections_max_idle_ms
        return asked_ms if idle_ms < 0 else min(asked_ms, idle_ms * 3 // 4)

    @property
    def answered(self) -> bool:
        """Tell whether ``respond``, ``no_response`` or ``close`` was called."""
        return self._answered

    def respond(self, response: Any, *, throttle_time_ms: int = 0) -> None:
        """Send the answer, from any thread; once. ``throttle_time_ms``: told to the client, which is held back so long.

        One that cannot be written, as it names what no string can hold, ends the connection. It may be completed by
        another client's request, which must not fail for it.
        """
        if not self._claim():
            return
        try:
            chunks = self._encode(response, throttle_time_ms)
            if (delay_ms := self._hold_back_ms(chunks)) > throttle_time_ms:
                throttle_time_ms = delay_ms
                chunks = self._encode(response, throttle_time_ms)
        except ProtocolError as e:
            log.warning("closing %s: the answer to %s cannot be written: %s", self._connection, self.header, e)
            self._connection.end()
            return
        except BaseException:
            self._answered = False  # nothing went out: an error reply still may
            raise
        if throttle_time_ms <= 0:
            self._connection.send(chunks)
        elif self.header.api_version >= self._served.throttled_at_once_from:
            self._connection.send(chunks, unmute=False)
            self.context.timer.add(throttle_time_ms, self._connection.unmute)
        else:
            self.context.timer.add(throttle_time_ms, lambda: self._connection.send(chunks))

    def no_response(self) -> None:
        """End the request of a client that wants no answer (produce with acks=0): its next one is read."""
        if not self._claim():
            return
        if delay_ms := self._hold_back_ms([]):
            self.context.timer.add(delay_ms, self._connection.unmute)
        else:
            self._connection.unmute()

    def close(self) -> None:
        """End the connection: the only way to tell a client of acks=0 that something failed."""
        if self._claim():
            self._connection.end()

    def _encode(self, response: Any, throttle_time_ms: int) -> list[Chunk]:
        _, version, correlation_id, _ = self.header
        api = self._served.api
        return encode_response(api, version, correlation_id, response, throttle_time_ms=throttle_time_ms)

    def _hold_back_ms(self, answer: list[Chunk]) -> int:
        if self._charge is None:
            return 0
        kind, size_bytes = self._charge
        if size_bytes is None:
            size_bytes = sum(c.size_bytes if isinstance(c, FileRegion) else len(c) for c in answer)
        return self.context.client_quotas.charge(kind, self.header.client_id or "", size_bytes)

    def _claim(self) -> bool:
        if self._answered:
            log.error("second answer to %s from %s dropped", self.header, self._connection)
            return False
        self._answered = True
        return True
