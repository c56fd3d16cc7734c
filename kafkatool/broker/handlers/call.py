"""What a handler's file is written with: the declaration of how its API is served, and the request under way.

A handler returns its response, or None and answers later, from any thread, through the Call it was given. Until then
the connection is muted: the next request of that client waits (BRK-13).
"""

import logging
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from kafkatool.broker.administration.acls import AclAdmin
from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.administration.quotas import QuotaAdmin
from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.administration.users import UserAdmin
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.coordination.ids import cut
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.limits import Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.security.principal import Principal
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.broker.transactions.marker_writes import MarkerWrites
from kafkatool.core.errors import ProtocolError
from kafkatool.core.model.acls import CLUSTER_NAME, Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Chunk
from kafkatool.core.protocol.frames import RequestHeader, encode_response
from kafkatool.core.protocol.messages.error_codes import ErrorCode
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
    transactions: TransactionCoordinator
    marker_writes: MarkerWrites
    topic_admin: TopicAdmin
    config_admin: ConfigAdmin
    producer_ids: ProducerIds
    zookeeper: ZooKeeper
    timer: Timer
    client_quotas: ClientQuotas
    authorizer: Authorizer | None
    """None: everybody may do everything."""
    acl_admin: AclAdmin | None
    user_admin: UserAdmin
    quota_admin: QuotaAdmin
    limits: Limits

    def on_leadership_change(self, leaders: list[Partition], followers: list[Partition]) -> None:
        """Tell the coordinators, before the controller is answered (BRK-32)."""
        self.groups.on_leadership_change(leaders, followers)
        self.transactions.on_leadership_change(leaders, followers)

    def on_partitions_stopped(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the coordinators of replicas that are deleted."""
        self.groups.on_partitions_stopped(partitions)
        self.transactions.on_partitions_stopped(partitions)


@dataclass(frozen=True, slots=True)
class Served:
    """One API as this broker serves it; decorates the function that handles it."""

    api: Api
    versions: tuple[int, int]
    """First and last version served."""
    _: KW_ONLY
    asks: tuple[Callable[[Any, "Call"], Any], ...]
    """What a client must be allowed to do: steps of ``authorization``, taken in this order before the handler runs, where
    there is an authorizer. Each returns what of the request may be served. None asks nothing (SEC-83, 84)."""
    between_brokers: Callable[[Any], int] | None = None
    """Returns the id of the broker that a request says it is from, of those that brokers and the controller send: they
    are refused on all but their own listener, and of who is not that broker (SEC-50, 51). None: anybody may send it."""
    handle: Callable[[Any, Any], Any] = NotImplemented
    """The function decorated: (request, call) -> response, or None when it is answered later through the call."""
    quick: bool = False
    """Whether an idle processor may run it: it waits for a partition's lock or the page cache, never for ZooKeeper."""
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
    _refused: Sequence[Any] = ()

    def charge(self, kind: str, size_bytes: int | None) -> None:
        """Have the client's quota of that kind charged when it is answered; ``size_bytes`` None: the answer's size."""
        self._charge = (kind, size_bytes)

    @property
    def listener(self) -> str:
        """Return the name of the listener the request came in on: the client is told its endpoints (BRK-114)."""
        return self._connection.listener

    @property
    def principal(self) -> Principal:
        """Return who asks; ``User:ANONYMOUS`` where nobody has to prove it (SEC-72)."""
        return self._connection.principal

    @property
    def client_host(self) -> str:
        """Return the client's address."""
        return self._connection.remote_host

    @property
    def connection(self) -> object:
        """Return what stands for the connection the request came by, as long as that is open."""
        return self._connection

    @property
    def accepted_ms(self) -> float:
        """Return when that connection was accepted, in ms of the clock that is never set back."""
        return self._connection.accepted_ms

    @property
    def api(self) -> Api:
        """Return the API that is called."""
        return self._served.api

    @property
    def is_between_brokers(self) -> bool:
        """Tell whether it came in on the listener that brokers and controller use among themselves, or still use."""
        config, listener = self.context.config, self._connection.listener
        return listener == config.inter_broker_listener_name or listener in config.kt_inter_broker_also_on

    def is_of_follower(self, broker_id: int | None = None, *, asked: bool = True) -> bool:
        """Tell whether a broker may have sent it, that one where it says which: on their listener, and with the right to
        (SEC-50, 51); see ``allows``.
        """
        if not self.is_between_brokers or (broker_id is not None and not self.is_broker(broker_id)):
            return False
        return self.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, asked=asked)

    def is_broker(self, broker_id: int) -> bool:
        """Tell whether the peer may be believed to be that broker: its principal is not said to be another (SEC-51)."""
        principals = self.context.config.kt_inter_broker_principals
        return not principals or principals.get(broker_id) == str(self.principal)

    @property
    def is_encrypted(self) -> bool:
        """Tell whether nobody on the way could read the request."""
        listeners = self.context.config.listeners
        return any(one.listener == self._connection.listener and one.protocol.endswith("SSL") for one in listeners)

    def allows(
        self, operation: Operation, kind: ResourceType, name: str | None = CLUSTER_NAME, *, asked: bool = True
    ) -> bool:
        """Tell whether the client may do that; without an authorizer it may. ``name`` None: to some resource of the type.

        ``asked``: it wants to, and a refusal is logged; else it is only found out what it may be shown.
        """
        authorizer = self.context.authorizer
        if authorizer is None:
            return True
        request = self._served.api.name if asked else ""
        return authorizer.allows(self.principal, self.client_host, operation, kind, name, request)

    def respond_refused(self, request: Any, response: Any) -> None:
        """Send the answer to a request of which nothing may be served, or close where its client reads none."""
        if self._served.expects_answer is None or self._served.expects_answer(request):
            self.respond(response)
        else:
            self.close()

    def will_add(self, refused: Sequence[Any]) -> None:
        """Have the lists of these responses, about what is refused, added to those of the answer."""
        self._refused = [*self._refused, *refused]

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
        if self._refused:
            response = joined([response, *self._refused])
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
        if self._refused:
            self.close()
            return
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
        return self.context.client_quotas.charge(
            kind, self.principal.name, cut(self.header.client_id or ""), size_bytes
        )

    def _claim(self) -> bool:
        if self._answered:
            log.error("second answer to %s from %s dropped", self.header, self._connection)
            return False
        self._answered = True
        return True


def fenced(code: ErrorCode, call: Call, *, since: int) -> ErrorCode:
    """Return the code as the request's version knows it: PRODUCER_FENCED is newer than the APIs of transactions."""
    if code is ErrorCode.PRODUCER_FENCED and call.header.api_version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def joined(responses: Sequence[Any]) -> Any:
    """Return the first response with the items of the others in its lists."""
    first = responses[0]
    lists = [field.name for field in fields(first) if isinstance(getattr(first, field.name), list)]
    return replace(first, **{name: [item for one in responses for item in getattr(one, name)] for name in lists})
