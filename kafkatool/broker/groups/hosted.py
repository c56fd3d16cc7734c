"""The groups whose partition of ``__consumer_offsets`` this broker leads: found, loaded, let go, called when due.

A group is decided upon under its lock; what was decided is carried out after the lock is let go (GRP-20, BRK-43).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kafkatool.broker.groups.group import Effect, Group, StoreGroup
from kafkatool.broker.groups.loader import Loaded, load
from kafkatool.broker.groups.ownership import OwnedPartitions, Ownership, offsets_partition, partition_for
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model import TopicPartition
from kafkatool.core.operations.topic_names import OFFSETS_TOPIC
from kafkatool.core.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkatool.broker.config import BrokerConfig
    from kafkatool.broker.metadata_cache import MetadataCache
    from kafkatool.broker.replication.partition import Partition
    from kafkatool.broker.replication.replica_manager import ReplicaManager
    from kafkatool.broker.scheduler import Scheduler
    from kafkatool.broker.timer import Timer, TimerTask

log = logging.getLogger(__name__)

_LONGEST_RETRY_MS = 60_000  # between attempts to load a partition (GRP-14)


class HeldGroup:
    """A group with its lock and the timer that calls it when something is due."""

    __slots__ = ("group", "lock", "partition", "timer")

    def __init__(self, group: Group, partition: int) -> None:
        self.group = group
        self.partition = partition
        self.lock = threading.RLock()
        self.timer: TimerTask | None = None


class HostedGroups:
    """Thread-safe. Groups come with the leadership of their partition, or by ``get_or_new``, and go with it."""

    def __init__(
        self,
        config: "BrokerConfig",
        replica_manager: "ReplicaManager",
        metadata_cache: "MetadataCache",
        timer: "Timer",
        scheduler: "Scheduler",
        *,
        count_partitions: Callable[[], int | None],
        store: Callable[[str, StoreGroup], None],
        now_ms: Callable[[], float],
    ) -> None:
        """``count_partitions`` asks ZooKeeper how many ``__consumer_offsets`` has; None: there is no such topic.

        ``store(group, record)`` is called, as an effect, with each record a group wants written.
        """
        self._config = config
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._timer = timer
        self._scheduler = scheduler
        self._count_partitions = count_partitions
        self._store = store
        self._now_ms = now_ms
        self._owned = OwnedPartitions()
        self._groups: dict[str, HeldGroup] = {}
        self._broken: dict[str, int] = {}  # group -> partition; served with 14 until it is deleted
        self._lock = threading.Lock()
        self._partition_count: int | None = None

    # --- where a group belongs (GRP-1 to 3) ---------------------------------------------------------------------

    def startup(self) -> None:
        """Fix the number of partitions if the topic is there already. Raises ZooKeeperError."""
        self._partition_count = self._count_partitions()

    def partition_count(self) -> int:
        """Partitions of ``__consumer_offsets``; fixed once the topic was seen (GRP-2).

        The metadata cache tells that there is one, not how large it is: partitions that never had a leader are missing
        there, and brokers that counted differently would look for a group in different places.
        """
        if self._partition_count is None:
            seen = len(self._metadata_cache.snapshot.partitions.get(OFFSETS_TOPIC, ()))
            if not seen:
                return self._config.offsets_topic_num_partitions
            try:
                self._partition_count = self._count_partitions() or seen
            except KafkatoolError as e:
                log.warning("the partitions of %s cannot be counted, %d are known: %s", OFFSETS_TOPIC, seen, e)
                return seen
        return self._partition_count

    def partition_of(self, group: str) -> int:
        return partition_for(group, self.partition_count())

    def refusal(self, group: str) -> ErrorCode:
        """Why the group is not served here, or not yet (GRP-8)."""
        match self._owned.get(self.partition_of(group)):
            case Ownership.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case None:
                return ErrorCode.NOT_COORDINATOR
        if group in self._broken:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def owned_since(self, partition: int) -> int | None:
        """In which epoch it was loaded; None: not owned. Equal answers: never lost between (GRP-16)."""
        return self._owned.owned_since(partition)

    def get(self, group: str) -> HeldGroup | None:
        with self._lock:
            return self._groups.get(group)

    def get_or_new(self, group: str) -> HeldGroup | None:
        """The group, made if need be; None: its partition was lost since it was checked (GRP-16).

        An unload ends ownership before it takes the lock to collect its groups, so none is made behind its back.
        """
        partition = self.partition_of(group)
        with self._lock:
            held = self._groups.get(group)
            if held is None and self._owned.get(partition) is Ownership.OWNED:
                held = self._groups[group] = HeldGroup(self._new_group(group), partition)
            return held

    def _new_group(self, group: str) -> Group:
        return Group(
            group,
            lambda wanted: self._store(group, wanted),
            max_size=self._config.group_max_size,
            initial_delay_ms=self._config.group_initial_rebalance_delay_ms,
        )

    def all(self) -> list[HeldGroup]:
        with self._lock:
            return list(self._groups.values())

    def forget(self, held: HeldGroup) -> None:
        """Nothing is left of the group."""
        with self._lock:
            if self._groups.get(held.group.id) is held:  # else it was unloaded and loaded again meanwhile
                del self._groups[held.group.id]

    # --- what groups want done ----------------------------------------------------------------------------------

    def carry_out(self, held: HeldGroup, effects: Sequence[Effect]) -> None:
        """Do what the group decided, in order; its lock must not be held."""
        for effect in effects:
            effect()
        self._arm(held)

    def _arm(self, held: HeldGroup) -> None:
        """Have the group called when its next deadline comes; the timer set before, if any, is replaced.

        The shared timer thread only hands the call over: it may append to the log, which may have to wait for a disk.
        """
        with held.lock:
            deadline = held.group.next_deadline_ms()
            if held.timer is not None:
                held.timer.cancel()
                held.timer = None
            if deadline is not None:
                held.timer = self._timer.add(
                    max(deadline - self._now_ms(), 0),
                    lambda: self._scheduler.submit(lambda: self._on_time(held), "group-deadline"),
                )

    def _on_time(self, held: HeldGroup) -> None:
        with held.lock:
            effects = held.group.on_time(self._now_ms())
        self.carry_out(held, effects)

    # --- leadership of the offsets partitions (GRP-6 to 17) ------------------------------------------------------

    def on_leadership_change(self, leaders: "Iterable[Partition]", followers: "Iterable[Partition]") -> None:
        """Called while LeaderAndIsr is handled, before it is answered (BRK-32)."""
        for partition in followers:
            if partition.tp.topic == OFFSETS_TOPIC and self._owned.end(partition.tp.partition, partition.leader_epoch):
                self._unload(partition.tp.partition)
        for partition in leaders:
            if partition.tp.topic == OFFSETS_TOPIC:
                number, epoch = partition.tp.partition, partition.leader_epoch
                if self._owned.begin_load(number, epoch):
                    self._scheduler.submit(lambda n=number, e=epoch: self._load(n, e), "group-load")  # type: ignore[misc]

    def on_partitions_stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """StopReplica with delete, or a failed log dir, ends ownership too (GRP-15)."""
        for partition in partitions:
            if partition.topic == OFFSETS_TOPIC and self._owned.end(partition.partition, None):
                self._unload(partition.partition)

    def _load(self, number: int, epoch: int, retry_ms: float = 1000) -> None:
        partition = self._replica_manager.partition(offsets_partition(number))
        source = partition.log if partition is not None else None
        if source is None or not self._owned.still_loading(number, epoch):
            return
        try:
            loaded = load(
                source, self._config.offsets_load_buffer_size, lambda: self._owned.still_loading(number, epoch)
            )
        except (KafkatoolError, OSError) as e:
            log.error("loading %s failed, again in %d ms: %s", source.partition, retry_ms, e)
            again = min(retry_ms * 2, _LONGEST_RETRY_MS)
            self._scheduler.schedule("group-load", lambda: self._load(number, epoch, again), delay_ms=retry_ms)
            return
        if loaded is not None:
            self._take_over(number, epoch, loaded)

    def _take_over(self, number: int, epoch: int, loaded: Loaded) -> None:
        now_ms = self._now_ms()
        taken: list[tuple[HeldGroup, list[Effect]]] = []
        for group_id in loaded.group_ids():
            held = HeldGroup(self._new_group(group_id), number)
            value = loaded.groups.get(group_id)
            effects = held.group.restore(value, now_ms) if value else []
            held.group.offsets = loaded.of(group_id)
            taken.append((held, effects))
        with self._lock:
            if not self._owned.finish_load(number, epoch):
                return
            for held, _ in taken:
                self._groups[held.group.id] = held
            self._broken.update(dict.fromkeys(loaded.broken, number))
        for held, effects in taken:
            self.carry_out(held, effects)
        log.info("group coordinator owns partition %d of %s: %d groups", number, OFFSETS_TOPIC, len(taken))

    def _unload(self, number: int) -> None:
        with self._lock:
            gone = [h for h in self._groups.values() if h.partition == number]
            for held in gone:
                del self._groups[held.group.id]
            self._broken = {g: p for g, p in self._broken.items() if p != number}
        for held in gone:
            with held.lock:
                effects = held.group.die()
            self.carry_out(held, effects)
