"""The replicas of this broker: puts the parts together, runs the tasks beside them, hears of failures (BRK-77 to 80).

Handlers and coordinators use the parts directly: ``control`` for what the controller sends, ``appends``, ``fetches`` and
``fetch_sessions`` for data, ``partitions`` for what is here, ``delayed`` for the requests that wait.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.control.commands import ControlRequests
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager
from kafkatool.broker.replication.leading.appends import Appends
from kafkatool.broker.replication.leading.conversions import Conversions
from kafkatool.broker.replication.leading.delayed_requests import LIVE_BROKERS, DelayedRequests
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.replication.leading.fetches import Fetches
from kafkatool.broker.replication.leading.hanging_transactions import PERIOD_MS as HANGING_TRANSACTIONS_PERIOD_MS
from kafkatool.broker.replication.leading.hanging_transactions import HangingTransactions
from kafkatool.broker.replication.leading.late_transactions import PERIOD_MS as LATE_TRANSACTIONS_PERIOD_MS
from kafkatool.broker.replication.leading.late_transactions import LateTransactions
from kafkatool.broker.replication.leading.older_fetches import OlderFetches
from kafkatool.broker.replication.leading.under_replicated import PERIOD_MS as UNDER_REPLICATED_PERIOD_MS
from kafkatool.broker.replication.leading.under_replicated import UnderReplicated
from kafkatool.broker.replication.leading.verified_appends import VerifiedAppends
from kafkatool.broker.replication.moving.log_dir_moves import LogDirMoves
from kafkatool.broker.replication.partition.isr_writer import PROPAGATION_PERIOD_MS, IsrPropagation, IsrWriter
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import (
    FoundOffset,
    Reader,
    find_epoch_end,
    find_offset,
    find_segment_offsets,
)
from kafkatool.broker.replication.partition.replication_quota import NO_RATE, RateWindow, ReplicationQuota
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.runtime.timer import Timer, monotonic_ms
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.settings.config import RACK_AWARE, BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequestPartition
from kafkatool.core.zookeeper.session import SessionState, ZooKeeper
from kafkatool.core.zookeeper.znodes import LogDirEventZnode

log = logging.getLogger(__name__)

_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class ReplicaManager:
    """The parts of replication in one broker. Thread-safe."""

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
        *,
        thread_prefix: str = "",
        clock_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """Make the parts. ``timer``: see Purgatory. ``thread_prefix`` begins the fetchers' names (BRK-65)."""
        self._config = config
        self._broker_id = broker_id
        self.log_manager = log_manager
        self._zookeeper = zookeeper
        self._scheduler = scheduler
        self._clock_ms = clock_ms
        self._tasks: list[ScheduledTask] = []
        self._session_confirmed = True
        self._on_offline: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        self.partitions = LocalPartitions(metadata_cache)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock_ms)
        self.delayed = DelayedRequests(timer, self.fetch_sessions)
        self._metadata_cache = metadata_cache
        self._live_brokers = metadata_cache.snapshot.brokers.keys()
        metadata_cache.add_listener(lambda _: self._on_metadata())
        window_ms = config.replication_quota_window_size_seconds * 1000
        windows = [RateWindow(config.replication_quota_window_num, window_ms, clock_ms) for _ in range(2)]
        self.leader_quota = ReplicationQuota(broker_id, lambda c: c.leader_replication_throttled_replicas, windows[0])
        self.follower_quota = ReplicationQuota(
            broker_id, lambda c: c.follower_replication_throttled_replicas, windows[1]
        )
        self.isr_propagation = IsrPropagation(zookeeper, clock_ms)
        self.isr_writer = IsrWriter(zookeeper, scheduler, self.isr_propagation.record, self.delayed.check)
        self.fetchers = FetcherManager(
            config,
            broker_id,
            self.follower_quota,
            self.delayed.fetches.check,
            log_manager.write_log_starts,
            f"{thread_prefix}:" if thread_prefix else "",
        )
        self.moves = LogDirMoves(
            self.partitions,
            log_manager,
            RateWindow(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
                clock_ms,
            ),
            clock_ms,
            self.delayed.check,
            name=f"{thread_prefix}:log-dir-moves" if thread_prefix else "log-dir-moves",
        )
        self.control = ControlRequests(
            broker_id,
            config.inter_broker_listener_name,
            self.partitions,
            log_manager,
            metadata_cache,
            self.fetchers,
            self.moves,
            self.delayed,
            state_change_log,
            broker_epoch,
            self._make_partition,
            self._start_checkpoints,
        )
        self.appends = Appends(self.partitions, self.delayed, acks_all_allowed=lambda: self._session_confirmed)
        self.verified_appends = VerifiedAppends(self.partitions, self.appends, metadata_cache)
        self.verified_appends.enabled = config.transaction_partition_verification_enable
        self.hanging_transactions = HangingTransactions(self.partitions, metadata_cache, self.appends)
        self.late_transactions = LateTransactions(self.partitions, config.transaction_max_timeout_ms)
        self.under_replicated = UnderReplicated(self.partitions, zookeeper)
        self.fetches = Fetches(
            self.partitions,
            self.delayed,
            self.isr_writer,
            self.leader_quota,
            followers_serve=config.replica_selector_class == RACK_AWARE,
        )
        self.conversions = Conversions(config.kt_conversion_max_bytes, f"{thread_prefix or ''}record-conversion")
        self.older_fetches = OlderFetches(self.partitions, self.fetches, self.conversions)

    def startup(self) -> None:
        """Read the high watermarks and begin the tasks. The logs are loaded."""
        config = self._config
        self.partitions.checkpointed = self.log_manager.read_high_watermarks()
        if config.kt_fence_on_zk_session_loss:
            self._zookeeper.add_session_listener(self._on_session)
        for name, task, period_ms in (
            ("isr-expiration", self.shrink_isrs, config.replica_lag_time_max_ms / 2),
            ("isr-change-propagation", self.isr_propagation.run, PROPAGATION_PERIOD_MS),
            ("hanging-transactions", self.hanging_transactions.run, HANGING_TRANSACTIONS_PERIOD_MS),
            ("late-transactions", self.late_transactions.run, LATE_TRANSACTIONS_PERIOD_MS),
            ("under-replicated", self.under_replicated.run, UNDER_REPLICATED_PERIOD_MS),
        ):
            self._tasks.append(self._scheduler.schedule(name, task, delay_ms=period_ms, period_ms=period_ms))

    def shutdown(self) -> None:
        """Stop tasks and fetchers, expire what waits, checkpoint the high watermarks (BRK-127)."""
        self.control.shutting_down = True
        for task in self._tasks:
            task.cancel()
        self.fetchers.shutdown()
        self.moves.shutdown()
        self.delayed.expire_all()
        self.conversions.shutdown()
        self.checkpoint_high_watermarks()

    def _on_metadata(self) -> None:
        """Wait for nothing that brokers which are gone since the last UpdateMetadata would have to do."""
        before, self._live_brokers = self._live_brokers, self._metadata_cache.snapshot.brokers.keys()
        if gone := before - self._live_brokers:
            for partition in self.partitions.all():
                if partition.forget_gone(gone):
                    self.delayed.check(partition.tp)
        self.delayed.deletions.check(LIVE_BROKERS)

    def _make_partition(self, topic_partition: TopicPartition, is_new: bool) -> Partition:
        return Partition(
            topic_partition,
            self._broker_id,
            self.log_manager.get_or_create(topic_partition, is_new),
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            clock_ms=self._clock_ms,
            high_watermark=self.partitions.checkpointed.get(topic_partition, 0),
        )

    # --- lookups --------------------------------------------------------------------------------------------------

    def find_offset(
        self, partition: TopicPartition, wanted: ListOffsetsRequestPartition, reader: Reader, version: int
    ) -> FoundOffset:
        """Answer ListOffsets for one partition (BRK-107, 108)."""
        found = self.partitions.find(partition, missing=reader.missing)
        return FoundOffset(found) if isinstance(found, ErrorCode) else find_offset(found, wanted, reader, version)

    def find_segment_offsets(
        self, partition: TopicPartition, wanted: ListOffsetsRequestPartition, reader: Reader
    ) -> ErrorCode | list[int]:
        """Answer ListOffsets 0 for one partition (ADM-96)."""
        found = self.partitions.find(partition, missing=reader.missing)
        return found if isinstance(found, ErrorCode) else find_segment_offsets(found, wanted, reader)

    def find_epoch_end(self, partition: TopicPartition, wanted: OffsetForLeaderEpochRequestPartition) -> FoundOffset:
        """Answer OffsetForLeaderEpoch for one partition (BRK-61, 62)."""
        found = self.partitions.find(partition)
        return FoundOffset(found) if isinstance(found, ErrorCode) else find_epoch_end(found, wanted)

    # --- tasks ----------------------------------------------------------------------------------------------------

    def shrink_isrs(self) -> None:
        """Drop followers that have not been caught up for too long (BRK-51, 77)."""
        partitions = yielding_gil(self.partitions.all())
        changes = [change for partition in partitions if (change := partition.propose_shrink()) is not None]
        self.isr_writer.write(changes)

    def _start_checkpoints(self) -> None:
        period_ms = self._config.replica_high_watermark_checkpoint_interval_ms
        self._tasks.append(
            self._scheduler.schedule(
                "highwatermark-checkpoint", self.checkpoint_high_watermarks, delay_ms=period_ms, period_ms=period_ms
            )
        )

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks to each log dir (BRK-80)."""
        self.log_manager.write_high_watermarks(self.partitions.high_watermarks())

    # --- what happens around --------------------------------------------------------------------------------------

    def on_broker_config(self, overrides: Mapping[str, str]) -> None:
        """Take over this broker's dynamic configs: the rates of the replication throttles (BRK-76, ADM-69)."""
        self.leader_quota.set_rate(int(overrides.get(_LEADER_RATE, NO_RATE)))
        self.follower_quota.set_rate(int(overrides.get(_FOLLOWER_RATE, NO_RATE)))
        self.moves.set_rate(int(overrides.get(_LOG_DIR_RATE, NO_RATE)))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by what may change at run time: the number of fetchers, and whether transactions are verified (KIP-226)."""
        self.verified_appends.enabled = config.transaction_partition_verification_enable
        self.fetchers.set_number(config.num_replica_fetchers)

    def on_offline(self, listener: Callable[[Sequence[TopicPartition]], None]) -> None:
        """Have ``listener`` told of partitions whose log dir failed, once nothing is served of them any more."""
        self._on_offline = listener

    def on_dir_failure(self, path: Path, partitions: Sequence[TopicPartition]) -> None:
        """Take a failed log dir's partitions out of service (BRK-146).

        May be called under a log's lock, so the work is done in the background.
        """
        self._scheduler.submit(lambda: self._take_offline(path, partitions), "log-dir-failure")

    def _take_offline(self, path: Path, partitions: Sequence[TopicPartition]) -> None:
        self.fetchers.remove(partitions)
        self.partitions.take_offline(partitions)
        for partition in partitions:
            self.delayed.check(partition)
        self._on_offline(partitions)
        log.error("%d partitions are offline with log dir %s", len(partitions), path)
        try:
            self._zookeeper.create(LogDirEventZnode.PREFIX, LogDirEventZnode.encode(self._broker_id), sequential=True)
        except ZooKeeperError as e:
            log.error("the controller could not be told that log dir %s failed: %s", path, e)

    def _on_session(self, state: SessionState) -> None:
        self._session_confirmed = state is SessionState.CONNECTED
