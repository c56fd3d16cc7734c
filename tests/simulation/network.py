"""From controllers to brokers: ordered per sender and broker, late, repeated, lost with whoever dies (CTL-49).

As ``BrokerSender``: one request in flight, sent again until it is answered or the channel is closed, so a broker may
get it twice. It reaches whatever process runs under the address by then. What is on the wire when a channel is closed
may still arrive, long after its sender was deposed.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.core.model.values import BrokerInfo
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.realm import Realm

_REGISTERING_MS = 20.0  # between looks whether the receiver knows its broker epoch
_RETRY_MS = 100.0
_UNREACHABLE_MS = 400.0  # between attempts at a process that is not there: as the real 100, with fewer events
_SLOW_MS = (500.0, 3000.0, 20_000.0)


class SimulatedChannel:
    """One sender of one term of one controller."""

    def __init__(self, realm: "Realm[Any]", owner: "Life", broker: BrokerInfo) -> None:
        self._realm = realm
        self._world: World = realm.world
        self._owner = owner
        self._broker = broker
        self._queue: deque[ControlRequest] = deque()
        self._busy = False
        self._closed = False

    def send(self, request: ControlRequest) -> None:
        if not self._owner.alive:
            return
        self._realm.invariants.on_send(self._owner, self._broker.id, request)
        self._queue.append(request)
        self._realm.after_send(self._owner)
        if not self._busy:
            self._next()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def _delay(self) -> float:
        random, chances = self._world.random, self._world.chances
        if chances.slow and random.random() < chances.slow:
            return random.choice(_SLOW_MS) * self._world.pace
        return 0.5 + random.random() * 5

    def _next(self) -> None:
        self._busy = bool(self._queue) and not self._closed
        if self._busy:
            request = self._queue.popleft()
            self._world.after(self._delay(), lambda: self._arrive(request))

    def _again(self, request: ControlRequest, after_ms: float) -> None:
        """Deliver it again, unless its sender is gone."""
        if self._owner.alive and not self._closed:
            self._world.after(after_ms * self._world.pace, lambda: self._arrive(request))

    def _arrive(self, request: ControlRequest) -> None:
        world = self._world
        chances, random = world.chances, world.random
        receiver = self._realm.processes.get(self._broker.id)
        if receiver is None or not receiver.alive or not self._realm.orders(self._owner.id, receiver.id):
            self._again(request, _UNREACHABLE_MS)
        elif receiver.stopped_until > world.now:
            world.after(receiver.stopped_until - world.now + random.random(), lambda: self._arrive(request))
        elif receiver.must_wait(request):
            world.after(_REGISTERING_MS * world.pace, lambda: self._arrive(request))
        elif chances.request_lost and random.random() < chances.request_lost:
            self._again(request, _RETRY_MS)
        else:
            answer = receiver.obey(request)
            is_lost = not self._realm.answers(receiver.id, self._owner.id)
            if is_lost or (chances.answer_lost and random.random() < chances.answer_lost):
                self._again(request, _RETRY_MS)
            else:
                world.after(self._delay(), lambda: self._answered(request, answer))

    def _answered(self, request: ControlRequest, answer: object) -> None:
        if not self._owner.alive or self._closed:
            return
        wait = self._owner.stopped_until - self._world.now
        if wait > 0:
            self._world.after(wait, lambda: self._answered(request, answer))
            return
        if request.on_answer is not None:
            request.on_answer(answer)  # type: ignore[arg-type]
        self._next()
