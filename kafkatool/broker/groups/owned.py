"""The groups whose partition of ``__consumer_offsets`` this broker leads: found, loaded, unloaded, called when due.

A group is decided upon under its lock; what was decided is carried out after the lock is let go (GRP-20, BRK-43).
"""

import logging
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.coordination.led_topic import LedTopic
from kafkatool.broker.coordination.ownership import Ownership, Term
from kafkatool.broker.coordination.partition_count import PartitionCount
from kafkatool.broker.groups.group import Effect, Group, StoreGroup
from kafkatool.broker.groups.loader import Loaded, load
from kafkatool.broker.groups.offsets import CommittedOffsets
from kafkatool.broker.groups.records import Key
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

MOST_NEW_GROUPS = 100_000
"""Groups that requests have made and nothing is known of yet: neither members nor offsets (SEC-101)."""


@dataclass(slots=True, eq=False)
class OwnedGroup:
    """A group with its lock and the scheduled call for its next deadline. ``since``: its partition came here with that."""

    group: Group
    partition: int
    since: Term
    lock: threading.RLock = field(default_factory=threading.RLock)
    deadline: TimerTask | None = None


class TransactionEnd(NamedTuple):
    """A replicated marker in a partition of ``__consumer_offsets``, and where it stands (TXN-86)."""

    producer_id: int
    committed: bool
    log_offset: int


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
        clock: CoordinatorClock,
        limits: Limits,
    ) -> None:
        """Take ``count_partitions``: asks ZooKeeper how many ``__consumer_offsets`` has; None: there is no such topic.

        ``store(group, record)`` is called, as an effect, with each record a group wants written.
        """
        self._config = config
        self._limits = limits
        self._scheduler = scheduler
        self._store = store
        self._clock = clock
        self._now_ms = clock.now_ms
        self.count = PartitionCount(
            OFFSETS_TOPIC,
            metadata_cache,
            default=config.offsets_topic_num_partitions,
            ask=count_partitions,
            ids="groups",
        )
        self.topic = LedTopic(
            OFFSETS_TOPIC, replica_manager, scheduler, what="group", load=self._read, unload=self._unload
        )
        self.partitions = self.topic.partitions
        self._groups: dict[int, dict[str, OwnedGroup]] = {}  # by partition: thousands come and go in one step (GRP-17)
        self._broken: dict[int, dict[str, set[Key]]] = {}  # by partition: groups that get 14 until deleted, their keys
        self._new: dict[
            str, OwnedGroup
        ] = {}  # made by requests, the oldest first; what became of them is looked at late
        self._committing: dict[int, dict[int, set[str]]] = {}  # by partition and producer id: groups it commits for
        self._ended: dict[int, list[TransactionEnd]] = {}  # by partition that is being loaded
        self._lock = threading.Lock()

    # --- where a group is (GRP-3, 8) ------------------------------------------------------------------------------

    def refusal(self, group: str) -> ErrorCode:
        """Return the code that says why the group is not served here, or not yet (GRP-8)."""
        partition = self.count.partition_of(group)
        match self.partitions.get(partition):
            case Ownership.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case None:
                return ErrorCode.NOT_COORDINATOR
        if group in self._broken.get(partition, ()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def get(self, group: str) -> OwnedGroup | None:
        partition = self.count.partition_of(group)
        with self._lock:
            return self._groups.get(partition, {}).get(group)

    def find(self, group: str) -> tuple[ErrorCode, OwnedGroup | None]:
        """Return the refusal, or the group; neither: there is none of that id (GRP-8).

        That there is none counts only if the partition was not lost while it was looked for (GRP-16).
        """
        error = self.refusal(group)
        if error is not ErrorCode.NONE:
            return error, None
        partition = self.count.partition_of(group)
        since = self.partitions.owned_since(partition)
        owned = self.get(group)
        if owned is None and (since is None or self.partitions.owned_since(partition) != since):
            return ErrorCode.NOT_COORDINATOR, None
        return ErrorCode.NONE, owned

    def is_lost(self, owned: OwnedGroup) -> bool:
        """Tell whether the group's partition was lost since the group came; it may be here again (GRP-16)."""
        return self.partitions.owned_since(owned.partition) != owned.since

    def get_or_new(self, group: str) -> OwnedGroup | None:
        """Return the group, made if need be; None: its partition was lost since it was checked (GRP-16).

        An unload ends ownership before it takes the lock to collect its groups, so none is made behind its back.
        """
        partition = self.count.partition_of(group)
        oldest = None
        with self._lock:
            groups = self._groups.setdefault(partition, {})
            owned = groups.get(group)
            since = self.partitions.owned_since(partition)
            if owned is None and since is not None:
                owned = groups[group] = self._new[group] = self._new_group(group, since)
                if len(self._new) > MOST_NEW_GROUPS:
                    oldest = self._new.pop(next(iter(self._new)))
        if oldest is not None:
            self._end_if_hollow(oldest)
        return owned

    def _end_if_hollow(self, owned: OwnedGroup) -> None:
        """Let go of a group that has got neither members nor offsets since it was made (SEC-101)."""
        with owned.lock:
            group = owned.group
            if group.state is not GroupState.EMPTY or group.protocol_type or not group.offsets.empty:
                return
            effects = group.die()
        self._limits.reached(Limit.NEW_GROUPS, group.id)
        self.carry_out(owned, effects)
        self.forget(owned)

    def _new_group(self, group_id: str, since: Term) -> OwnedGroup:
        group = Group(
            group_id,
            lambda wanted: self._store(owned, wanted),
            max_size=self._config.group_max_size,
            initial_delay_ms=self._config.group_initial_rebalance_delay_ms,
            to_wall_ms=self._clock.to_wall_ms,
            over=lambda limit: self._limits.reached(limit, group_id),
        )
        owned = OwnedGroup(group, since.partition, since)
        return owned

    def holds(self, owned: OwnedGroup) -> bool:
        """Tell whether it is the group of its id still: not unloaded, nor forgotten, since it was looked up."""
        with self._lock:
            return self._holds(owned)

    def _holds(self, owned: OwnedGroup) -> bool:
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
            if self._new.get(owned.group.id) is owned:
                del self._new[owned.group.id]

    def note_transaction(self, owned: OwnedGroup, producer_id: int) -> None:
        """Note that the producer commits offsets of the group in its transaction."""
        with self._lock:
            if self._holds(owned):
                self._committing.setdefault(owned.partition, {}).setdefault(producer_id, set()).add(owned.group.id)

    def forget_transaction(self, owned: OwnedGroup, producer_id: int) -> None:
        """Note that it does no more. Under the group's lock, so that it does not begin to meanwhile."""
        with self._lock:
            if self._holds(owned):  # else what is noted is of another that was loaded
                self._forget_transaction(owned.partition, producer_id, {owned.group.id})

    def _forget_transaction(self, number: int, producer_id: int, ids: Set[str]) -> None:
        committing = self._committing.get(number, {})
        if left := committing.get(producer_id, set()) - ids:
            committing[producer_id] = left
        else:
            committing.pop(producer_id, None)

    def committing(self, number: int, end: TransactionEnd) -> list[OwnedGroup]:
        """Return the groups of a partition for which the producer has committed offsets; its transaction is over.

        While the partition is being loaded there are none yet: its end is heeded by the load.
        """
        with self._lock:
            if self.partitions.get(number) is Ownership.LOADING:
                self._ended.setdefault(number, []).append(end)
                return []
            ids = self._committing.get(number, {}).get(end.producer_id, set())
            groups = self._groups.get(number, {})
            self._forget_transaction(number, end.producer_id, ids - groups.keys())
            return [groups[id_] for id_ in ids if id_ in groups]

    def broken_keys(self, group: str) -> frozenset[Key]:
        """Return the keys stored of a group with a damaged record; none: the group is whole, or not known."""
        with self._lock:
            return frozenset(self._broken.get(self.count.partition_of(group), {}).get(group, ()))

    def forget_broken(self, group: str) -> None:
        """Make the id free again: tombstones for all its keys are in the log."""
        with self._lock:
            self._broken.get(self.count.partition_of(group), {}).pop(group, None)

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
                # What is due is not taken back by a request meanwhile: on a busy scheduler it would never come to run.
                owned.deadline = self._scheduler.once("group-deadline", lambda: self.on_time(owned), delay_ms=delay_ms)

    def on_time(self, owned: OwnedGroup) -> None:
        """Let the group carry out what is due."""
        with owned.lock:
            if self.is_lost(owned):
                return  # its requests are answered 16 by the unload
            effects = owned.group.on_time(self._now_ms())
        self.carry_out(owned, effects)

    # --- leadership of the offsets partitions (GRP-6 to 17) ------------------------------------------------------

    def _read(self, source: Log, term: Term) -> None:
        loaded = load(source, self._config.offsets_load_buffer_size, lambda: self.partitions.still_loading(term))
        if loaded is not None:
            self._take_over(term, loaded)

    def _take_over(self, term: Term, loaded: Loaded) -> None:
        number = term.partition
        now_ms = self._now_ms()
        groups: dict[str, OwnedGroup] = {}
        started: list[tuple[OwnedGroup, list[Effect]]] = []
        for group_id in loaded.group_ids():
            owned = groups[group_id] = self._new_group(group_id, term)
            value = loaded.groups.get(group_id)
            effects = owned.group.restore(value, now_ms) if value else []
            owned.group.offsets = loaded.offsets[group_id]
            if effects or owned.group.next_deadline_ms() is not None:
                started.append((owned, effects))
        broken = {group: loaded.keys_of(group) for group in loaded.broken}
        with self._lock:
            if not self.partitions.finish_load(term):
                return
            for end in sorted(self._ended.pop(number, ()), key=attrgetter("log_offset")):
                if end.log_offset >= loaded.end:  # else it was read, and what is open may be of a later transaction
                    loaded.end_transaction(**end._asdict())
            self._groups[number] = groups
            self._broken[number] = broken
            self._committing[number] = loaded.open_transactions
        for owned, effects in started:
            self.carry_out(owned, effects)
        log.info("group coordinator owns partition %d of %s: %d groups", number, OFFSETS_TOPIC, len(groups))

    def _unload(self, number: int) -> None:
        with self._lock:
            gone = self._groups.pop(number, {})
            for group_id in gone.keys() & self._new.keys():
                del self._new[group_id]
            self._committing.pop(number, None)
            self._broken.pop(number, None)
            self._ended.pop(number, None)
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
