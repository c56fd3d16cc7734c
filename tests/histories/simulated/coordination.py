"""The coordinators of one broker of the simulation: the product's, over its partitions, by its played time."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.appends import Appends
from kafkatool.broker.replication.leading.verified_appends import VerifiedAppends
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.broker.transactions.marker_writes import MarkerWrites, OffsetsEnd
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import Clock
from tests.broker.storage.logs import broker_config
from tests.histories.simulated.between import PlayedChannels, Wire
from tests.histories.simulated.played import PlayedScheduler, PlayedTimer

GROUP: Final = "members"
TRANSFORMERS: Final = "transformers"
SESSION_MS: Final = 300
TRANSACTION_MS: Final = 400
"""So long a transaction may be open."""
_CONFIG: Final = broker_config(
    group_min_session_timeout_ms="100",
    group_initial_rebalance_delay_ms="20",
    offsets_commit_timeout_ms="300",
    request_timeout_ms="300",
    transaction_abort_timed_out_transaction_cleanup_interval_ms="60",
)


@dataclass(frozen=True)
class _Replication:
    """What coordinators use of a broker's replication."""

    partitions: LocalPartitions
    appends: Appends
    verified_appends: VerifiedAppends


class Coordination:
    """Made anew with each life of a broker; handlers find in it what they use of one."""

    def __init__(
        self,
        broker: int,
        partitions: LocalPartitions,
        appends: Appends,
        cache: MetadataCache,
        timer: PlayedTimer,
        scheduler: PlayedScheduler,
        clock: Clock,
        wire: Wire,
        next_producer_id: Callable[[], int],
    ) -> None:
        self.metadata_cache = cache
        self.verified_appends = VerifiedAppends(partitions, appends, cache)
        replication = _Replication(partitions, appends, self.verified_appends)
        self.groups = GroupCoordinator(
            _CONFIG,
            replication,  # type: ignore[arg-type]
            cache,
            scheduler,
            count_partitions=lambda: 1,
            clock=CoordinatorClock(clock, clock),
        )
        self.marker_writes = MarkerWrites(_CONFIG, replication, self._end_offsets)  # type: ignore[arg-type]
        self.transactions = TransactionCoordinator(
            _CONFIG,
            broker,
            replication,  # type: ignore[arg-type]
            cache,
            scheduler,
            timer,
            self.marker_writes,
            next_producer_id=next_producer_id,
            count_partitions=lambda: 1,
            clock=CoordinatorClock(clock, clock),
            channels=partial(PlayedChannels, wire),
        )
        self.groups.groups.count.startup()
        self.transactions.startup()

    def _end_offsets(self, end: OffsetsEnd) -> None:
        self.groups.end_transaction(end.partition, end.producer_id, committed=end.committed, log_offset=end.log_offset)

    def on_leadership_change(self, leaders: Iterable[Partition], followers: Iterable[Partition]) -> None:
        self.groups.on_leadership_change(leaders, followers)
        self.transactions.on_leadership_change(leaders, followers)

    def on_partitions_stopped(self, partitions: Collection[TopicPartition]) -> None:
        """Hear of replicas that are deleted."""
        self.groups.on_partitions_stopped(partitions)
        self.transactions.on_partitions_stopped(partitions)

    def serves(self, group: str) -> bool:
        """Tell whether the group is loaded here."""
        return self.groups.groups.refusal(group) is ErrorCode.NONE
