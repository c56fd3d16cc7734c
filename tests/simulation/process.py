"""One broker process: the real controller worker and session object, and around them what a broker does (CTL-1, 18 to 22).

The event thread, the session's callback thread, the senders and the broker's own work are interleaved by chance. A
killed process leaves its disk; a stopped one (SIGSTOP) leaves everything as it is and goes on later as if nothing were.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.telling.channels import ChannelFactory, ControlRequest
from kafkatool.broker.controller.term import Surroundings
from kafkatool.broker.controller.worker import ControllerWorker
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import (
    ConnectionLostError,
    KafkatoolError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import SessionState
from kafkatool.core.zookeeper.znodes import BrokerZnode, IsrChangeZnode, LogDirEventZnode, PartitionStateZnode
from tests.core.zookeeper.ensemble import Crash
from tests.simulation.client import Client, SimulatedZooKeeper
from tests.simulation.network import SimulatedChannel
from tests.simulation.replicas import Disk, Replicas, Role

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

_REPLICATION_MS = 700.0  # between looks at who is in sync
_LAG_MS = 3000.0  # replica.lag.time.max.ms
_SESSION_ERRORS = (SessionExpiredError, ConnectionLostError)
_NO_LOG = StateChangeLog(None)

ShutdownAnswer = tuple[ErrorCode, list[TopicPartition]]


@functools.cache
def config_of(properties: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return BrokerConfig.from_properties({"zookeeper.connect": "simulated:2181", **dict(properties)})


class SimulatedTimer(Timer):
    """Virtual time; callbacks run with the process."""

    def __init__(self, process: "Process") -> None:
        super().__init__("simulated")
        self._process = process

    def add(self, delay_ms: float, callback: Callable[[], None]) -> TimerTask:
        task = TimerTask(self, callback)

        def due() -> None:
            if self._process.alive and (run := task.take()):
                run()

        self._process.world.after(delay_ms, due)
        return task


class SimulatedQueue(EventQueue):
    """Tells its process that there is work."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._process = process

    def put(self, event: Event) -> None:
        super().put(event)
        self._process.wake()


