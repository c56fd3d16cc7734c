"""Brokers and a network in memory around real controller code: requests are recorded, delivered one by one, answered.

Brokers behave: they refuse stale epochs, remember roles, and a leader takes followers that know of it into the ISR.
Nothing happens but in ``run``, and in one order, so every test is repeatable.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.telling.channels import Answer, ChannelFactory, ControlRequest, Message
from kafkatool.broker.controller.term import Surroundings
from kafkatool.broker.controller.worker import ControllerWorker
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import VersionConflictError
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartition,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.core.zookeeper.ensemble import Crash
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

_MAX_STEPS = 100_000


class FakeTimer(Timer):
    """Time passes when told."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.now_ms = 0.0
        self.tasks: list[tuple[float, TimerTask]] = []

    def add(self, delay_ms: float, callback: Callable[[], None]) -> TimerTask:
        task = TimerTask(self, callback)
        self.tasks.append((self.now_ms + delay_ms, task))
        return task

    def advance(self, ms: float) -> None:
        self.now_ms += ms
        due = [task for at, task in self.tasks if at <= self.now_ms]
        self.tasks = [(at, task) for at, task in self.tasks if at > self.now_ms]
        for task in due:
            if callback := task.take():
                callback()


@dataclass
class FakeBroker:
    """What a broker remembers of what it was told."""

    id: int
    session: MemoryZooKeeper
    epoch: int = 0
    roles: dict[TopicPartition, LeaderAndIsrPartition] = field(default_factory=dict)
    deleted: list[TopicPartition] = field(default_factory=list)
    metadata: dict[TopicPartition, int] = field(default_factory=dict)  # leader by UpdateMetadata
    stop_error: int = 0  # answered to StopReplica with delete=true
    storage_errors: set[TopicPartition] = field(default_factory=set)


@dataclass
class FakeChannel:
    """Keeps the order; a closed one delivers nothing."""

    cluster: "FakeCluster"
    broker: BrokerInfo
    owner: MemoryZooKeeper
    closed: bool = False

    def send(self, request: ControlRequest) -> None:
        if not self.owner.crashed:
            self.cluster.network.append((self, request))

    def close(self) -> None:
        self.closed = True


