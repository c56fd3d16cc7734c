"""One broker of the simulation: its partitions and logs are the product's, its life and its wires are played."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from kafkatool.broker.administration.record_deletion import DelayedDeletion, delete_on_leader
from kafkatool.broker.handlers import fetch as fetching
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.follow import Follow, FollowStep
from kafkatool.broker.replication.following.leader_endpoint import LookupRefusedError
from kafkatool.broker.replication.leading.appends import Appends
from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.replication.leading.fetches import Fetches
from kafkatool.broker.replication.partition.isr_writer import IsrWriter
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import ALL_IN_SYNC, Partition
from kafkatool.broker.replication.partition.partition_reads import Reader, find_epoch_end, find_offset, read_partition
from kafkatool.broker.replication.partition.replication_quota import RateWindow, ReplicationQuota
from kafkatool.broker.security.principal import ANONYMOUS
from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import KafkatoolError, ZooKeeperError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequest, FetchResponse, FetchResponsePartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponsePartition,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.protocol.records.batches import read_header
from kafkatool.core.zookeeper.session import Node, Op, TransactionError, WatchEvent, ZooKeeper
from tests.broker.replication.world import Clock, metadata_request
from tests.broker.storage.logs import Later, broker_config, log_config
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.faults.torn import tear
from tests.histories.power.disk import Disk
from tests.histories.simulated.between import Asked, Over, serve
from tests.histories.simulated.coordination import Coordination
from tests.histories.simulated.played import PlayedScheduler, PlayedTimer

BROKERS: Final = (1, 2, 3)
KEYS: Final = (0, 1, 2)
OFFSETS: Final = 3
"""The number by which the one partition of ``__consumer_offsets`` goes here; others are keys."""
TRANSACTIONS: Final = 4
"""That of ``__transaction_state``."""
OUTPUT: Final = 5
"""The key that consume-transform-produce writes to, and nobody else."""
READ: Final = (*KEYS, OUTPUT)
PARTITIONS: Final = (*KEYS, OFFSETS, TRANSACTIONS, OUTPUT)
PATIENCE_MS: Final = 600.0
"""So long a client waits; then what became of its request is unknown to it."""
LAG_MS: Final = 200.0
_FETCHED_BYTES: Final = 400  # two or three batches
_LOGS: Final[dict[str, Any]] = {
    "segment_ms": str(1 << 60),  # markers have the wall's time, values the simulation's
    "min_insync_replicas": "2",
    "retention_ms": "-1",
}
_INTERNAL_SEGMENTS: Final = 10  # times as large
_COMPACTED_LOGS: Final = {
    **_LOGS,
    "segment_bytes": "600",  # of which all but the last are cleaned
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
}
_ANSWER_MS: Final = 250.0  # so long a broker waits for another's
_LATEST_ANSWER_MS: Final = 200
_LOOKED_MS: Final = 20.0
_CLEANS_MS: Final = 60.0
_LATE, _LATE_BETWEEN = 0.02, 0.05  # of requests of clients, and of brokers
_LATE_MS: Final = (30, 100, 300, 800)
_SESSIONS: Final = 10  # of fetches, at a time
_FETCH_VERSION: Final = 10  # consumers read from the leader alone
_INTERNAL: Final = {OFFSETS_TOPIC: OFFSETS, TRANSACTION_TOPIC: TRANSACTIONS}


def partition_of(number: int) -> TopicPartition:
    return _TOPIC_PARTITIONS[number]


_TOPIC_PARTITIONS: Final = {
    **{number: TopicPartition("t", number) for number in READ},
    **{number: TopicPartition(topic, 0) for topic, number in _INTERNAL.items()},
}


def number_of(topic: str, partition: int) -> int:
    return _INTERNAL.get(topic, partition)


def held_up_ms(chance: Random, share: float = _LATE) -> int:
    """Draw how long something is on its way: that share is late."""
    return chance.choice(_LATE_MS) if chance.random() < share else 0


class Wires:
    """Who hears whom; ZooKeeper, and the controller, are 0. Each direction may be cut by itself."""

    def __init__(self) -> None:
        self._cut: set[tuple[int, int]] = set()

    def cut(self, speaker: int, listener: int) -> None:
        self._cut.add((speaker, listener))

    def mend_way(self, speaker: int, listener: int) -> None:
        """Mend one direction."""
        self._cut.discard((speaker, listener))

    def mend(self, broker: int | None = None) -> None:
        """Mend all of a broker's, or simply all."""
        self._cut = {pair for pair in self._cut if broker is not None and broker not in pair}

    def carry(self, speaker: int, listener: int) -> bool:
        return (speaker, listener) not in self._cut


