"""The group coordinator of one broker: finds the group, locks it, lets it decide, carries out what it decided.

Effects run after the group's lock is let go: answers and appends never happen under it, so no two groups' or
partitions' locks are ever held together (GRP-20, BRK-43).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkatool.broker.groups.expiry import expire_group
from kafkatool.broker.groups.group import Effect, Group, StoreGroup
from kafkatool.broker.groups.loader import Loaded, load
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.offsets import Commit
from kafkatool.broker.groups.ownership import OwnedPartitions, Ownership, offsets_partition, partition_for
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.groups.writer import GroupsWriter, protocol_version
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


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit."""

    value: OffsetValue
    metadata_too_large: bool


class FetchedOffsets(NamedTuple):
    """Answer to OffsetFetch: the group's error, and the offsets asked for that are committed."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetValue]


class _Held:
    """A group with its lock and the timer that calls it when something is due."""

    __slots__ = ("group", "lock", "partition", "timer")

    def __init__(self, group: Group, partition: int) -> None:
        self.group = group
        self.partition = partition
        self.lock = threading.RLock()
        self.timer: TimerTask | None = None


class GroupCoordinator:
    """Made by the composition root. Time is a clock in ms that follows the wall but is never set back."""

    def __init__(
        self,
        config: "BrokerConfig",
        replica_manager: "ReplicaManager",
        metadata_cache: "MetadataCache",
        timer: "Timer",
        scheduler: "Scheduler",
    ) -> None:
        self._config = config
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._timer = timer
        self._scheduler = scheduler
        self._owned = OwnedPartitions()
        self._groups: dict[str, _Held] = {}
        self._broken: dict[str, int] = {}  # group -> partition; served with 14 until it is deleted
        self._groups_lock = threading.Lock()
        self._stopping = False
        self._partition_count: int | None = None
        self._writer = GroupsWriter(config, replica_manager)
        self.static_members_allowed = protocol_version(config) >= (2, 3)  # GRP-36
        self._started_ms = time.time() * 1000
        self._started_at = time.monotonic()

    # --- life ---------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        period = self._config.offsets_retention_check_interval_ms
        self._scheduler.schedule("group-expiry", self.expire, delay_ms=period, period_ms=period)

    def shutdown(self) -> None:
        """From here every request is answered 15 or 16."""
        self._stopping = True

    def now_ms(self) -> float:
        return self._started_ms + (time.monotonic() - self._started_at) * 1000

    # --- where a group belongs (GRP-1 to 3) ---------------------------------------------------------------------

    def partition_count(self) -> int:
        """Partitions of ``__consumer_offsets``; fixed once the topic was seen (GRP-2)."""
        if self._partition_count is None:
            seen = len(self._metadata_cache.snapshot.partitions.get(OFFSETS_TOPIC, ()))
            if not seen:
                return self._config.offsets_topic_num_partitions
            self._partition_count = seen
        return self._partition_count

    def partition_of(self, group: str) -> int:
        return partition_for(group, self.partition_count())

    def _refusal(self, group: str, *, empty_id_allowed: bool = False) -> ErrorCode:
        """The checks every request that names a group begins with (GRP-8)."""
        if not group and not empty_id_allowed:
            return ErrorCode.INVALID_GROUP_ID
        if self._stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        match self._owned.get(self.partition_of(group)):
            case Ownership.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case None:
                return ErrorCode.NOT_COORDINATOR
        if group in self._broken:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _held(self, group: str) -> _Held | None:
        with self._groups_lock:
            return self._groups.get(group)

    def _held_or_new(self, group: str) -> _Held | None:
        """The group, made if need be; None: its partition was lost since it was checked (GRP-16).

        An unload ends ownership before it takes the lock to collect its groups, so none is made behind its back.
        """
        partition = self.partition_of(group)
        with self._groups_lock:
            held = self._groups.get(group)
            if held is None and self._owned.get(partition) is Ownership.OWNED:
                held = self._groups[group] = _Held(self._new_group(group), partition)
            return held

    def _new_group(self, group: str) -> Group:
        return Group(
            group,
            lambda wanted: self._store(wanted, group),
            max_size=self._config.group_max_size,
            initial_delay_ms=self._config.group_initial_rebalance_delay_ms,
        )

    def _carry_out(self, held: _Held, effects: Sequence[Effect]) -> None:
        for effect in effects:
            effect()
        self._arm(held)

    def _arm(self, held: _Held) -> None:
        """Have the group called when its next deadline comes; a timer set for later is replaced, one for earlier kept."""
        with held.lock:
            deadline = held.group.next_deadline_ms()
            if held.timer is not None:
                held.timer.cancel()
                held.timer = None
            if deadline is not None:
                held.timer = self._timer.add(max(deadline - self.now_ms(), 0), lambda: self._on_time(held))

    def _on_time(self, held: _Held) -> None:
        with held.lock:
            effects = held.group.on_time(self.now_ms())
        self._carry_out(held, effects)

    # --- membership ---------------------------------------------------------------------------------------------

    def join(self, group: str, request: JoinRequest, parked: Parked[JoinResult]) -> None:
        error = self._refusal(group)
        smallest, largest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if error is ErrorCode.NONE and not smallest <= request.session_timeout_ms <= largest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        held = self._held(group)
        if error is ErrorCode.NONE and held is None:
            if request.member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                held = self._held_or_new(group)
                error = ErrorCode.NONE if held else ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE or held is None:
            parked.answer(JoinResult(error, request.member_id))
            return
        with held.lock:
            effects = held.group.join(request, parked, self.now_ms())
        self._carry_out(held, effects)

    def sync(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
        parked: Parked[SyncResult],
    ) -> None:
        error = self._refusal(group)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # clients do not expect 14 here (GRP-8)
        held = self._held(group)
        if error is ErrorCode.NONE and held is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE or held is None:
            parked.answer(SyncResult(error))
            return
        with held.lock:
            effects = held.group.sync(member_id, instance_id, generation, assignments, parked, self.now_ms())
        self._carry_out(held, effects)

    def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._refusal(group)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        held = self._held(group)
        if error is not ErrorCode.NONE or held is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        with held.lock:
            return held.group.heartbeat(member_id, instance_id, generation, self.now_ms())

    def leave(self, group: str, member_id: str) -> ErrorCode:
        error = self._refusal(group)
        held = self._held(group)
        if error is not ErrorCode.NONE or held is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        with held.lock:
            error, effects = held.group.leave(member_id, self.now_ms())
        self._carry_out(held, effects)
        return error

    def _store(self, wanted: StoreGroup, group: str) -> None:
        """Append a group record; its outcome goes back into the group (GRP-41, 50)."""
        held = self._held(group)
        if held is None:  # unloaded since: what waits for this record in no member's name is answered here
            for effect in wanted.done(ErrorCode.NOT_COORDINATOR, self.now_ms()):
                effect()
            return

        def done(error: ErrorCode) -> None:
            with held.lock:
                effects = wanted.done(error, self.now_ms())
            self._carry_out(held, effects)

        self._writer.store_group(held.partition, group, wanted.value, done)

    # --- offsets ------------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Store commits; ``done`` gets each partition's code once they are replicated (GRP-46 to 52)."""
        error = self._refusal(group, empty_id_allowed=True)
        held = self._held(group)
        if error is ErrorCode.NONE and held is None:
            if generation >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                held = self._held_or_new(group)
                error = ErrorCode.NONE if held else ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE or held is None:
            done(dict.fromkeys(offsets, error))
            return
        with held.lock:
            error = self._may_commit(held.group, member_id, instance_id, generation)
            stored = {tp: o.value for tp, o in offsets.items() if not o.metadata_too_large}
            if error is ErrorCode.NONE:
                held.group.offsets.begin(stored)
        if error is not ErrorCode.NONE:
            done(dict.fromkeys(offsets, error))
            return
        answers = {tp: ErrorCode.OFFSET_METADATA_TOO_LARGE for tp, o in offsets.items() if o.metadata_too_large}
        if not stored:
            done(answers)
            return

        def appended(code: ErrorCode, base_offset: int) -> None:
            with held.lock:
                for index, (partition, value) in enumerate(stored.items()):
                    commit = Commit(value, base_offset + index) if code is ErrorCode.NONE else None
                    held.group.offsets.finish(partition, commit)
            done({**answers, **dict.fromkeys(stored, code)})

        self._writer.store_offsets(held.partition, group, stored, appended)

    def _may_commit(self, group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE  # a consumer outside the group, an admin client (GRP-47)
        error = group.check_member(member_id, instance_id, None)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return error
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        error = error or group.check_member(member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            group.touch(member_id, self.now_ms())
        return error

    def fetch_offsets(self, group: str, partitions: Iterable[TopicPartition] | None) -> FetchedOffsets:
        """Committed offsets of those partitions, of all when None (GRP-56). Never a guess: lost means 16 (GRP-16)."""
        error = self._refusal(group, empty_id_allowed=True)
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR  # 15 here ends Java and aiokafka consumers (GRP-8)
        partition = self.partition_of(group)
        since = self._owned.owned_since(partition)
        held = self._held(group)
        found: dict[TopicPartition, OffsetValue] = {}
        if error is ErrorCode.NONE and held is not None:
            with held.lock:
                in_force = held.group.offsets.in_force
                wanted = in_force if partitions is None else [p for p in partitions if p in in_force]
                found = {p: in_force[p].value for p in wanted}
        if error is ErrorCode.NONE and (since is None or self._owned.owned_since(partition) != since):
            error = ErrorCode.NOT_COORDINATOR
        return FetchedOffsets(error, found if error is ErrorCode.NONE else {})

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
        """StopReplica with delete ends ownership too (GRP-15)."""
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
        now_ms = self.now_ms()
        taken = []
        for group_id in loaded.group_ids():
            held = _Held(self._new_group(group_id), number)
            if value := loaded.groups.get(group_id):
                held.group.restore(value, now_ms)
            held.group.offsets = loaded.of(group_id)
            taken.append(held)
        with self._groups_lock:
            if not self._owned.finish_load(number, epoch):
                return
            for held in taken:
                self._groups[held.group.id] = held
            self._broken.update(dict.fromkeys(loaded.broken, number))
        for held in taken:
            self._arm(held)
        log.info("group coordinator owns partition %d of %s: %d groups", number, OFFSETS_TOPIC, len(taken))

    def _unload(self, number: int) -> None:
        with self._groups_lock:
            gone = [h for h in self._groups.values() if h.partition == number]
            for held in gone:
                del self._groups[held.group.id]
            self._broken = {g: p for g, p in self._broken.items() if p != number}
        for held in gone:
            with held.lock:
                effects = held.group.die()
            self._carry_out(held, effects)

    # --- expiry (GRP-53 to 55) ----------------------------------------------------------------------------------

    def _all_held(self) -> list[_Held]:
        with self._groups_lock:
            return list(self._groups.values())

    def expire(self) -> None:
        """Drop what has outlived its retention, with tombstones; a group without anything left is forgotten."""
        now_ms = self.now_ms()
        retention_ms = self._config.offsets_retention_minutes * 60_000
        for held in self._all_held():
            with held.lock:
                gone, dead = expire_group(held.group, now_ms, retention_ms)
            self._drop(held, gone, dead)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Deleted topics' offsets leave every group (GRP-53, BRK-113)."""
        for held in self._all_held():
            with held.lock:
                gone = held.group.offsets.forget(partitions)
            self._drop(held, gone, dead=False)

    def _drop(self, held: _Held, gone: Sequence[TopicPartition], dead: bool) -> None:
        if dead:
            with self._groups_lock:
                if self._groups.get(held.group.id) is held:  # else it was unloaded and loaded again meanwhile
                    del self._groups[held.group.id]
        if gone or dead:
            self._writer.store_tombstones(
                held.partition, held.group.id, gone, with_group=dead and held.group.generation > 0
            )