class KeptLines(StateChangeLog):
    """A state-change.log that keeps its lines: (level, message)."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lines: list[tuple[str, str]] = []

    def write(self, level: str, messages: Iterable[str]) -> None:
        self.lines += [(level, message) for message in messages]

    def told(self, *beginnings: str) -> list[str]:
        """Return the lines, without their actor, that begin with one of those."""
        messages = (message.partition("] ")[2] for _, message in self.lines)
        return [message for message in messages if message.startswith(beginnings)]


class FakeCluster:
    """``FakeCluster(1, 2, 3)``: brokers registered and electing in this order. ``sent`` holds (receiver, message)."""

    def __init__(self, *broker_ids: int, properties: Mapping[str, str] | None = None) -> None:
        self.ensemble = MemoryEnsemble()
        self.zk = MemoryZooKeeper(self.ensemble)  # the observer's
        self.properties = dict(properties or {})
        self.network: deque[tuple[FakeChannel, ControlRequest]] = deque()
        self.sent: list[tuple[int, Message]] = []
        self.brokers: dict[int, FakeBroker] = {}
        self.workers: dict[int, ControllerWorker] = {}
        self.timer = FakeTimer()
        self.now_s = 0.0
        self.catching_up = True
        self.slow_controller = False  # it handles an event only when nothing else happens
        self.log = KeptLines()
        for broker_id in broker_ids:
            self.start(broker_id)
        self.run()

    # --- brokers ---

    def start(self, broker_id: int, *, slow_election: bool = False) -> None:
        """Start a broker: controller first, then registration (CTL-1); a slow controller wins after registration."""
        session = MemoryZooKeeper(self.ensemble)
        self.brokers[broker_id] = FakeBroker(broker_id, session)
        config = BrokerConfig.from_properties({"zookeeper.connect": "x:1", **self.properties})

        def open_channel(actor: str) -> ChannelFactory:
            return lambda info: FakeChannel(self, info, session)

        worker = ControllerWorker(
            Surroundings(
                session, config, broker_id, EventQueue(), self.timer, self.log, open_channel, clock=lambda: self.now_s
            )
        )
        session.add_session_listener(worker.on_session)
        self.workers[broker_id] = worker
        worker.queue.put(Event("startup", worker.elect))
        if not slow_election:
            self.work_once(broker_id)
        self.register(broker_id)

    def register(self, broker_id: int) -> None:
        if broker_id in self.brokers:
            broker = self.brokers[broker_id]
            info = BrokerInfo(broker_id, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),))
            broker.session.create(BrokerZnode.path(broker_id), BrokerZnode.encode(info, 0), ephemeral=True)
            node = broker.session.get(BrokerZnode.path(broker_id))
            assert node is not None
            broker.epoch = node.czxid

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            worker = self.workers.pop(broker_id)
            worker.stopping = True
            self.brokers.pop(broker_id).session.crash()

    def restart(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.start(broker_id)
        self.run()

    @property
    def controller(self) -> ControllerWorker:
        (found,) = [w for w in self.workers.values() if w.term is not None]
        return found

    @property
    def controller_id(self) -> int:
        node = self.zk.get(ControllerZnode.PATH)
        assert node is not None
        return ControllerZnode.decode(node.data)

    @property
    def controller_epoch(self) -> int:
        node = self.zk.get(ControllerEpochZnode.PATH)
        assert node is not None
        return ControllerEpochZnode.decode(node.data)

    # --- running ---

    def work(self, broker_id: int) -> None:
        """Handle that controller's events only; nothing they send arrives yet."""
        while self.work_once(broker_id):
            pass

    def work_once(self, broker_id: int) -> bool:
        worker = self.workers.get(broker_id)
        event = worker.queue.take(wait=False) if worker else None
        if worker is None or event is None:
            return False
        try:
            worker.process(event)
        except Crash:
            self.workers.pop(broker_id, None)
            self.brokers.pop(broker_id, None)
            worker.stopping = True
        return True

    def run(self) -> None:
        """Go on until nothing is left to do."""
        for _ in range(_MAX_STEPS):
            if self.slow_controller and (self._deliver() or self._catch_up()):
                continue
            if any(self.work_once(b) for b in list(self.workers)) or self._deliver() or self._catch_up():
                continue
            return
        raise AssertionError("the cluster does not come to rest")

    def _deliver(self) -> bool:
        if not self.network:
            return False
        channel, request = self.network.popleft()
        broker = self.brokers.get(channel.broker.id)
        if not channel.closed and broker is not None and broker.epoch == channel.broker.epoch:
            self.sent.append((broker.id, request.message))
            answer = self.answer(broker, request.message)
            if request.on_answer is not None and not channel.owner.crashed:
                request.on_answer(answer)
        return True

    def answer(self, broker: FakeBroker, message: Message) -> Answer:
        match message:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(
                    partitions=[
                        LeaderAndIsrResponsePartition(
                            topic=s.topic, partition=s.partition, error_code=self._take_role(broker, s)
                        )
                        for s in message.partition_states
                    ]
                )
            case StopReplicaRequest():
                for partition in message.partitions:
                    broker.roles.pop(partition, None)
                    if message.delete_partitions and not broker.stop_error:
                        broker.deleted.append(partition)
                error = broker.stop_error if message.delete_partitions else 0
                return StopReplicaResponse(
                    partitions=[
                        StopReplicaResponsePartition(topic=t, partition=p, error_code=error)
                        for t, p in message.partitions
                    ]
                )
            case UpdateMetadataRequest():
                for metadata in message.partition_states:
                    key = TopicPartition(metadata.topic, metadata.partition)
                    if metadata.leader == -2:
                        broker.metadata.pop(key, None)
                    else:
                        broker.metadata[key] = metadata.leader
                return UpdateMetadataResponse()

    def _take_role(self, broker: FakeBroker, state: LeaderAndIsrPartition) -> int:
        partition = TopicPartition(state.topic, state.partition)
        if partition in broker.storage_errors:
            return 56
        known = broker.roles.get(partition)
        if known is not None and known.leader_epoch >= state.leader_epoch:
            return 11
        if broker.id not in state.replicas:
            return 3
        broker.roles[partition] = state
        return 0

    def _catch_up(self) -> bool:
        """Let one leader take one follower that fetches from it into the ISR."""
        if not self.catching_up:
            return False
        for broker in list(self.brokers.values()):
            for partition, role in broker.roles.items():
                if role.leader == broker.id and self._expand(broker, partition, role):
                    return True
        return False

    def _expand(self, leader: FakeBroker, partition: TopicPartition, role: LeaderAndIsrPartition) -> bool:
        path = PartitionStateZnode.path(partition)
        node = leader.session.get(path)
        if node is None:
            return False
        state = PartitionStateZnode.decode(partition, node.data)
        if state.leader != leader.id or state.leader_epoch != role.leader_epoch:
            return False
        for follower in role.replicas:
            other = self.brokers.get(follower)
            following = other.roles.get(partition) if other else None
            if follower not in state.isr and following is not None and following.leader == leader.id:
                new = LeaderAndIsr(state.leader, state.leader_epoch, (*state.isr, follower), state.controller_epoch)
                try:
                    leader.session.set(path, PartitionStateZnode.encode(new), node.version)
                except VersionConflictError:
                    return False
                return True
        return False

    # --- what users do, and what they see ---

    def create_topic(self, topic: str, assignment: Mapping[int, Sequence[int]], **configs: str) -> None:
        overrides = {k.replace("_", "."): v for k, v in configs.items()}
        self.zk.create(ConfigZnode.path("topics", topic), ConfigZnode.encode(overrides))
        self.zk.create(TopicZnode.path(topic), TopicZnode({p: tuple(r) for p, r in assignment.items()}).encode())
        self.run()

    def delete_topic(self, topic: str) -> None:
        self.zk.create(DeleteTopicsZnode.topic_path(topic))
        self.run()

    def reassign(self, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
        data = ReassignmentZnode.encode({p: tuple(r) for p, r in plan.items()})
        self.zk.create(ReassignmentZnode.PATH, data, make_parents=True)
        self.run()

    def elect_preferred(self, *partitions: TopicPartition) -> None:
        data = PreferredElectionZnode.encode(partitions)
        self.zk.create(PreferredElectionZnode.PATH, data, make_parents=True)
        self.run()

    def is_watched(self, path: str) -> bool:
        """Tell whether any session watches the node's data or existence, or its children."""
        return bool(self.ensemble.watching(path))

    def state(self, topic: str, number: int = 0) -> LeaderAndIsr:
        partition = TopicPartition(topic, number)
        node = self.zk.get(PartitionStateZnode.path(partition))
        assert node is not None, f"{partition} has no state"
        return PartitionStateZnode.decode(partition, node.data)

    def assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        node = self.zk.get(TopicZnode.path(topic))
        assert node is not None
        return dict(TopicZnode.decode(topic, node.data).assignment)

    def leaders(self, topic: str) -> list[int | None]:
        return [self.state(topic, n).leader for n in self.assignment(topic)]

    def exists(self, path: str) -> bool:
        return self.zk.get(path) is not None

    def told(self, kind: type[Message]) -> Iterator[tuple[int, Message]]:
        return ((b, m) for b, m in self.sent if isinstance(m, kind))

    def leader_and_isr(self) -> list[tuple[int, LeaderAndIsrPartition]]:
        """Return (receiver, state) of every LeaderAndIsr entry sent since ``sent`` was cleared."""
        return [(b, s) for b, m in self.sent if isinstance(m, LeaderAndIsrRequest) for s in m.partition_states]

    def stops(self) -> list[tuple[int, bool, TopicPartition]]:
        """Return (receiver, delete, partition) of every StopReplica entry."""
        return [
            (b, m.delete_partitions, p) for b, m in self.sent if isinstance(m, StopReplicaRequest) for p in m.partitions
        ]

    def metadata(self) -> list[tuple[int, UpdateMetadataRequest]]:
        """Return (receiver, request) of every UpdateMetadata."""
        return [(b, m) for b, m in self.sent if isinstance(m, UpdateMetadataRequest)]