class SimulatedZooKeeper(MemoryZooKeeper):
    """A broker's session: requests fail while its wire is cut."""

    def __init__(self, ensemble: MemoryEnsemble, wires: Wires, broker: int) -> None:
        super().__init__(ensemble)
        self._wires, self._broker = wires, broker

    def _check(self) -> None:
        if not self._wires.carry(self._broker, 0):
            raise ZooKeeperError("cut off")

    def commit_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[int | None] | TransactionError]:
        self._check()
        return super().commit_many(transactions)

    def get_many(self, paths: Sequence[str], watch: Callable[[WatchEvent], None] | None = None) -> list[Node | None]:
        self._check()
        return super().get_many(paths, watch)


@dataclass(slots=True, eq=False)
class Produced:
    """A batch that a client has sent, and the broker's answer: no code yet, or one, with the first offset."""

    key: int
    data: bytes
    transactional_id: str | None = None
    code: ErrorCode | None = None
    offset: int = -1
    answered: Callable[[], object] = lambda: None
    """Called once the answer is there."""


class Checkpoint(NamedTuple):
    """What a start goes by, of one partition."""

    recovery_point: int = 0
    high_watermark: int = 0
    log_start: int = 0


@dataclass(eq=False)
class Broker:
    """Its disk outlives its process. A frozen one does nothing, and goes on later with all that it believed."""

    id: int
    directory: Path
    clock: Clock
    wires: Wires
    others: Mapping[int, "Broker"]
    chance: Random
    next_producer_id: Callable[[], int]
    disk: Disk
    segment_bytes: int
    compacted: bool = False
    """So are the keys that clients write to as they like."""
    life: int = 0
    alive: bool = False
    frozen: bool = False
    is_stopping: bool = False
    """It has been told to end as it should, and has not ended yet."""
    lost_power: bool = False
    """Since its logs were last known to lack nothing."""
    lazy: bool = False
    """It brings nothing to the disk unless it is told to."""
    stalled: Sequence[int] = ()
    """Partitions of which followers get no answer, over connections of their own; others are heard."""
    taken: Callable[["Produced"], bool] | None = None
    """Tells of each request to produce whether it is taken on its way, and not served."""
    zookeeper: ZooKeeper = field(init=False)
    partitions: dict[int, Partition] = field(default_factory=dict)
    commands: deque[LeaderAndIsrPartition | UpdateMetadataRequest] = field(default_factory=deque)
    requests: deque[Callable[[], object]] = field(default_factory=deque)
    _follows: dict[int, FollowedPartition] = field(default_factory=dict)
    _answers: dict[int, tuple[FollowedPartition, Any]] = field(default_factory=dict)
    _checkpoints: dict[int, Checkpoint] = field(default_factory=dict)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, *, clean: bool = False) -> None:
        self.life += 1
        self._timer = PlayedTimer(self.clock)
        self._connections: dict[tuple[int, int], Over] = {}  # to other brokers, for each kind of request
        self._scheduler = PlayedScheduler(self._timer, self.chance)
        self.cache = MetadataCache(self.id)
        self._replicate()
        self.coordination = Coordination(
            self.id,
            self._local,
            self._appends,
            self.cache,
            self._timer,
            self._scheduler,
            self.clock,
            self._ask_other,
            self.next_producer_id,
        )
        if not self.directory.exists():
            for key in PARTITIONS:
                (self.directory / f"t-{key}").mkdir(parents=True)
            self.disk.settle(self.directory)
        for key in PARTITIONS:
            self._open(key, clean=clean)
        self._cleans_at = self.clock() + _CLEANS_MS
        self._cleaner = LogCleaner(broker_config(), lambda: [self.partitions[key].log for key in KEYS])
        self._steps = Follow(broker_config(), self, lambda _: None)  # type: ignore[arg-type]
        self.alive, self.frozen, self.lazy, self.stalled, self.taken = True, False, False, (), None
        self._begin_to_serve()

    def _replicate(self) -> None:
        """Make what replicates, without any partition yet."""
        self.cache.update(metadata_request(map(partition_of, PARTITIONS), dict.fromkeys(BROKERS, 1), -1))
        self._local = LocalPartitions(self.cache)
        self._fetch_sessions = FetchSessions(_SESSIONS, self.clock)
        self._delayed = DelayedRequests(self._timer, self._fetch_sessions)
        self._appends = Appends(self._local, self._delayed, acks_all_allowed=lambda: True)
        self.in_sync_writer = IsrWriter(self.zookeeper, self._scheduler, lambda _: None, lambda _: None)
        unlimited = ReplicationQuota(self.id, lambda _: (), RateWindow(1, 1000, self.clock))
        self._fetches = Fetches(self._local, self._delayed, self.in_sync_writer, unlimited)

    def _begin_to_serve(self) -> None:
        """Have the partitions here at once: what their roles are is told later."""
        for partition in self.partitions.values():
            self._local.add(partition)

    def _open(self, key: int, *, clean: bool) -> None:
        checkpoint = self._checkpoints.get(key, Checkpoint())
        log = open_log(
            self.directory / f"t-{key}",
            partition_of(key),
            self._config_of(key),
            replace(Later().services(), on_recovery_point_lowered=partial(self._lower_recovery_point, key)),
            clean=clean,
            recovery_point=checkpoint.recovery_point,
            log_start_offset=checkpoint.log_start,
            may_lack_data=self.lost_power,
        )
        self.partitions[key] = Partition(
            partition_of(key),
            self.id,
            log,
            lag_time_max_ms=LAG_MS,
            clock_ms=self.clock,
            high_watermark=checkpoint.high_watermark,
        )

    def begin_anew(self, key: int) -> None:
        """Delete its replica and make an empty one, as one that is moved away and comes back.

        What it was told of the former one before that, it had obeyed by then: orders come one after the other.
        """
        former = partition_of(key)
        self.commands = deque(
            told
            for told in self.commands
            if isinstance(told, UpdateMetadataRequest) or (told.topic, told.partition) != former
        )
        self._local.remove(former)
        self._erase(key)
        self._local.add(self.partitions[key])

    def _erase(self, key: int) -> None:
        """Make an empty log in place of one, of which nothing is known any more."""
        self.partitions[key].log.abandon()
        for file in (self.directory / f"t-{key}").iterdir():
            file.unlink()
        self.disk.settle(self.directory / f"t-{key}")
        for held in (self._follows, self._answers, self._checkpoints):
            held.pop(key, None)
        self._open(key, clean=True)

    def _config_of(self, key: int) -> LogConfig:
        if self.compacted and key in KEYS:
            return log_config(**_COMPACTED_LOGS)
        segment_bytes = self.segment_bytes if key in READ else self.segment_bytes * _INTERNAL_SEGMENTS
        return log_config(**_LOGS, segment_bytes=str(segment_bytes))

    def _lower_recovery_point(self, key: int) -> None:
        known = self._checkpoints.get(key, Checkpoint())
        self._checkpoints[key] = known._replace(recovery_point=self.partitions[key].log.state.recovery_point)

    def _checkpoint(self, key: int) -> None:
        partition = self.partitions[key]
        state = partition.log.state
        self._checkpoints[key] = Checkpoint(
            state.recovery_point, partition.high_watermark.offset, state.log_start_offset
        )

    def kill(self) -> None:
        for partition in self.partitions.values():
            partition.log.abandon()
        self._end()

    def stop(self) -> None:
        """End as it should: logs are on the disk and closed, high watermarks known."""
        for key, partition in self.partitions.items():
            partition.log.flush()
            partition.log.close()
            self._checkpoint(key)
        self._end()

    def _end(self) -> None:
        self.alive = self.is_stopping = False
        for held in (self.partitions, self._follows, self._answers):
            held.clear()
        self.commands.clear()
        self.requests.clear()

    def tear(self, manner: str, chance: Random) -> None:
        """Leave the ends of its logs as a crash of the machine may."""
        tear(self.directory, manner, chance)
        self.disk.settle(self.directory)

    def garble(self, key: int, size_bytes: int, chance: Random) -> None:
        """Leave garbage in place of the last bytes of a log."""
        newest = max((self.directory / f"t-{key}").glob("*.log"))
        content = newest.read_bytes()
        newest.write_bytes(content[:-size_bytes] + chance.randbytes(size_bytes))
        self.disk.settle(self.directory)

    def freeze(self, ms: float) -> None:
        """Let it stand still until it is thawed, which is to be after that time."""
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False

    def lose_power(self, chance: Random, *, has_flushed: bool = False) -> None:
        """Leave of its files what a disk may hold after a power cut.

        ``has_flushed``: what was acknowledged of its logs is on the disk, or on those of others who are as much in sync.
        """
        self.disk.cut_power(chance, self.directory)
        self.disk.settle(self.directory)
        self.lost_power = True

    def flush(self) -> None:
        """Bring all of its logs to the disk, and checkpoint."""
        for key, partition in self.partitions.items():
            partition.log.flush()
            self._checkpoint(key)

    def hears(self, other: int) -> bool:
        """Tell whether a question to that broker comes back answered."""
        peer = self.others[other]
        return peer.alive and not peer.frozen and self.wires.carry(self.id, other)

    @property
    def replicas_ms(self) -> float:
        """Return the time by its replicas' clock."""
        return self.clock()

    def send(self, request: Callable[[], object], delay_ms: float = 0) -> None:
        """Have a request served, once it comes to that; one that is held up on its way comes after later ones."""
        if delay_ms:
            self._timer.add(delay_ms, lambda: self.requests.append(request))
        else:
            self.requests.append(request)

    def fetches_from(self, leader: int, key: int) -> bool:
        """Tell whether it follows that broker, and knows where their logs part."""
        followed = self._follows.get(key)
        return followed is not None and followed.partition.leader_id == leader and not followed.truncating

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self, chance: Random) -> None:
        """Do one of the things that a broker's threads do side by side."""
        self._timer.run_due()
        match chance.randrange(12):
            case 0 | 1:
                self._obey()
            case 2 | 3 | 4:
                if self._follows:
                    self._ask(chance.choice(list(self._follows)))
            case 5 | 6 | 7:
                if self._answers:
                    self._hear(chance.choice(list(self._answers)))
            case 8 | 9:
                if self.requests:
                    self.requests.popleft()()
            case 10:
                self._acknowledge()
            case 11:
                self._tend(chance)

    def _obey(self) -> None:
        if not self.commands or not self.wires.carry(0, self.id):
            return
        told = self.commands.popleft()
        if isinstance(told, UpdateMetadataRequest):
            self.cache.update(told)
            return
        number = number_of(told.topic, told.partition)
        partition = self.partitions[number]
        if told.leader_epoch <= partition.leader_epoch:
            return
        if told.leader == self.id:
            self._follows.pop(number, None)
            partition.make_leader(told)
            self.coordination.on_leadership_change([partition], [])
        elif partition.make_follower(told):
            self._follows.pop(number, None)
            if partition.leader_id is not None:
                followed = self._follows[number] = FollowedPartition(partition, told.leader_epoch)
                followed.max_bytes = _FETCHED_BYTES
            self.coordination.on_leadership_change([], [partition])

    def _ask(self, key: int) -> None:
        """Ask the leader for records, or where the logs part. What it notes, it notes though its answer may be lost."""
        followed = self._follows.get(key)
        if followed is None or key in self._answers:
            return
        own = followed.partition
        leader = self.others.get(own.leader_id or 0)
        if leader is None or not self.hears(leader.id) or key in leader.stalled:
            return
        there = leader.partitions[key]
        if not followed.truncating:
            wanted = followed.wanted()
            read = read_partition(there, wanted, Reader(self.id), _FETCHED_BYTES, min_one_batch=True)
            if read.start is not None:
                noted = there.record_fetch(
                    *(self.id, read.start, read.leader_end, wanted.log_start_offset), read_in=read.leader_epoch
                )
                if noted is not None and noted[1] is not None:
                    leader.in_sync_writer.submit(noted[1])
            records = read.records.read() if isinstance(read.records, FileRegion) else read.records
            self._answers[key] = (
                followed,
                FetchResponsePartition(
                    partition=key,
                    error_code=read.error,
                    high_watermark=read.high_watermark,
                    log_start_offset=read.log_start_offset,
                    records=memoryview(records),
                ),
            )
        elif (epoch := own.log.leader_epochs.latest) is None:
            self._steps.truncate_to_high_watermark(followed)
        else:
            question = OffsetForLeaderEpochRequestPartition(
                partition=key, current_leader_epoch=followed.leader_epoch, leader_epoch=epoch
            )
            found = find_epoch_end(there, question)
            self._answers[key] = (
                followed,
                OffsetForLeaderEpochResponsePartition(
                    error_code=found.error, partition=key, leader_epoch=found.leader_epoch, end_offset=found.offset
                ),
            )

    def _hear(self, key: int) -> None:
        """Take the leader's answer, which may be of a former epoch, or be lost."""
        held = self._answers.pop(key, None)
        if held is None or self._follows.get(key) is not held[0]:
            return
        followed, answer = held
        if not self.wires.carry(followed.partition.leader_id or 0, self.id):
            return
        step = self._steps.truncate if followed.truncating else self._steps.take
        try:
            outcome = step(followed, answer)
        except KafkatoolError:
            outcome = FollowStep.FAILED  # its fetcher gives the partition up
        if outcome in (FollowStep.DROP, FollowStep.FAILED):
            del self._follows[key]

    def log_edge(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """Answer for the leader's endpoint: the offset of an end of its log. Raises LookupRefusedError."""
        number = number_of(*partition)
        leader = self.partitions[number].leader_id or 0
        wanted = ListOffsetsRequestPartition(
            partition=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        if leader in self.others and self.hears(leader):
            found = find_offset(self.others[leader].partitions[number], wanted, Reader(self.id), 5)
            if not found.error:
                return found.offset
        raise LookupRefusedError(f"{partition}: no answer")

    def produce(self, sent: Produced) -> None:
        """Serve a produce request, unless somebody has taken it."""
        if self.taken is None or not self.taken(sent):
            self.serve(sent)

    def serve(self, sent: Produced) -> None:
        """Serve a produce request, whose answer comes when its batch is replicated."""
        tp = partition_of(sent.key)
        entries = {tp: bytearray(sent.data)}

        def done(results: AppendResults) -> None:
            sent.code, sent.offset = results[tp].error, results[tp].base_offset
            sent.answered()

        if sent.transactional_id is None:
            self._appends.append(entries, acks=ALL_IN_SYNC, timeout_ms=PATIENCE_MS, on_done=done)
        else:
            header = read_header(sent.data)
            assert header is not None  # clients send whole batches
            self.coordination.verified_appends.append(
                entries,
                {tp: header},
                sent.transactional_id,
                acks=ALL_IN_SYNC,
                timeout_ms=PATIENCE_MS,
                on_done=done,
            )

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """Serve a consumer's fetch at once, in its session if it has one, by the product's handler."""
        manager = SimpleNamespace(fetch_sessions=self._fetch_sessions, fetches=self._fetches, partitions=self._local)
        answers: list[FetchResponse] = []
        call = SimpleNamespace(
            context=SimpleNamespace(cluster_id=None, authorizer=None, replica_manager=manager),
            header=SimpleNamespace(api_version=_FETCH_VERSION),
            principal=ANONYMOUS,
            patience_ms=lambda _: 0,
            respond=answers.append,
        )
        fetching.handle(request, call)  # type: ignore[arg-type]
        return answers[0]

    def delete_records(self, key: int, offset: int, told: Callable[[ErrorCode], None]) -> None:
        """Serve a request to delete records, whose answer comes when all live replicas have dropped them."""
        tp = partition_of(key)
        deletions = {tp: delete_on_leader(tp, offset, self._local.leader)}
        waiting = DelayedDeletion(
            PATIENCE_MS, deletions, self._local.leader, self.cache, lambda: told(deletions[tp].error)
        )
        self._delayed.deletions.watch(waiting, waiting.subjects)

    def _ask_other(self, number: int, asked: Asked, told: Callable[[Any], None]) -> None:
        """Ask another broker. None is told where it has died, or says nothing in time: it may do what was asked later."""
        other, life = self.others[number], self.others[number].life
        timer, is_told = self._timer, False
        way, connections = (number, asked.api.key), self._connections
        over = connections.setdefault(way, Over(f"broker-{self.id}", other.replicas_ms))

        def tell(answer: Any) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                if answer is None and connections.get(way) is over:
                    del connections[way]
                told(answer)

        def look() -> None:
            if not other.alive or other.life != life:
                tell(None)
            elif not is_told:
                timer.add(_LOOKED_MS, look)

        def answered(answer: Any) -> None:
            if self.wires.carry(number, self.id):
                timer.add(min(held_up_ms(self.chance, _LATE_BETWEEN), _LATEST_ANSWER_MS), lambda: tell(answer))

        timer.add(_ANSWER_MS, lambda: tell(None))
        timer.add(1, look)
        if other.alive and self.wires.carry(self.id, number):
            late_ms = held_up_ms(self.chance, _LATE_BETWEEN)  # or longer than it is waited for
            other.send(lambda: serve(asked, over, other.coordination, answered), late_ms)

    def _acknowledge(self) -> None:
        for number in PARTITIONS:
            self._delayed.check(partition_of(number))

    def _tend(self, chance: Random) -> None:
        """Do what comes round: look for followers that lag, write in-sync sets, checkpoint, compact."""
        match chance.randrange(8):
            case 0 | 1:
                self._shrink()
            case 2 | 3 | 4 | 5 | 6:
                self._scheduler.run_next()
            case 7:
                for key, partition in self.partitions.items():
                    if chance.random() < 0.3 and not self.lazy:
                        partition.log.flush()
                    self._checkpoint(key)
                self.lost_power &= any(partition.log.gap_at is not None for partition in self.partitions.values())
                if self.compacted and self.clock() >= self._cleans_at:
                    self._cleans_at = self.clock() + _CLEANS_MS
                    while self._cleaner.clean_dirtiest():
                        pass

    def _shrink(self) -> None:
        for partition in self.partitions.values():
            if change := partition.propose_shrink():
                self.in_sync_writer.submit(change)