class Process:
    """From start to stop, kill included."""

    def __init__(self, cluster: "Cluster", broker_id: int, disk: Disk, properties: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.id = broker_id
        self.alive = True
        self.stopped_until = 0.0
        self.stopping = False
        self.replicas = Replicas(broker_id, disk)
        self.client = Client(self.world, cluster.server, self)
        self.config = config_of(tuple(sorted(properties.items())))
        self._working = False  # the event thread is in an event
        self._woken = False
        self._registering = False
        self._maintaining = False
        self._expired = False
        self._former_sessions: set[int] = set()
        self._changed_isrs: dict[TopicPartition, None] = {}
        self._lagging: dict[tuple[TopicPartition, int], float] = {}  # since when

        def open_channel(actor: str) -> ChannelFactory:
            return lambda info: SimulatedChannel(cluster, self, info)

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

    def _start(self) -> None:
        if not self.alive:
            return
        if not self.cluster.server.is_up or not self.client.connected:
            self.client.connect()
            self.world.after(100.0, self._start)
            return

        def elect() -> None:
            self.worker.elect()
            self._register_soon()

        self.worker.queue.put(Event("startup", elect, self._register_soon))
        self.world.after(self.world.random.random() * _REPLICATION_MS, self._replicate)

    # --- life -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill it (SIGKILL): its session lives on until the server misses it."""
        if self.alive:
            self.world.note("broker %d is killed", self.id)
            self.alive = False
            if self.client.connected:
                self.client.expire_unless_back()
                self.client.connected = False
                self.cluster.server.forget_watches(self.client)

    def stop_for(self, ms: float) -> None:
        """Stop it (SIGSTOP), and let it go on (SIGCONT) after a while."""
        self.world.note("broker %d stands still for %.0f ms", self.id, ms)
        self.stopped_until = max(self.stopped_until, self.world.now + ms)
        if self.client.connected:
            self.client.expire_unless_back()

    def stop_orderly(self, attempts: int = 3) -> None:
        """Ask for a controlled shutdown, then end the controller and the session (CTL-22, CTL-111)."""
        self.stopping = True
        controller = self.cluster.controller()

        def answered(answer: ShutdownAnswer | None) -> None:
            if not self.alive:
                return
            self.world.note("broker %d asked for its controlled shutdown: %s", self.id, answer)
            if answer == (ErrorCode.NONE, []) or attempts == 1:
                self._end()
            else:
                self.world.after(5000.0, lambda: again(attempts - 1))

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
            controller.serve_controlled_shutdown(self.id, self.replicas.broker_epoch, answer)
            self.world.after(30_000.0, lambda: answer(None))  # one that is killed does not answer

    def _end(self) -> None:
        """End it when the event at work is done."""
        if not self.alive:
            return
        if self._working or self.stopped_until > self.world.now:
            self.world.after(50.0, self._end)
            return
        self.worker.stopping = True
        self.worker.queue.close()
        self.worker.resign()
        self.world.note("broker %d stops", self.id)
        self.zookeeper.close()
        self.alive = False

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

    # --- the controller's thread ----------------------------------------------------------------------------------

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
            self.cluster.invariants.unexpected(self, event.name, e)
        finally:
            self._working = False
            self.client.part = part
        if len(self.worker.queue):
            self.wake()

    def _as_broker(self, work: Callable[[], None]) -> None:
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
            self.world.after(after_ms, self._register)

    def _register(self) -> None:
        self._registering = False
        if not self.alive:
            return
        if self.stopped_until > self.world.now or not self.client.connected or not self.worker.has_resigned:
            self._register_soon(50.0)
        else:
            self._as_broker(self._try_to_register)

    def _try_to_register(self) -> None:
        path = BrokerZnode.path(self.id)
        info = BrokerInfo(self.id, (Endpoint("PLAINTEXT", f"host{self.id}", 9092),))
        try:
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
            self.replicas.broker_epoch = node.czxid
        except _SESSION_ERRORS:
            self._register_soon(200.0)

    # --- control requests -----------------------------------------------------------------------------------------

    def obey(self, request: ControlRequest) -> object:
        held = set(self.replicas.disk.directories)
        answer = self.replicas.obey(request)
        self.world.note("broker %d is told %s -> %s", self.id, request.message, answer)
        self.cluster.invariants.on_obeyed(self, request, held)
        return answer

    # --- replication ----------------------------------------------------------------------------------------------

    def _replicate(self) -> None:
        if not self.alive:
            return
        self.world.after(_REPLICATION_MS * (0.7 + 0.6 * self.world.random.random()), self._replicate)
        if self.stopped_until <= self.world.now and self.client.connected and not self._maintaining:
            self._maintaining = True
            self._as_broker(self._maintain)
            self._maintaining = False

    def _maintain(self) -> None:
        for partition, role in list(self.replicas.roles.items()):
            if role.leader == self.id and not role.stale and self.replicas.roles.get(partition) is role:
                isr = self._in_sync(partition, role)
                if isr != role.isr:
                    self._write_isr(partition, role, isr)
        if self._changed_isrs and self.world.random.random() < 0.5:
            named, self._changed_isrs = list(self._changed_isrs), {}
            self.zookeeper.create(IsrChangeZnode.PREFIX,
                                  IsrChangeZnode.encode(named), sequential=True)  # fmt: skip

    def _in_sync(self, partition: TopicPartition, role: Role) -> tuple[int, ...]:
        """Return the ISR as it should be: without those that lag, with those that caught up."""
        isr = list(role.isr)
        for broker in role.replicas:
            if broker == self.id:
                continue
            other = self.cluster.processes.get(broker)
            follows = (
                other is not None
                and other.alive
                and other.stopped_until <= self.world.now
                and (known := other.replicas.roles.get(partition)) is not None
                and known.fetching
                and (known.leader, known.leader_epoch) == (self.id, role.leader_epoch)
            )
            key = (partition, broker)
            if follows:
                self._lagging.pop(key, None)
                if broker not in isr and self.world.random.random() < 0.7:
                    isr.append(broker)
            elif broker in isr and self.world.now - self._lagging.setdefault(key, self.world.now) > _LAG_MS:
                isr.remove(broker)
        return tuple(isr)

    def _write_isr(self, partition: TopicPartition, role: Role, isr: tuple[int, ...]) -> None:
        """Write on the version known; if refused, the node is read again, as the real broker does (KAFKA-2729)."""
        path = PartitionStateZnode.path(partition)
        data = PartitionStateZnode.encode(LeaderAndIsr(self.id, role.leader_epoch, isr, role.controller_epoch))
        try:
            version = self.zookeeper.set(path, data, role.zk_version)
        except NoNodeError:
            role.stale = True
            return
        except VersionConflictError:
            node = self.zookeeper.get(path)
            found = PartitionStateZnode.decode(partition, node.data) if node else None
            if node is None or found is None or (found.leader, found.leader_epoch) != (self.id, role.leader_epoch):
                role.stale = True  # until the next LeaderAndIsr (Z-39)
                return
            isr, version = found.isr, node.version
        role.isr, role.zk_version = isr, version
        self._changed_isrs[partition] = None

    def fail_disk(self, partitions: list[TopicPartition]) -> None:
        """Let a log directory fail; the broker tells the controller (Z-47)."""
        self.replicas.fail_disk(partitions)

        def tell() -> None:
            try:
                self.zookeeper.create(LogDirEventZnode.PREFIX,
                                      LogDirEventZnode.encode(self.id), sequential=True)  # fmt: skip
            except KafkatoolError:
                self.world.after(1000.0, lambda: self._as_broker(tell))

        self._as_broker(tell)
