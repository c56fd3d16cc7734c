"""The groups whose partition of ``__consumer_offsets`` this broker leads: found, loaded, unloaded, called when due.

A group is decided upon under its lock; what was decided is carried out after the lock is let go (GRP-20, BRK-43).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.groups.clock import GroupsClock
from kafkatool.broker.groups.group import Effect, Group, StoreGroup
from kafkatool.broker.groups.loader import Loaded, load
from kafkatool.broker.groups.offsets import CommittedOffsets
from kafkatool.broker.groups.ownership import OwnedPartitions, Ownership, offsets_partition, partition_for
from kafkatool.broker.groups.records import Key
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.gc_pause import gc_paused
from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_LONGEST_RETRY_MS = 60_000  # between attempts to load a partition (GRP-14)


@dataclass(slots=True, eq=False)
class OwnedGroup:
    """A group with its lock and the scheduled call for its next deadline."""

    group: Group
    partition: int
    lock: threading.RLock = field(default_factory=threading.RLock)
    deadline: ScheduledTask | None = None


class OwnedGroups:
    """All groups owned here; they come with the leadership of their partition or by ``get_or_new``. Thread-safe."""

    def __init__(
        self,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        *,
        count_partitions: Callable[[], int | None],
        store: Callable[[OwnedGroup, StoreGroup], None],
        clock: GroupsClock,
    ) -> None:
        """Take ``count_partitions``: asks ZooKeeper how many ``__consumer_offsets`` has; None: there is no such topic.

        ``store(group, record)`` is called, as an effect, with each record a group wants written.
        """
        self._config = config
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._scheduler = scheduler
        self._count_partitions = count_partitions
        self._store = store
        self._clock = clock
        self._now_ms = clock.now_ms
        self.partitions = OwnedPartitions()
        self._groups: dict[int, dict[str, OwnedGroup]] = {}  # by partition: thousands come and go in one step (GRP-17)
        self._broken: dict[int, dict[str, set[Key]]] = {}  # by partition: groups that get 14 until deleted, their keys
        self._lock = threading.Lock()
        self._partition_count: int | None = None
        self._growth_told = 0

    # --- where a group belongs (GRP-1 to 3) ---------------------------------------------------------------------

    def startup(self) -> None:
        """Fix the number of partitions if the topic is there already. Raises ZooKeeperError."""
        self._partition_count = self._count_partitions()

    def partition_count(self) -> int:
        """Return the number of partitions of ``__consumer_offsets``; fixed once the topic was seen (GRP-2).

        The metadata cache tells that there is one, not how large it is: partitions that never had a leader are missing
        there, and brokers that counted differently would look for a group in different places.
        """
        seen = len(self._metadata_cache.snapshot.partitions.get(OFFSETS_TOPIC, ()))
        if self._partition_count is not None and seen > self._partition_count:
            self._warn_of_growth(seen)
        if self._partition_count is None:
            if not seen:
                return self._config.offsets_topic_num_partitions
            try:
                self._partition_count = self._count_partitions() or seen
            except KafkatoolError as e:
                log.warning("the partitions of %s cannot be counted, %d are known: %s", OFFSETS_TOPIC, seen, e)
                return seen
        return self._partition_count

    def _warn_of_growth(self, now: int) -> None:
        if now > max(self._growth_told, self._partition_count or now):
            self._growth_told = now
            log.warning(
                "%s has grown from %s to %d partitions: groups are looked for in the first %s until every broker of the "
                "cluster was restarted",
                OFFSETS_TOPIC,
                self._partition_count,
                now,
                self._partition_count,
            )

    def partition_of(self, group: str) -> int:
        return partition_for(group, self.partition_count())

    def refusal(self, group: str) -> ErrorCode:
        """Return the code that says why the group is not served here, or not yet (GRP-8)."""
        partition = self.partition_of(group)
        match self.partitions.get(partition):
            case Ownership.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case None:
                return ErrorCode.NOT_COORDINATOR
        if group in self._broken.get(partition, ()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def get(self, group: str) -> OwnedGroup | None:
        partition = self.partition_of(group)
        with self._lock:
            return self._groups.get(partition, {}).get(group)

    def get_or_new(self, group: str) -> OwnedGroup | None:
        """Return the group, made if need be; None: its partition was lost since it was checked (GRP-16).

        An unload ends ownership before it takes the lock to collect its groups, so none is made behind its back.
        """
        partition = self.partition_of(group)
        with self._lock:
            groups = self._groups.setdefault(partition, {})
            owned = groups.get(group)
            if owned is None and self.partitions.get(partition) is Ownership.OWNED:
                owned = groups[group] = self._new_group(group, partition)
            return owned

    def _new_group(self, group_id: str, partition: int) -> OwnedGroup:
        group = Group(
            group_id,
            lambda wanted: self._store(owned, wanted),
            max_size=self._config.group_max_size,
            initial_delay_ms=self._config.group_initial_rebalance_delay_ms,
            to_wall_ms=self._clock.to_wall_ms,
        )
        owned = OwnedGroup(group, partition)
        return owned

    def holds(self, owned: OwnedGroup) -> bool:
        """Tell whether it is the group of its id still: not unloaded, nor forgotten, since it was looked up."""
        with self._lock:
            return self._groups.get(owned.partition, {}).get(owned.group.id) is owned

    def all(self) -> list[OwnedGroup]:
        with self._lock:
            partitions = list(self._groups.values())
        return [owned for groups in partitions for owned in list(groups.values())]

    def forget(self, owned: OwnedGroup) -> None:
        """Forget a group of which nothing is left."""
        with self._lock:
            groups = self._groups.get(owned.partition, {})
            if groups.get(owned.group.id) is owned:  # else it was unloaded and loaded again meanwhile
                del groups[owned.group.id]

    def broken_keys(self, group: str) -> frozenset[Key]:
        """Return the keys stored of a group with a damaged record; none: the group is whole, or not known."""
        with self._lock:
            return frozenset(self._broken.get(self.partition_of(group), {}).get(group, ()))

    def forget_broken(self, group: str) -> None:
        """Make the id free again: tombstones for all its keys are in the log."""
        with self._lock:
            self._broken.get(self.partition_of(group), {}).pop(group, None)

    # --- what groups want done ----------------------------------------------------------------------------------

    def carry_out(self, owned: OwnedGroup, effects: Sequence[Effect]) -> None:
        """Do what the group decided, in order; its lock must not be held.

        Each effect is carried out by itself: one that raises concerns one client, not the others of its group, nor the
        groups that are handed over after this one.
        """
        for effect in effects:
            try:
                effect()
            except Exception:
                log.exception("group %s: an effect of a decision failed", owned.group.id)
        self._arm(owned)

    def _arm(self, owned: OwnedGroup) -> None:
        """Have the group called when its next deadline comes, in place of the call arranged before, if any.

        It is called by the scheduler, not on a timer's thread: it may append to the log, which may wait for a disk.
        """
        with owned.lock:
            deadline_ms = owned.group.next_deadline_ms()
            if owned.deadline is not None:
                owned.deadline.cancel()
                owned.deadline = None
            if deadline_ms is not None:
                delay_ms = max(deadline_ms - self._now_ms(), 0)
                owned.deadline = self._scheduler.schedule(
                    "group-deadline", lambda: self._on_time(owned), delay_ms=delay_ms
                )

    def _on_time(self, owned: OwnedGroup) -> None:
        with owned.lock:
            effects = owned.group.on_time(self._now_ms())
        self.carry_out(owned, effects)

    # --- leadership of the offsets partitions (GRP-6 to 17) ------------------------------------------------------

    def on_leadership_change(self, leaders: Iterable[Partition], followers: Iterable[Partition]) -> None:
        """Load and unload groups, called while LeaderAndIsr is handled, before it is answered (BRK-32)."""
        for partition in followers:
            if partition.tp.topic == OFFSETS_TOPIC and self.partitions.end(
                partition.tp.partition, partition.leader_epoch
            ):
                self._unload(partition.tp.partition)
        for partition in leaders:
            if partition.tp.topic == OFFSETS_TOPIC:
                number, epoch = partition.tp.partition, partition.leader_epoch
                if self.partitions.begin_load(number, epoch):
                    self._scheduler.submit(lambda n=number, e=epoch: self.load(n, e), "group-load")  # type: ignore[misc]

    def on_partitions_stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """End ownership: StopReplica with delete, or a failed log dir, does too (GRP-15)."""
        for partition in partitions:
            if partition.topic == OFFSETS_TOPIC and self.partitions.end(partition.partition, None):
                self._unload(partition.partition)

    def load(self, number: int, epoch: int, retry_ms: float = 1000) -> None:
        partition = self._replica_manager.partitions.get(offsets_partition(number))
        source = partition.log if partition is not None else None
        if source is None or not self.partitions.still_loading(number, epoch):
            return
        try:
            with gc_paused():
                loaded = load(
                    source, self._config.offsets_load_buffer_size, lambda: self.partitions.still_loading(number, epoch)
                )
            if loaded is not None:
                self._take_over(number, epoch, loaded)
        except Exception as e:
            known = isinstance(e, KafkatoolError | OSError)
            log.error("loading %s failed, again in %d ms: %s", source.partition, retry_ms, e, exc_info=not known)
            again = min(retry_ms * 2, _LONGEST_RETRY_MS)
            self._scheduler.schedule("group-load", lambda: self.load(number, epoch, again), delay_ms=retry_ms)

    def _take_over(self, number: int, epoch: int, loaded: Loaded) -> None:
        now_ms = self._now_ms()
        groups: dict[str, OwnedGroup] = {}
        started: list[tuple[OwnedGroup, list[Effect]]] = []
        for group_id in loaded.group_ids():
            owned = groups[group_id] = self._new_group(group_id, number)
            value = loaded.groups.get(group_id)
            effects = owned.group.restore(value, now_ms) if value else []
            owned.group.offsets = loaded.offsets[group_id]
            if effects or owned.group.next_deadline_ms() is not None:
                started.append((owned, effects))
        broken = {group: loaded.keys_of(group) for group in loaded.broken}
        with self._lock:
            if not self.partitions.finish_load(number, epoch):
                return
            self._groups[number] = groups
            self._broken[number] = broken
        for owned, effects in started:
            self.carry_out(owned, effects)
        log.info("group coordinator owns partition %d of %s: %d groups", number, OFFSETS_TOPIC, len(groups))

    def _unload(self, number: int) -> None:
        with self._lock:
            gone = self._groups.pop(number, {})
            self._broken.pop(number, None)
        for owned in gone.values():
            with owned.lock:
                effects = owned.group.die()
            self.carry_out(owned, effects)
        self._scheduler.submit(lambda: _let_go(gone), "group-unload")


def _let_go(groups: dict[str, OwnedGroup]) -> None:
    """Free them one commit at a time: all at once, a million commits hold the interpreter for a second (GRP-17)."""
    while groups:
        _, owned = groups.popitem()
        with owned.lock:
            offsets, owned.group.offsets = owned.group.offsets, CommittedOffsets()
        while offsets.in_force:
            offsets.in_force.popitem()
