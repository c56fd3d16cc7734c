"""The replicas of this broker: what handlers and coordinators call, and the tasks that run beside (BRK-77 to 80).

Everything of substance is in the parts it puts together: control requests, appends, fetches, fetchers.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.control.commands import ControlRequests, MetadataUpdate, OnLeadershipChange
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager
from kafkatool.broker.replication.leading.appends import Appends, WritableBuffer
from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults, FetchSession
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.replication.leading.fetches import Fetches
from kafkatool.broker.replication.leading.parked_fetches import ParkedFetches
from kafkatool.broker.replication.partition.isr_propagation import PERIOD_MS as ISR_PROPAGATION_PERIOD_MS
from kafkatool.broker.replication.partition.isr_propagation import IsrPropagation
from kafkatool.broker.replication.partition.isr_writer import IsrWriter
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import (
    DEBUGGER,
    FoundOffset,
    Reader,
    find_epoch_end,
    find_offset,
)
from kafkatool.broker.replication.partition.partitions import HostedPartitions
from kafkatool.broker.replication.partition.replication_quota import NO_RATE, RateWindow, ReplicationQuota
from kafkatool.broker.replication.partition.topic_counters import TopicCounts
from kafkatool.broker.runtime.purgatory import DelayedOperations
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.runtime.yielding import taking_turns
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequestPartition
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import SessionState, ZooKeeper
from kafkatool.core.zookeeper.znodes import LogDirEventZnode

log = logging.getLogger(__name__)

_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"


def monotonic_ms() -> float:
    """The clock of replication: never set back."""
    return time.monotonic() * 1000


class ReplicaManager:
    """One per broker. Thread-safe."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        zookeeper: ZooKeeper,
        scheduler: Scheduler,
        timer: Timer,
        state_change_log: StateChangeLog,
        broker_epoch: Callable[[], int | None],
        overrides_of: Callable[[str], Mapping[str, str]],
        *,
        thread_prefix: str = "",
        clock_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """``overrides_of(topic)``: the topic's own configs. ``thread_prefix`` begins the fetchers' names (BRK-65)."""
        self._config = config
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._zookeeper = zookeeper
        self._scheduler = scheduler
        self._overrides_of = overrides_of
        self._clock_ms = clock_ms
        self._checkpointed: dict[TopicPartition, int] = {}
        self._tasks: list[ScheduledTask] = []
        self._session_confirmed = True
        self._on_offline: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        self._hosted = HostedPartitions(metadata_cache)
        self._produces = DelayedOperations(timer)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock_ms)
        self._fetches = ParkedFetches(timer, self.fetch_sessions)
        window_ms = config.replication_quota_window_size_seconds * 1000
        windows = [RateWindow(config.replication_quota_window_num, window_ms, clock_ms) for _ in range(2)]
        self.leader_quota = ReplicationQuota(broker_id, lambda c: c.leader_replication_throttled_replicas, windows[0])
        self.follower_quota = ReplicationQuota(
            broker_id, lambda c: c.follower_replication_throttled_replicas, windows[1]
        )
        self._propagation = IsrPropagation(zookeeper, clock_ms)
        self.isr_writer = IsrWriter(zookeeper, scheduler, on_written=self._propagation.record, wake=self._wake)
        self.fetchers = FetcherManager(
            config, broker_id, self.follower_quota, wake=self._fetches.check, thread_prefix=thread_prefix
        )
        self._control = ControlRequests(
            broker_id,
            config.inter_broker_listener_name,
            self._hosted,
            log_manager,
            metadata_cache,
            self.fetchers,
            (self._produces, self._fetches),
            state_change_log,
            broker_epoch=broker_epoch,
            make_partition=self._make_partition,
            on_first_leader_and_isr=self._start_checkpoints,
        )
        self._appends = Appends(
            self._hosted, self._produces, self._fetches, acks_all_allowed=lambda: self._session_confirmed
        )
        self._reads = Fetches(self._hosted, self._fetches, self._produces, self.isr_writer, self.leader_quota)

    # --- life -----------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Read the high watermarks and begin the tasks. The logs are loaded."""
        config = self._config
        self._checkpointed = self._log_manager.read_high_watermarks()
        if config.kt_fence_on_zk_session_loss:
            self._zookeeper.add_session_listener(self._on_session)
        for name, task, period_ms in (
            ("isr-expiration", self.shrink_isrs, config.replica_lag_time_max_ms / 2),
            ("isr-change-propagation", self._propagation.run, ISR_PROPAGATION_PERIOD_MS),
        ):
            self._tasks.append(self._scheduler.schedule(name, task, delay_ms=period_ms, period_ms=period_ms))

    def shutdown(self) -> None:
        """Stop tasks and fetchers, expire what is parked, checkpoint the high watermarks (BRK-127)."""
        self._control.shutting_down = True
        for task in self._tasks:
            task.cancel()
        self.fetchers.shutdown()
        self._produces.expire_all()
        self._fetches.expire_all()
        self.checkpoint_high_watermarks()

    # --- partitions -----------------------------------------------------------------------------------------------

    def partition(self, partition: TopicPartition) -> Partition | None:
        """The partition, if it has a replica here that is online."""
        return self._hosted.get(partition)

    def partitions(self) -> list[Partition]:
        """All that are here and online."""
        return self._hosted.all()

    def topic_counts(self) -> dict[str, TopicCounts]:
        """What clients brought and took, by topic with partitions here (BRK-157)."""
        return self._hosted.counters.all()

    def leader_partition_or_error(self, partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if it is led here, or the code to answer."""
        return self._hosted.leader(partition)

    def log_start_raised(self, partition: TopicPartition) -> None:
        """Have it told with the next answer of every fetch session, not only when its turn comes."""
        self._fetches.check(partition)

    def _make_partition(self, topic_partition: TopicPartition, is_new: bool) -> Partition:
        log_of_it = self._log_manager.get_or_create(topic_partition, is_new)
        return Partition(
            topic_partition,
            self._broker_id,
            log_of_it,
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            clock_ms=self._clock_ms,
            high_watermark=self._checkpointed.pop(topic_partition, 0),
        )

    def _wake(self, partition: TopicPartition) -> None:
        self._produces.check(partition)
        self._fetches.check(partition)

    # --- control requests -----------------------------------------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, on_leadership_change: OnLeadershipChange, *, correlation_id: int = 0
    ) -> LeaderAndIsrResponse:
        """LeaderAndIsr; ``on_leadership_change`` runs before the next control request begins (BRK-32)."""
        return self._control.become_leader_or_follower(request, on_leadership_change, correlation_id)

    def stop_replicas(
        self, request: StopReplicaRequest, on_deleted: Callable[[list[TopicPartition]], None] = lambda _: None
    ) -> StopReplicaResponse:
        """StopReplica; ``on_deleted`` hears the partitions that were to be deleted."""
        if request.delete_partitions:
            for partition in request.partitions:
                self._checkpointed.pop(TopicPartition(*partition), None)  # made anew, it begins at 0
        return self._control.stop_replicas(request, on_deleted)

    def update_metadata(
        self,
        request: UpdateMetadataRequest,
        on_leadership_change: OnLeadershipChange = lambda *_: None,
        *,
        correlation_id: int = 0,
    ) -> MetadataUpdate:
        """UpdateMetadata; ``on_leadership_change`` hears of partitions that could not follow before (BRK-30)."""
        return self._control.update_metadata(request, on_leadership_change, correlation_id)

    # --- data -----------------------------------------------------------------------------------------------------

    def append_records(
        self,
        entries: Mapping[TopicPartition, WritableBuffer],
        *,
        acks: int,
        timeout_ms: float,
        internal: bool = False,
        allow_internal_topics: bool = False,
        on_done: Callable[[AppendResults], None],
    ) -> None:
        """Append one batch to each partition; ``on_done`` is called once, now or when replicated (BRK-82 to 90).

        ``internal``: by this broker's coordinators. Others need ``allow_internal_topics`` to write to theirs.
        """
        self._appends.append(
            entries,
            acks=acks,
            timeout_ms=timeout_ms,
            internal=internal,
            allow_internal_topics=allow_internal_topics,
            on_done=on_done,
        )

    def fetch(
        self,
        entries: FetchEntries,
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        on_done: Callable[[FetchResults], None],
        session: FetchSession | None = None,
    ) -> None:
        """Read; ``on_done`` is called once, now or when there is something (BRK-92 to 102).

        ``session``: the one in which ``entries`` are what has to be looked at.
        """
        self._reads.fetch(
            entries,
            reader,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            on_done=on_done,
            session=session,
        )

    def find_offset(
        self, partition: TopicPartition, wanted: ListOffsetsRequestPartition, reader: Reader, version: int
    ) -> FoundOffset:
        """ListOffsets of one partition (BRK-107, 108)."""
        missing = ErrorCode.REPLICA_NOT_AVAILABLE if reader.replica_id == DEBUGGER else None
        found = self._hosted.find(partition, missing=missing)
        return FoundOffset(found) if isinstance(found, ErrorCode) else find_offset(found, wanted, reader, version)

    def find_epoch_end(self, partition: TopicPartition, wanted: OffsetForLeaderEpochRequestPartition) -> FoundOffset:
        """OffsetForLeaderEpoch of one partition (BRK-61, 62)."""
        found = self._hosted.find(partition)
        return FoundOffset(found) if isinstance(found, ErrorCode) else find_epoch_end(found, wanted)

    # --- tasks ----------------------------------------------------------------------------------------------------

    def shrink_isrs(self) -> None:
        """Drop followers that have not been caught up for too long (BRK-51, 77)."""
        partitions = taking_turns(self._hosted.all())
        changes = [change for partition in partitions if (change := partition.stragglers_out()) is not None]
        self.isr_writer.write(changes)

    def _start_checkpoints(self) -> None:
        period_ms = self._config.replica_high_watermark_checkpoint_interval_ms
        self._tasks.append(
            self._scheduler.schedule(
                "highwatermark-checkpoint", self.checkpoint_high_watermarks, delay_ms=period_ms, period_ms=period_ms
            )
        )

    def checkpoint_high_watermarks(self) -> None:
        """Write them to each log dir; those of partitions not yet heard of stay as they were read (BRK-80)."""
        offsets = dict(self._checkpointed)
        offsets.update((partition.tp, partition.high_watermark.offset) for partition in self._hosted.all())
        self._log_manager.write_high_watermarks(offsets)

    # --- what happens around --------------------------------------------------------------------------------------

    def on_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's configs changed."""
        self._log_manager.update_topic_config(topic, overrides)

    def on_broker_config(self, overrides: Mapping[str, str]) -> None:
        """This broker's dynamic configs changed: the replication throttle's rates (BRK-76)."""
        self.leader_quota.set_rate(int(overrides.get(_LEADER_RATE, NO_RATE)))
        self.follower_quota.set_rate(int(overrides.get(_FOLLOWER_RATE, NO_RATE)))

    def on_offline(self, listener: Callable[[Sequence[TopicPartition]], None]) -> None:
        """Have ``listener`` told of partitions whose log dir failed, once nothing is served of them any more."""
        self._on_offline = listener

    def on_dir_failure(self, path: Path, partitions: Sequence[TopicPartition]) -> None:
        """A log dir failed (BRK-146). May be called under a log's lock, so the work is done in the background."""
        self._scheduler.submit(lambda: self._take_offline(path, partitions), "log-dir-failure")

    def _take_offline(self, path: Path, partitions: Sequence[TopicPartition]) -> None:
        self.fetchers.remove(partitions)
        self._hosted.take_offline(partitions)
        for partition in partitions:
            self._wake(partition)
        self._on_offline(partitions)
        log.error("%d partitions are offline with log dir %s", len(partitions), path)
        try:
            self._zookeeper.create(LogDirEventZnode.PREFIX, LogDirEventZnode.encode(self._broker_id), sequential=True)
        except ZooKeeperError as e:
            log.error("the controller could not be told that log dir %s failed: %s", path, e)

    def _on_session(self, state: SessionState) -> None:
        self._session_confirmed = state is SessionState.CONNECTED
