"""One life of a broker's process, as far as the controller has to do with it (CTL-1, 18 to 22): the real controller worker
and session object, the registration, and what becomes of them when it is killed, stopped, or ends as it should.

The event thread, the session's callback thread, the senders and the broker's own work are interleaved by chance. What a
broker does beside is told by those who inherit: ``process`` reduces it to what the controller can see of it,
``tests.histories.simulated`` has the product's.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.telling.channels import ChannelFactory, ControlRequest
from kafkatool.broker.controller.term import Surroundings
from kafkatool.broker.controller.worker import ControllerWorker
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import SessionState
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.core.zookeeper.ensemble import Crash
from tests.simulation.client import Client, SimulatedZooKeeper
from tests.simulation.network import SimulatedChannel

if TYPE_CHECKING:
    from tests.simulation.realm import Realm

_SESSION_ERRORS = (SessionExpiredError, ConnectionLostError)
_NO_LOG = StateChangeLog(None)
_BROKER_EPOCH_FROM = {LeaderAndIsrRequest: 2, UpdateMetadataRequest: 5, StopReplicaRequest: 1}

ShutdownAnswer = tuple[ErrorCode, list[TopicPartition]]


@functools.cache
def config_of(properties: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return BrokerConfig.from_properties({"zookeeper.connect": "simulated:2181", **dict(properties)})


def knows_incarnations(request: ControlRequest) -> bool:
    """Tell whether it names the life of its broker that it is for."""
    return request.version >= _BROKER_EPOCH_FROM[type(request.message)]


class SimulatedTimer(Timer):
    """Virtual time; callbacks run with the process."""

    def __init__(self, life: "Life") -> None:
        super().__init__("simulated")
        self._life = life

    def add(self, delay_ms: float, callback: Callable[[], None]) -> TimerTask:
        task = TimerTask(self, callback)

        def due() -> None:
            if self._life.alive and (run := task.take()):
                run()

        self._life.world.after(delay_ms, due)
        return task


class SimulatedQueue(EventQueue):
    """Tells its process that there is work."""

    def __init__(self, life: "Life") -> None:
        super().__init__()
        self._life = life

    def put(self, event: Event) -> None:
        super().put(event)
        self._life.wake()


class Life:
    """From start to stop, kill included."""

    def __init__(self, realm: "Realm[Any]", broker_id: int) -> None:
        self.realm = realm
        self.world = realm.world
        self.id = broker_id
        self.alive = True
        self.stopped_until = 0.0
        self.stopping = False
        self.broker_epoch: int | None = None
        self.config = config_of(tuple(sorted(realm.properties.items())))
        self._working = False  # the event thread is in an event
        self._woken = False
        self._registering = False
        self._expired = False
        self._former_sessions: set[int] = set()
        self.client = self.make_client()

        def open_channel(actor: str) -> ChannelFactory:
            return lambda info: SimulatedChannel(realm, self, info)

        self.zookeeper = SimulatedZooKeeper(self.client)
        self.worker = ControllerWorker(
            Surroundings(
                self.zookeeper,
                self.config,
                broker_id,
                SimulatedQueue(self),
                SimulatedTimer(self),
                _NO_LOG,
                open_channel,
                clock=lambda: self.world.now / 1000,
            )
        )
        self.zookeeper.add_session_listener(self.worker.on_session)
        self.zookeeper.add_session_listener(self._on_session)
        self.world.soon(self._start)

    def make_client(self) -> Client:
        return Client(self.world, self.realm.server, self)

    # --- for those who inherit --------------------------------------------------------------------------------------

    def begin_work(self) -> None:
        """Begin what the broker does beside, as its controller has begun to work."""

    def before_registering_again(self) -> None:
        """Do what is due before a new session is used."""

    def must_wait(self, request: ControlRequest) -> bool:
        """Tell whether it cannot know yet for which of its lives the request is (BRK-25)."""
        return self.broker_epoch is None and knows_incarnations(request)

    def obey(self, request: ControlRequest) -> object:
        """Do what a controller asks for, and answer."""
        raise NotImplementedError

    # --- life -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self.alive:
            return
        if not self.realm.server.is_up or not self.client.connected:
            self.client.connect()
            self._after(100.0, self._start)
            return

        def elect() -> None:
            self.worker.elect()
            self._register_soon()

        self.worker.queue.put(Event("startup", elect, self._register_soon))
        self.begin_work()

    def _after(self, ms: float, action: Callable[[], None]) -> None:
        """Do it after what a process in life waits for."""
        self.world.after(ms * self.world.pace, action)

    def kill(self) -> None:
        """Kill it (SIGKILL): its session lives on until the server misses it."""
        if self.alive:
            self.world.note("broker %d is killed", self.id)
            self.alive = False
            if self.client.connected:
                self.client.expire_unless_back()
                self.client.connected = False
                self.realm.server.forget_watches(self.client)

    def stop_for(self, ms: float) -> None:
        """Stop it (SIGSTOP), and let it go on (SIGCONT) after a while."""
        self.world.note("broker %d stands still for %.0f ms", self.id, ms)
        self.stopped_until = max(self.stopped_until, self.world.now + ms)
        if self.client.connected:
            self.client.expire_unless_back()

    def stop_orderly(self, attempts: int = 3) -> None:
        """Ask for a controlled shutdown, then end the controller and the session (CTL-22, CTL-111)."""
        self.stopping = True
        controller = self.realm.controller()

        def answered(answer: ShutdownAnswer | None) -> None:
            if not self.alive:
                return
            self.world.note("broker %d asked for its controlled shutdown: %s", self.id, answer)
            if answer == (ErrorCode.NONE, []) or attempts == 1:
                self._end()
            else:
                self._after(5000.0, lambda: again(attempts - 1))

        def again(attempts: int) -> None:
            if self.alive:
                self.stop_orderly(attempts)

        waiting = [answered]

        def answer(value: ShutdownAnswer | None) -> None:
            if waiting:
                waiting.pop()(value)

        if controller is None:
            answered(None)
        else:
            controller.serve_controlled_shutdown(self.id, self.broker_epoch, answer)
            self._after(30_000.0, lambda: answer(None))  # one that is killed does not answer

    def _end(self) -> None:
        """End it when the event at work is done."""
        if not self.alive:
            return
        if self._working or self.stopped_until > self.world.now:
            self._after(50.0, self._end)
            return
        self.worker.stopping = True
        self.worker.queue.close()
        self.worker.resign()
        self.world.note("broker %d stops", self.id)
        self.end_work()
        self.zookeeper.close()
        self.alive = False

    def end_work(self) -> None:
        """End what the broker does beside, while its session is there still."""

    def serve_controlled_shutdown(
        self, broker: int, epoch: int | None, answered: Callable[[ShutdownAnswer | None], None]
    ) -> None:
        """Serve as ``Controller.controlled_shutdown`` does, without the thread that waits."""

        def answer(value: ShutdownAnswer | None) -> None:
            self.world.soon(lambda: answered(value))

        def serve() -> None:
            term = self.worker.term
            if term is None:
                answer((ErrorCode.STALE_CONTROLLER_EPOCH, []))
                return
            try:
                answer(term.controlled_shutdown.serve(broker, epoch))
            except BaseException:
                answer(None)
                raise

        if self.worker.term is None:
            answer((ErrorCode.STALE_CONTROLLER_EPOCH, []))
        else:
            self.worker.queue.put(Event("controlled shutdown", serve, lambda: answer(None)))

    # --- the controller's thread ------------------------------------------------------------------------------------

    def wake(self) -> None:
        if not self._woken and not self._working and self.alive:
            self._woken = True
            self.world.soon(self._work)

    def _work(self) -> None:
        if not self.alive or self._working:
            self._woken = False
            return
        if self.stopped_until > self.world.now:
            self.world.after(self.stopped_until - self.world.now, self._work)
            return
        self._woken = False
        event = self.worker.queue.take(wait=False)
        if event is None:
            return
        self.world.note("controller %d handles %r", self.id, event.name)
        self._working = True
        part, self.client.part = self.client.part, "controller"
        try:
            self.worker.process(event)
        except Crash:
            pass  # killed
        except Exception as e:  # noqa: BLE001  its thread would log it and go on; here it is a find
            self.realm.invariants.unexpected(self, event.name, e)
        finally:
            self._working = False
            self.client.part = part
        if len(self.worker.queue):
            self.wake()

    def as_broker(self, work: Callable[[], None]) -> None:
        """Work as on another thread of the process: its writes are not the controller's."""
        part, self.client.part = self.client.part, "broker"
        try:
            work()
        except Crash:
            pass
        except ZooKeeperError as e:
            self.world.note("broker %d: %s", self.id, e)
        finally:
            self.client.part = part

    # --- registration (Z-10, CTL-20) --------------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
        elif state is SessionState.CONNECTED and self._expired:
            self._expired = False
            self._register_soon()

    def _register_soon(self, after_ms: float = 1.0) -> None:
        if not self._registering:
            self._registering = True
            self._after(after_ms, self._register)

    def _register(self) -> None:
        self._registering = False
        if not self.alive:
            return
        if self.stopped_until > self.world.now or not self.client.connected or not self.worker.has_resigned:
            self._register_soon(50.0)
        else:
            self.as_broker(self._try_to_register)

    def _try_to_register(self) -> None:
        path = BrokerZnode.path(self.id)
        info = BrokerInfo(self.id, (Endpoint("PLAINTEXT", f"host{self.id}", 9092),))
        try:
            if self._former_sessions:
                self.before_registering_again()
            try:
                self.zookeeper.create(path, BrokerZnode.encode(info, 0), ephemeral=True)
            except NodeExistsError:
                node = self.zookeeper.get(path)
                owner = node.ephemeral_owner if node is not None else 0
                if node is not None and owner in self._former_sessions and owner != self.zookeeper.session_id:
                    try:
                        self.zookeeper.delete(path, node.version)
                    except (NoNodeError, VersionConflictError):
                        pass
                    self._register_soon()
                    return
            node = self.zookeeper.get(path)
            if node is None or node.ephemeral_owner != self.zookeeper.session_id:
                self._register_soon(200.0)
                return
            self._former_sessions.add(node.ephemeral_owner)
            self.broker_epoch = node.czxid
        except _SESSION_ERRORS:
            self._register_soon(200.0)
