"""What brokers of the simulation ask each other for transactions: the product's requests and handlers, without sockets."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar

from kafkatool.broker.handlers import add_partitions_to_txn, write_txn_markers
from kafkatool.broker.transactions.channels import Channels
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import add_partitions_to_txn as adding
from kafkatool.core.protocol.messages import write_txn_markers as marking

Item = TypeVar("Item")

_HANDLERS: Final[dict[int, Callable[[Any, Any], Any]]] = {
    adding.API.key: add_partitions_to_txn.handle,
    marking.API.key: write_txn_markers.handle,
}


class Asked(NamedTuple):
    """A request of one broker to another."""

    api: Api
    version: int
    request: Any


class Over(NamedTuple):
    """What a request came by: whose connection, and accepted when."""

    client_id: str
    accepted_ms: float


Wire = Callable[[int, Asked, Callable[[Any], None]], None]
"""Takes a request to that broker; its answer comes once, or None where there is none."""


def serve(asked: Asked, over: Over, context: object, respond: Callable[[Any], None]) -> None:
    """Have the product's handler answer; ``context`` has what it uses of a broker. None: it closes the connection."""
    call = SimpleNamespace(
        context=context,
        header=SimpleNamespace(api_version=asked.version, client_id=over.client_id),
        accepted_ms=over.accepted_ms,
        respond=respond,
        close=lambda: respond(None),
    )
    answer = _HANDLERS[asked.api.key](asked.request, call)
    if answer is not None:
        respond(answer)


class _AskedError(Exception):
    """An exchange has come to its request."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.api.name)
        self.asked = asked


class _Peer:
    """The broker at the other end, whose answer is not there yet, or is."""

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer

    def newest(self, api: Api) -> int:
        return api.max_version

    def send(self, api: Api, version: int, request: Any) -> Any:
        if self._answer is None:
            raise _AskedError(Asked(api, version, request))
        return self._answer


class PlayedChannels(Channels[Item]):
    """``Channels`` of one thread: an exchange is begun to learn its request, and once more when the answer has come."""

    def __init__(self, wire: Wire, *args: Any) -> None:
        super().__init__(*args)
        self._wire = wire
        self._asking: set[int] = set()

    def put(self, broker_id: int, item: Item) -> None:
        self._queues.setdefault(broker_id, []).append(item)
        self._send(broker_id)

    def _send(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        while queue and broker_id not in self._asking:
            items, queue[:] = self.take(queue)
            try:
                self._exchange(broker_id, _Peer(), items)
            except _AskedError as e:
                self._asking.add(broker_id)
                self._wire(broker_id, e.asked, partial(self._heard, broker_id, items))

    def _heard(self, broker_id: int, items: Sequence[Item], answer: Any) -> None:
        self._asking.discard(broker_id)
        if answer is None:
            self.failed(broker_id, items)
        else:
            self._exchange(broker_id, _Peer(answer), items)
        self._send(broker_id)

    def _exchange(self, broker_id: int, peer: _Peer, items: Sequence[Item]) -> None:
        self.exchange(broker_id, peer, items)  # type: ignore[arg-type]
