"""One broker's replication on real logs, with a clock, a scheduler and a ZooKeeper that the test drives."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import PartitionRead, Reader
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.runtime.timer import Timer, monotonic_ms
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from kafkatool.core.zookeeper.session import Node, Op, TransactionError
from kafkatool.core.zookeeper.znodes import PartitionStateZnode
from tests.broker.storage.batch_builders import batch
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

TP = TopicPartition("t", 0)
BROKER_EPOCH = 50


class Clock:
    """Milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0

    def __call__(self) -> float:
        return self.now_ms

    def pass_ms(self, ms: float) -> None:
        self.now_ms += ms


class ManualScheduler(Scheduler):
    """Notes what is scheduled; ``run`` does the one-off jobs."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs: list[Callable[[], object]] = []
        self.periodic: dict[str, tuple[Callable[[], object], float]] = {}

    def schedule(
        self, name: str, fn: Callable[[], object], *, delay_ms: float = 0, period_ms: float | None = None
    ) -> ScheduledTask:
        if period_ms is None:
            self.jobs.append(fn)
        else:
            assert name not in self.periodic, "scheduled twice"
            self.periodic[name] = (fn, period_ms)
        return ScheduledTask(self._timer, name, fn, period_ms)

    def submit(self, fn: Callable[[], object], name: str = "job") -> None:
        self.jobs.append(fn)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class FaultyZooKeeper(MemoryZooKeeper):
    """``fail_next``: raised by the next write; ``lose_replies``: writes happen, replies do not come."""

    def __init__(self) -> None:
        super().__init__(MemoryEnsemble())
        self.fail_next: ZooKeeperError | None = None
        self.lose_replies = False
        self.writes = 0

    def put_state(self, partition: TopicPartition, state: LeaderAndIsr, version: int) -> None:
        self.nodes[PartitionStateZnode.path(partition)] = Node(PartitionStateZnode.encode(state), version, 1, 1, 0, 0)

    def state(self, partition: TopicPartition) -> tuple[LeaderAndIsr, int]:
        node = self.nodes[PartitionStateZnode.path(partition)]
        return PartitionStateZnode.decode(partition, node.data), node.version

    def _check(self) -> None:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error

    def create(self, path: str, data: bytes = b"", **options: Any) -> str:
        self._check()
        return super().create(path, data, **options)

    def commit_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[int | None] | TransactionError]:
        self._check()
        outcomes = super().commit_many(transactions)
        self.writes += sum(not isinstance(outcome, TransactionError) for outcome in outcomes)
        if self.lose_replies:
            raise ZooKeeperError("connection lost")
        return outcomes


class Lines(StateChangeLog):
    """The lines of state-change.log, in memory."""

    def __init__(self) -> None:
        super().__init__(None)
        self.written: list[tuple[str, str]] = []

    def write(self, level: str, messages: Iterable[str]) -> None:
        self.written += [(level, message) for message in messages]


def follower(replica_id: int) -> Reader:
    return Reader(replica_id)


CONSUMER = Reader(-1)


@dataclass
class World:
    """A broker (id 1) whose controller is the test."""

    manager: ReplicaManager
    logs: LogManager
    zookeeper: FaultyZooKeeper
    scheduler: ManualScheduler
    clock: Clock
    cache: MetadataCache
    lines: Lines
    config: BrokerConfig
    leaders: list[TopicPartition] = field(default_factory=list)
    followers: list[TopicPartition] = field(default_factory=list)

    def lead(
        self,
        partition: TopicPartition = TP,
        *,
        epoch: int = 0,
        isr: Sequence[int] = (1,),
        replicas: Sequence[int] | None = None,
        version: int = 0,
    ) -> Partition:
        """Become leader, the state node being there."""
        state = LeaderAndIsr(1, epoch, tuple(isr), 1)
        self.zookeeper.put_state(partition, state, version)
        response = self.leader_and_isr(role(partition, 1, epoch, isr, replicas or isr, version))
        assert [p.error_code for p in response.partitions] == [0], response
        return self.partition(partition)

    def follow(self, partition: TopicPartition = TP, *, leader: int = 2, epoch: int = 0) -> Partition:
        """Become follower, without fetching: as while the broker is stopping."""
        live = LeaderAndIsrLiveLeader(broker_id=leader, host="127.0.0.1", port=1)
        self.manager.control.shutting_down = True
        response = self.leader_and_isr(role(partition, leader, epoch, [leader], [leader, 1], 0), live=[live])
        self.manager.control.shutting_down = False
        assert [p.error_code for p in response.partitions] == [0], response
        return self.partition(partition)

    def leader_and_isr(
        self,
        *states: LeaderAndIsrPartition,
        controller_epoch: int = 1,
        broker_epoch: int = -1,
        live: Sequence[LeaderAndIsrLiveLeader] = (),
    ) -> LeaderAndIsrResponse:
        request = LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            partition_states=list(states),
            live_leaders=list(live),
        )

        def note(leaders: list[Partition], followers: list[Partition]) -> None:
            self.leaders += [p.tp for p in leaders]
            self.followers += [p.tp for p in followers]

        return self.manager.control.become_leader_or_follower(request, note, correlation_id=7)

    def fail_disk(self, *directories: Path) -> None:
        """Have the next write to these log dirs fail, and write."""
        for directory in directories:
            (directory / "replication-offset-checkpoint.tmp").mkdir()
        self.manager.checkpoint_high_watermarks()
        self.scheduler.run()

    def partition(self, partition: TopicPartition = TP) -> Partition:
        found = self.manager.partitions.get(partition)
        assert found is not None
        return found

    def know(self, *partitions: TopicPartition, brokers: Mapping[int, int] | None = None, leader: int = 1) -> None:
        """Metadata: these partitions exist; ``brokers`` id -> port are alive."""
        request = metadata_request(partitions, brokers or {1: 9001}, leader)
        assert self.manager.control.update_metadata(request).error == 0

    def produce(
        self,
        partition: TopicPartition = TP,
        *,
        acks: int = 1,
        count: int = 1,
        records: bytearray | None = None,
        timeout_ms: int = 60_000,
        **options: Any,
    ) -> list[AppendResult]:
        """Append one batch, of ``count`` records or those; the list returned gets the result when it is there."""
        results: list[AppendResult] = []
        self.manager.appends.append(
            {partition: batch(count) if records is None else records},
            acks=acks,
            timeout_ms=timeout_ms,
            on_done=lambda done: results.append(done[partition]),
            **options,
        )
        return results

    def fetch(
        self,
        offset: int,
        reader: Reader = CONSUMER,
        partition: TopicPartition = TP,
        *,
        epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        log_start: int = 0,
    ) -> list[PartitionRead]:
        """Fetch one partition; the list returned gets the result when it is there."""
        results: list[PartitionRead] = []
        self.manager.fetches.fetch(
            [(partition, wanted(partition.partition, offset, epoch=epoch, log_start=log_start))],
            reader,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            on_done=lambda done: results.extend(read for _, read in done),
        )
        return results


def wanted(
    partition: int, offset: int, *, epoch: int = -1, max_bytes: int = 1 << 20, log_start: int = 0
) -> FetchRequestPartition:
    return FetchRequestPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        log_start_offset=log_start,
        partition_max_bytes=max_bytes,
    )


def role(
    partition: TopicPartition,
    leader: int,
    epoch: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    version: int = 0,
    *,
    controller_epoch: int = 1,
    is_new: bool = True,
) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=partition.topic,
        partition=partition.partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=epoch,
        isr=list(isr),
        zk_version=version,
        replicas=list(replicas),
        is_new=is_new,
    )


def metadata_request(
    partitions: Iterable[TopicPartition], brokers: Mapping[int, int], leader: int, *, controller_epoch: int = 1
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=9,
        controller_epoch=controller_epoch,
        partition_states=[
            UpdateMetadataPartition(
                topic=tp.topic,
                partition=tp.partition,
                controller_epoch=1,
                leader=leader,
                leader_epoch=0,
                isr=[1],
                zk_version=0,
                replicas=[1],
            )
            for tp in partitions
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=broker, endpoints=[UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener_name="PLAINTEXT")]
            )
            for broker, port in brokers.items()
        ],
    )


@contextmanager
def world(
    directory: Path,
    *,
    clock: Clock | None = None,
    broker_id: int = 1,
    broker_epoch: Callable[[], int | None] = lambda: BROKER_EPOCH,
    overrides_of: Callable[[str], Mapping[str, str]] = lambda topic: {},
    **properties: str,
) -> Iterator[World]:
    """Give a broker's replication in that directory; properties are given with ``_`` for ``.``."""
    dirs = properties.pop("log_dirs", str(directory / "logs"))
    for path in dirs.split(","):
        Path(path).mkdir(parents=True, exist_ok=True)
    given = {name.replace("_", "."): text for name, text in properties.items()}
    config = BrokerConfig.from_properties({"zookeeper.connect": "x:1", "log.dirs": dirs, **given})
    scheduler, zookeeper, cache, lines = ManualScheduler(), FaultyZooKeeper(), MetadataCache(broker_id), Lines()
    logs = LogManager(config, overrides_of, scheduler)
    logs.load()
    timer = Timer("test-timer")
    time_source = clock or Clock()
    manager = ReplicaManager(
        config,
        broker_id,
        logs,
        cache,
        zookeeper,
        scheduler,
        timer,
        lines,
        broker_epoch,
        clock_ms=monotonic_ms if clock is None else clock,
    )
    logs.on_dir_failure(manager.on_dir_failure)
    manager.startup()
    try:
        yield World(manager, logs, zookeeper, scheduler, time_source, cache, lines, config)
    finally:
        manager.shutdown()
        timer.close()
        logs.shutdown()
