"""The product's replica manager in a simulated broker: on logs of its disk, with fetchers whose steps are played."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.control.commands import ControlRequests
from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher_manager import LeaderAddress
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.storage.logs import broker_config
from tests.histories.simulated.brokers import LAG_MS, number_of
from tests.histories.simulated.played import PlayedScheduler, PlayedTimer

FETCHED_BYTES: Final = 400  # two or three batches


class Shelf(Protocol):
    """The disk of one broker as its log manager needs it."""

    @property
    def hosted(self) -> Collection[TopicPartition]: ...  # whose logs are there, for the product
    def log_of(self, number: int) -> Log: ...
    def host(self, partition: TopicPartition) -> None: ...
    def drop(self, partition: TopicPartition) -> None: ...
    def high_watermarks(self) -> Mapping[TopicPartition, int]: ...


class PlayedLogs:
    """A ``LogManager`` of one log dir, as far as replication asks it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def get(self, partition: TopicPartition) -> Log | None:
        return self._shelf.log_of(number_of(*partition)) if partition in self._shelf.hosted else None

    def get_or_create(self, partition: TopicPartition, is_new: bool = False) -> Log:
        self._shelf.host(partition)
        return self._shelf.log_of(number_of(*partition))

    def expect(self, topics: Collection[str]) -> None:
        """Which topics these are is not noted: none is made anew under its name."""

    def delete(self, partition: TopicPartition) -> None:
        self._shelf.drop(partition)

    set_aside = delete

    def copy_of(self, partition: TopicPartition) -> Log | None:
        return None  # there is one log dir

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return dict(self._shelf.high_watermarks())

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The broker checkpoints by itself, now and then."""

    def write_log_starts(self) -> None:
        """Likewise."""


class PlayedFetchers:
    """A ``FetcherManager`` whose fetchers take their steps when the broker plays them."""

    def __init__(self, follows: dict[int, FollowedPartition]) -> None:
        self._follows = follows
        self.leaves = False

    def add(self, partitions: Iterable[tuple[Partition, LeaderAddress]]) -> None:
        """Follow each in its current leader epoch; one that is followed in it already goes on."""
        if self.leaves:
            return
        for partition, _ in partitions:
            number = number_of(*partition.tp)
            current = self._follows.get(number)
            if current is None or current.leader_epoch != partition.leader_epoch:
                followed = self._follows[number] = FollowedPartition(partition, partition.leader_epoch)
                followed.max_bytes = FETCHED_BYTES

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._follows.pop(number_of(*partition), None)

    def close_idle(self) -> None:
        """There are no threads to end."""


class PacedScheduler(Scheduler):
    """Has what comes round in life come round at the simulation's pace, by another scheduler."""

    def __init__(self, scheduler: PlayedScheduler, pace: float) -> None:
        self._scheduler, self._pace = scheduler, pace

    def schedule(
        self, name: str, fn: Callable[[], object], *, delay_ms: float = 0, period_ms: float | None = None
    ) -> ScheduledTask:
        period_ms = None if period_ms is None else period_ms * self._pace
        return self._scheduler.schedule(name, fn, delay_ms=delay_ms * self._pace, period_ms=period_ms)

    def submit(self, fn: Callable[[], object], name: str = "job") -> None:
        self._scheduler.submit(fn, name)


class PlayedReplicas(ReplicaManager):
    """Tells the broker of each partition that the controller has it make. ``pace``: what lasts long in life is shorter."""

    def __init__(
        self,
        broker_id: int,
        shelf: Shelf,
        cache: MetadataCache,
        zookeeper: ZooKeeper,
        scheduler: PlayedScheduler,
        timer: PlayedTimer,
        broker_epoch: Callable[[], int | None],
        fetchers: PlayedFetchers,
        on_made: Callable[[Partition], object],
        clock_ms: Callable[[], float],
        pace: float,
    ) -> None:
        self._on_made = on_made
        logs: Any = PlayedLogs(shelf)
        config = broker_config(replica_lag_time_max_ms=str(round(LAG_MS / pace)))
        lines = StateChangeLog(None)
        super().__init__(
            config,
            broker_id,
            logs,
            cache,
            zookeeper,
            PacedScheduler(scheduler, pace),
            timer,
            lines,
            broker_epoch,
            clock_ms=lambda: clock_ms() / pace,
        )
        played: Any = fetchers
        self.fetchers = played
        self.control = ControlRequests(
            broker_id,
            config.inter_broker_listener_name,
            self.partitions,
            logs,
            cache,
            played,
            self.moves,
            self.delayed,
            lines,
            broker_epoch,
            self._make_partition,
            self._start_checkpoints,
        )

    def _make_partition(self, topic_partition: TopicPartition, is_new: bool) -> Partition:
        made = super()._make_partition(topic_partition, is_new)
        self._on_made(made)
        return made
