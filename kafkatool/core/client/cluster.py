"""A client of a whole cluster: which broker a request goes to, when it is sent again, and until when (ADM-2 to ADM-11).

It knows nothing of what requests do. A request goes to the controller, to a broker by its id, or to any; on KRaft the
"controller" that brokers name is a broker that forwards, another one each time, so nothing is concluded from it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from socket import gaierror
from typing import Any, ClassVar, Final, Self, TypeVar

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.closed_at_once import is_late
from kafkatool.core.client.connections import Connections
from kafkatool.core.client.negotiated import NegotiatedConnection
from kafkatool.core.client.rights import NEVER_CREATES, about_every_topic, note_topics_left_out, refusal
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import (
    AllRefusedError,
    BrokerAnswerError,
    BrokerUnreachableError,
    DeadlineError,
    KafkatoolError,
    LoginRefusedError,
    NoControllerError,
    RefusedError,
    TlsError,
    UnsupportedApiError,
)
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataResponse

_Response = TypeVar("_Response")
Codes = Callable[[Any], Iterable[int]]

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""What is sent again as it is (ADM-53, ADM-55); all other codes are final."""
_METADATA_LEAST: Final = 1  # the first with a controller
NO_CODES: Codes = lambda response: ()  # noqa: E731


class ClusterClient:
    """One operation's client, of one thread: its whole time runs from when it is made, or since ``begin_anew``.

    ``KIND`` is what a person calls a node it talks to.

    ``brokers``, ``controller_id`` and ``cluster_id`` are those of the newest metadata. ``connections`` are kept until
    ``close``; whoever asks brokers while nothing is asked here may share them.
    """

    KIND: ClassVar[str] = "broker"

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: ClientSettings,
        *,
        cluster_id: str | None = None,
        unseen: Unseen | None = None,
    ) -> None:
        """Connect to the first address that answers, and learn the brokers. ``unseen`` is told what is not told us.

        Raises BrokerUnreachableError: none did, with each one's reason. RefusedError: its cluster is not ``cluster_id``.
        """
        self.settings = settings
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None
        self.repeated = (
            False  # whether the request answered last had been sent before: it may have been carried out then
        )
        self._bootstrap = bootstrap
        self._wanted_cluster_id = cluster_id
        self.connections = Connections(settings.access, max_idle_ms=settings.max_idle_ms)
        self.unseen = Unseen() if unseen is None else unseen
        self._asked_of_every_topic = False
        self._answered: Address | None = None
        self._quiet_until: dict[Address, float] = {}  # as brokers ask for it by throttle_time_ms
        self._learned_at = 0.0  # when brokers and controller were told
        self._deadline = 0.0
        self.begin_anew()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        self.connections.close()

    def begin_anew(self, whole_timeout_ms: int | None = None) -> None:
        """Begin an operation with all of its time before it: that of the settings, unless said."""
        self._deadline = time.monotonic() + (whole_timeout_ms or self.settings.whole_timeout_ms) / 1000

    def note_anew(self, unseen: Unseen) -> None:
        """Note there what is not told from here on, as if nothing had been asked before: rights may have changed."""
        self.unseen, self._asked_of_every_topic = unseen, False

    @property
    def left_ms(self) -> int:
        """Return the time left for this operation; never 0."""
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    @property
    def request_ms(self) -> int:
        """Return how long one request may take now, as requests carry it."""
        return min(self.settings.request_timeout_ms, self.left_ms)

    # --- asking -------------------------------------------------------------------------------------------------

    def any(self, api: Api, request: Request[_Response], *, least: int = 0, codes: Codes = NO_CODES) -> _Response:
        """Ask the broker that answers first. Raises KafkatoolError of the kinds of ``controller``."""
        return self._retried(lambda: self._ask_any(api, request, least), codes)

    def controller(
        self, api: Api, request: Request[_Response], *, least: int = 0, codes: Codes = NO_CODES
    ) -> _Response:
        """Ask the controller; again after a change of controller and what else is worth it, as ``codes`` tells.

        ``codes`` are the error codes in an answer: where all there are ask for it, it is sent again.
        ``repeated`` then tells that it was. Raises NoControllerError, UnsupportedApiError, DeadlineError,
        BrokerUnreachableError.
        """
        return self._retried(lambda: self._send(self._controller_address(), api, request, least), codes)

    def broker(
        self, broker_id: int, api: Api, request: Request[_Response], *, least: int = 0, codes: Codes = NO_CODES
    ) -> _Response:
        """Ask that broker. Raises BrokerUnreachableError at once where no such broker is up."""
        return self._retried(lambda: self._send(self._address_of(broker_id), api, request, least, broker_id), codes)

    def versions(self, broker_id: int) -> dict[int, tuple[int, int]]:
        """Return the versions that broker serves, by API key. Raises BrokerUnreachableError."""
        return dict(self._connection(self._address_of(broker_id)).versions)

    def serves(self, api: Api, *, least: int = 0) -> bool:
        """Tell whether a broker that answers serves ``api`` from version ``least`` on."""
        return self._first_connection().version_of(api, least=least) is not None

    def version_of(self, api: Api, *, broker: int | None = None, least: int = 0) -> tuple[int, int]:
        """Return the broker that a request would go to, the controller unless said, and in which version (ADM-20).

        Raises UnsupportedApiError, NoControllerError, BrokerUnreachableError.
        """
        address = self._controller_address() if broker is None else self._address_of(broker)
        target = self.controller_id if broker is None else broker
        assert target is not None
        version = self._connection(address).version_of(api, least=least)
        if version is None:
            command = self.settings.client_id.replace("kt-", "kt ")
            raise UnsupportedApiError(api.name, max(api.min_version, least), f"{self.KIND} {target}", command)
        return target, version

    def refresh(self) -> None:
        """Read brokers, controller and cluster id anew. Raises BrokerUnreachableError, RefusedError."""
        self.metadata([])

    def metadata(self, topics: Sequence[str] | None, *, least: int = _METADATA_LEAST) -> MetadataResponse:
        """Read the metadata of those topics (None: all) and of the cluster. Raises BrokerUnreachableError."""
        asked = None if topics is None else [metadata.MetadataRequestTopic(topic=t) for t in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        try:
            answer = self._ask_any(metadata.API, request, least)
        except UnsupportedApiError as e:
            from kafkatool.core.protocol.messages import list_partition_reassignments

            found = next((c.versions for a, c in self.connections.open.items() if str(a) == e.broker), {})
            if metadata.API.key not in found and list_partition_reassignments.API.key in found:
                raise RefusedError(
                    f"{e.broker} is a controller, which tells nothing of brokers",
                    now="name a broker; kt reassign --cancel and --list take controllers by --bootstrap-controller",
                ) from e
            raise
        nodes = ((b.node_id, b.host, b.port, b.rack) for b in answer.brokers)
        self._learn(answer.cluster_id, answer.controller_id, nodes)
        if topics is None:
            self._note_topics_left_out()
        return answer

    def _learn(
        self, cluster_id: str | None, controller_id: int, nodes: Iterable[tuple[int, str, int, str | None]]
    ) -> None:
        """Take over what was told of the cluster; nodes are id, host, port and rack. Raises RefusedError: another's."""
        if self._wanted_cluster_id is not None and cluster_id != self._wanted_cluster_id:
            found = f"id {cluster_id}" if cluster_id else "no id"
            raise RefusedError(
                f"--cluster-id is {self._wanted_cluster_id}, but the cluster at {join(self._bootstrap)} has {found}; "
                "nothing was written"
            )
        if self.cluster_id not in (None, cluster_id):
            raise RefusedError(f"{join(self._bootstrap)} leads to two clusters, {self.cluster_id} and {cluster_id}")
        protocol = self.connections.access.security.protocol
        self.brokers = {
            node: BrokerInfo(node, (Endpoint("", host, port, protocol),), rack)
            for node, host, port, rack in sorted(nodes, key=lambda known: known[0])
        }
        self.controller_id = controller_id if controller_id >= 0 else None
        self.cluster_id = cluster_id
        self._learned_at = time.monotonic()

    def _note_topics_left_out(self) -> None:
        """Ask, once, whether we may describe any topic there could be; brokers too old to say so are not asked."""
        if self._asked_of_every_topic:
            return
        self._asked_of_every_topic = True
        try:
            answer = self._ask_any(metadata.API, about_every_topic(), NEVER_CREATES)
        except UnsupportedApiError:
            return
        note_topics_left_out(answer, self.unseen, broker=self._who_answered(), principal=self._principal)

    # --- what an answer says --------------------------------------------------------------------------------------

    def refusal(
        self, api: Api, code: int, message: str | None = None, *, resource: str | None = None
    ) -> BrokerAnswerError:
        """Return the error that a code in the newest answer is; ``resource`` names what it is about (SEC-40)."""
        return refusal(api, code, message, resource, broker=self._who_answered(), principal=self._principal)

    def _who_answered(self) -> str:
        return f"a {self.KIND}" if self._answered is None else self._names_at(str(self._answered))

    @property
    def _principal(self) -> str:
        return self.connections.access.security.principal

    # --- sending ------------------------------------------------------------------------------------------------

    def _retried(self, ask: Callable[[], _Response], codes: Codes) -> _Response:
        """Ask until there is an answer that is not worth asking again (ADM-53)."""
        self.repeated = False
        backoff_ms, tries = self.settings.retry_backoff_ms, 0
        while True:
            try:
                answer = ask()
                found = set(codes(answer))
                if not found or not found <= RETRIABLE:
                    return answer
                why: KafkatoolError = DeadlineError("no answer but to try again")
            except UnsupportedApiError as e:
                raise e.of(self._names_at(e.broker), self.settings.client_id.replace("kt-", "kt ")) from e
            except NoControllerError as e:
                answer, found, why = None, {ErrorCode.NOT_CONTROLLER}, e
            except (_NoSuchBrokerError, LoginRefusedError, TlsError):
                raise
            except BrokerUnreachableError as e:
                answer, found, why = None, {ErrorCode.NOT_CONTROLLER}, e
                self.repeated = True
            tries += 1
            lost = isinstance(why, BrokerUnreachableError)
            pause_ms = max(backoff_ms, self.settings.reconnect_backoff_ms) if lost else backoff_ms
            quiet_ms = throttled_ms(answer) if ErrorCode.THROTTLING_QUOTA_EXCEEDED in found else 0
            if self.left_ms <= max(pause_ms, quiet_ms) or tries > self.settings.retries:
                if answer is not None:
                    return answer
                raise why
            time.sleep(pause_ms / 1000)
            backoff_ms = min(2 * backoff_ms, max(self.settings.max_backoff_ms, self.settings.retry_backoff_ms)) or 1
            if ErrorCode.NOT_CONTROLLER in found:
                self.refresh()
            if answer is not None and ErrorCode.REQUEST_TIMED_OUT in found:
                self.repeated = True

    def _send(
        self, address: Address, api: Api, request: Request[_Response], least: int, broker_id: int | None = None
    ) -> _Response:
        connection = self._connection(address)
        pause_s = min(self._quiet_until.pop(address, 0.0), self._deadline) - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        answer = connection.send(api, request, timeout_ms=self.request_ms, least=least)
        self._answered = address
        if quiet_ms := throttled_ms(answer):
            self._quiet_until[address] = time.monotonic() + quiet_ms / 1000
        return answer

    def _ask_any(self, api: Api, request: Request[_Response], least: int) -> _Response:
        """Ask the brokers known, the connected ones first, then the addresses given. Raises BrokerUnreachableError."""
        known = [Address(e.host, e.port) for b in self.brokers.values() for e in b.endpoints]
        failures: dict[Address, BrokerUnreachableError] = {}
        addresses = dict.fromkeys((*self.connections.open, *known, *self._bootstrap))
        for address in addresses:
            try:
                return self._send(address, api, request, least)
            except LoginRefusedError:
                raise
            except BrokerUnreachableError as e:
                failures[address] = e
                if self.left_ms <= 1:
                    break
        between = " " if len(failures) == 1 else "\n  "  # a line for each (ADM-2)
        reasons = between.join(f"{address}: {_reason(address, e)}" for address, e in failures.items())
        kind: type[BrokerUnreachableError] = BrokerUnreachableError
        if failures and all(isinstance(e, TlsError) for e in failures.values()):  # then later, too
            kind = TlsError
        elif addresses.keys() == failures.keys() and all(map(_was_refused, failures.values())):
            kind = AllRefusedError
        raise kind(f"no {self.KIND} answers:{between}{reasons}")

    def _first_connection(self) -> NegotiatedConnection:
        if not self.connections.open:
            self.refresh()
        return next(iter(self.connections.open.values()))

    def _connection(self, address: Address) -> NegotiatedConnection:
        connect_ms = min(self.settings.connect_timeout_ms, self.left_ms)
        return self.connections.to(address, timeout_ms=self.request_ms, connect_timeout_ms=connect_ms)

    def _controller_address(self) -> Address:
        if self.controller_id is None or self.controller_id not in self.brokers:
            self.refresh()
        if self.controller_id is None or self.controller_id not in self.brokers:
            sent_before = self.repeated  # an earlier try may have been carried out
            raise NoControllerError("no controller is elected" + ("" if sent_before else "; this request was not sent"))
        return self._address_of(self.controller_id)

    def _address_of(self, broker_id: int) -> Address:
        if (time.monotonic() - self._learned_at) * 1000 > self.settings.metadata_max_age_ms:
            self.refresh()
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise _NoSuchBrokerError(f"{self.KIND} {broker_id} is not up")
        endpoint = broker.endpoints[0]
        return Address(endpoint.host, endpoint.port)

    def _names_at(self, address: str) -> str:
        """Return what a person calls the node at an address: its id, if it is known."""
        ids = [b.id for b in self.brokers.values() for e in b.endpoints if str(Address(e.host, e.port)) == address]
        return f"{self.KIND} {ids[0]}" if ids else address


class _NoSuchBrokerError(BrokerUnreachableError):
    """No broker of that id is up, so far as the broker asked knows: there is nobody to send to."""


def throttled_ms(answer: object) -> int:
    """Return for how long whoever answered wants to be asked nothing, ``throttle_time_ms``; 0 where it does not say."""
    return getattr(answer, "throttle_time_ms", 0)


def join(addresses: Iterable[Address]) -> str:
    """Write a list of addresses as ``--bootstrap-server`` takes it."""
    return ",".join(map(str, addresses))


def _was_refused(error: BrokerUnreachableError) -> bool:
    return isinstance(error.__cause__, ConnectionRefusedError)


def _reason(address: Address, error: BrokerUnreachableError) -> str:
    """Say in few words why there was no answer, without the address (ADM-2)."""
    cause = error.__cause__
    if isinstance(cause, gaierror | UnicodeError):
        return "name unknown"
    if _was_refused(error):
        return "refused"
    if is_late(error):
        return "no answer"
    text = str(error).removeprefix("cannot connect to ")
    return text.removeprefix(f"{address}").removeprefix(":").strip()
