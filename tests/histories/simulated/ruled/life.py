"""One life of a simulated broker's process: session, controller and registration, as wires, freezes and deaths have it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.broker.registration.strays import find_strays
from tests.histories.simulated.brokers import Wires
from tests.simulation.client import Client, Pending
from tests.simulation.life import Life
from tests.simulation.server import Server
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.histories.simulated.ruled.broker import RuledBroker
    from tests.histories.simulated.ruled.realm import RuledRealm

T = TypeVar("T")

_LOOKED_MS = 2.0  # after that a client tries again to connect
_ANSWERED_MS = 8.0


class WiredClient(Client):
    """A client whose way to ZooKeeper may be cut. Who has waited goes on only when the process does."""

    def __init__(self, world: World, server: Server, process: Life, wires: Wires) -> None:
        super().__init__(world, server, process)
        self._wires = wires

    @property
    def is_wired(self) -> bool:
        return self._wires.carry(self.process.id, 0)

    def connect(self) -> None:
        if self.is_wired or not self.process.alive or self.closed:
            super().connect()
        else:
            self.world.after(_LOOKED_MS, self.connect)

    def submit(self, operation: Callable[[], T]) -> Pending[T]:
        """Have the answer come while others go on, now and then: what was asked for is done by then."""
        pending, random = super().submit(operation), self.world.random
        if self.world.chances.others_first and random.random() < self.world.chances.others_first:
            pending.due = self.world.now + random.random() * _ANSWERED_MS
        return pending

    def alive_or_crash(self) -> None:
        super().alive_or_crash()
        while (until := self.process.stopped_until) > self.world.now:
            self.world.run_until(lambda: not self.process.alive or self.process.stopped_until <= self.world.now, until)
            super().alive_or_crash()


class RuledLife(Life):
    """From start to stop, kill included. ``broker`` has the logs, and outlives it."""

    def __init__(self, realm: "RuledRealm", broker: "RuledBroker") -> None:
        self.ruled, self.broker = realm, broker
        super().__init__(realm, broker.id)

    def make_client(self) -> Client:
        return WiredClient(self.world, self.realm.server, self, self.ruled.wires)

    # --- life -------------------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Die with its broker."""
        super().kill()

    def kill(self) -> None:
        """Be killed where chance wants it, in the midst of its work; somebody starts the broker again."""
        if self.alive:
            self.broker.kill()
            self.ruled.was_killed(self.broker)

    def stop_for(self, ms: float) -> None:
        super().stop_for(ms)
        self.broker.frozen = True
        self.world.after(ms, self._thaw_if_due)

    def _thaw_if_due(self) -> None:
        if self.alive and self.stopped_until <= self.world.now:
            self.broker.frozen = False

    def end_soon(self) -> None:
        """End as it should, without asking a controller."""
        self.stopping = True
        self._end()

    def end_work(self) -> None:
        self.broker.close()

    # --- work, in whose frames the broker is found by who asks who speaks ---------------------------------------------

    def _work(self) -> None:
        self.broker.do(super()._work)

    def _register(self) -> None:
        self.broker.do(super()._register)

    def before_registering_again(self) -> None:
        """Set aside what is not assigned to this broker any more, as `Broker` does."""
        hosted = self.broker.hosted
        strays = find_strays(self.zookeeper, self.id, dict.fromkeys(hosted)).strays
        if strays:
            self.broker.set_aside(sorted(strays))

    def obey(self, request: ControlRequest) -> object:
        held = set(self.broker.hosted)
        answer = self.broker.obey(request)
        self.world.note("broker %d is told %s -> %s", self.id, request.message, answer)
        self.realm.invariants.on_obeyed(self, request, held)
        return answer
