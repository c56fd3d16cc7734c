"""The group coordinator of one broker: finds the group, locks it, lets it decide, carries out what it decided.

Effects run after the group's lock is let go: answers and appends never happen under it, so no two groups' or
partitions' locks are ever held together (GRP-20, BRK-43). The price: effects of one decision happen in order, those of
two decisions of different threads may interleave. A record says what was decided when it was made; one whose thread is
held up between decision and append can be stored after a later one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.coordination.ids import is_too_long
from kafkatool.broker.groups.description import UNKNOWN_GROUP, GroupDescription, ListedGroups, describe
from kafkatool.broker.groups.expiry import expire_group
from kafkatool.broker.groups.group import Effect, Group, StoreGroup
from kafkatool.broker.groups.handed_out import HandedOut
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.offsets import Commit
from kafkatool.broker.groups.owned import OwnedGroup, OwnedGroups, TransactionEnd
from kafkatool.broker.groups.records import GroupKey, Key, OffsetKey, OffsetValue, storable
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.groups.writer import GroupsWriter, TransactionalProducer, protocol_version
from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_PROTOCOL_OVERHEAD_BYTES = 6  # of each protocol a member offers, beside name and metadata


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit."""

    value: OffsetValue
    metadata_too_large: bool


class FetchedOffsets(NamedTuple):
    """Answer to OffsetFetch: the group's error, and the offsets asked for that are committed.

    ``unstable``: partitions asked for whose offset may be about to change, which the client does not want.
    """

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetValue]
    unstable: Set[TopicPartition] = frozenset()


class GroupCoordinator:
    """The coordinator, made by the composition root."""

    def __init__(
        self,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        *,
        count_partitions: Callable[[], int | None] = lambda: None,
        clock: CoordinatorClock | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Take ``count_partitions``: asks ZooKeeper how many ``__consumer_offsets`` has; None: there is no such topic."""
        self._config = config
        self._limits = limits or Limits()
        self._scheduler = scheduler
        self._clock = CoordinatorClock() if clock is None else clock
        self.now_ms = self._clock.now_ms
        self.groups = OwnedGroups(
            config,
            replica_manager,
            metadata_cache,
            scheduler,
            count_partitions=count_partitions,
            store=self._store,
            clock=self._clock,
            limits=self._limits,
        )
        self._handed_out = HandedOut(self._waits_for)
        # Where groups are, and how they come and go, is known there (GRP-1 to 17).
        self.partition_count = self.groups.count.get
        self.partition_of = self.groups.count.partition_of
        self.on_leadership_change = self.groups.topic.on_leadership_change
        self.on_partitions_stopped = self.groups.topic.on_partitions_stopped
        self._stopping = False
        self._writer = GroupsWriter(config, replica_manager)
        self.static_members_allowed = protocol_version(config) >= (2, 3)  # GRP-36

    # --- life ---------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Count the partitions of the topic, begin to expire. Raises ZooKeeperError."""
        self.groups.count.startup()
        period = self._config.offsets_retention_check_interval_ms
        self._scheduler.schedule("group-expiry", self.expire, delay_ms=period, period_ms=period)

    def shutdown(self) -> None:
        """Answer every request with 15 or 16 from here on."""
        self._stopping = True

    def in_background(self, work: Callable[[], object]) -> None:
        """Have the work done on a thread that may wait."""
        self._scheduler.submit(work, "group-request")

    # --- membership ---------------------------------------------------------------------------------------------

    def _find(self, group: str, *, empty_id_allowed: bool = False) -> tuple[ErrorCode, OwnedGroup | None]:
        """Make the checks that every request that names a group begins with, and look for the group (GRP-8).

        Its partition may be lost from here on: ``groups.is_lost`` is asked again under the group's lock (GRP-16).
        """
        if not (group or empty_id_allowed) or is_too_long(group, self._limits):
            return ErrorCode.INVALID_GROUP_ID, None
        if self._stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return self.groups.find(group)

    def join(self, group: str, request: JoinRequest, parked: Parked[JoinResult]) -> None:
        error, owned = self._find(group)
        smallest, largest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if error is ErrorCode.NONE and not smallest <= request.session_timeout_ms <= largest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and is_too_long(request.member_id, self._limits):
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE and not self._can_be_stored(request):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and owned is None:
            if request.member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                owned = self.groups.get_or_new(group)
                error = ErrorCode.NONE if owned else ErrorCode.NOT_COORDINATOR
        if error is ErrorCode.NONE and request.asks_for_id and request.connection is not None:
            if self._handed_out.are_too_many(request.connection):
                told = request.client_host
                self._limits.reached(Limit.MEMBER_IDS_OF_CONNECTION, told, key=told)
                error = ErrorCode.GROUP_MAX_SIZE_REACHED
            parked = self._noting(parked, request.connection, group)
        if error is not ErrorCode.NONE or owned is None:
            parked.answer(JoinResult(error, request.member_id))
            return
        with owned.lock:
            effects: list[Effect]
            if self.groups.is_lost(owned):
                effects = [partial(parked.answer, JoinResult(ErrorCode.NOT_COORDINATOR, request.member_id))]
            else:
                effects = owned.group.join(request, parked, self.now_ms())
        self.groups.carry_out(owned, effects)

    def _noting(self, parked: Parked[JoinResult], connection: object, group: str) -> Parked[JoinResult]:
        """Note the id that the answer hands out."""

        def send(result: JoinResult) -> None:
            if result.error is ErrorCode.MEMBER_ID_REQUIRED:
                self._handed_out.note(connection, group, result.member_id)
            parked.send(result)

        return Parked(send, parked.drop)

    def _waits_for(self, group: str, member_id: str) -> bool:
        owned = self.groups.get(group)  # looked at without its lock: one more or less does not matter
        return owned is not None and member_id in owned.group.pending

    def _can_be_stored(self, request: JoinRequest) -> bool:
        """Tell whether the member fits a group's record, and the answers that name it.

        One that does not would be let in, and then no assignment could be stored for any member (fault 3).
        """
        size_bytes = sum(len(n.encode()) + len(data) + _PROTOCOL_OVERHEAD_BYTES for n, data in request.protocols)
        return (
            size_bytes <= self._config.message_max_bytes
            and all(storable(name) for name, _ in request.protocols)
            and all(map(storable, (request.protocol_type, request.client_id, request.instance_id)))
        )

    def sync(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
        parked: Parked[SyncResult],
        protocol: tuple[str, str] | None = None,
    ) -> None:
        """Take a member's SyncGroup. ``protocol``: the type and the protocol that it was told, where it tells them."""
        error, owned = self._find(group)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # clients do not expect 14 here (GRP-8)
        if error is ErrorCode.NONE and owned is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE or owned is None:
            parked.answer(SyncResult(error))
            return
        with owned.lock:
            effects: list[Effect]
            if self.groups.is_lost(owned):
                effects = [partial(parked.answer, SyncResult(ErrorCode.NOT_COORDINATOR))]
            else:
                effects = owned.group.sync(
                    member_id, instance_id, generation, assignments, parked, self.now_ms(), protocol
                )
        self.groups.carry_out(owned, effects)

    def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error, owned = self._find(group)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if error is not ErrorCode.NONE or owned is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        with owned.lock:
            if self.groups.is_lost(owned):
                return ErrorCode.NOT_COORDINATOR
            return owned.group.heartbeat(member_id, instance_id, generation, self.now_ms())

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> ErrorCode | list[ErrorCode]:
        """Take members out by id and instance id (GRP-45); return a code for each, or the one that refuses all."""
        error, owned = self._find(group)
        if error is not ErrorCode.NONE:
            return error
        if owned is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        with owned.lock:
            if self.groups.is_lost(owned):
                return ErrorCode.NOT_COORDINATOR
            outcome, effects = owned.group.leave(members, self.now_ms())
        self.groups.carry_out(owned, effects)
        return outcome

    def _store(self, owned: OwnedGroup, wanted: StoreGroup) -> None:
        """Append a group record; its outcome goes back into the group that wanted it (GRP-41, 50).

        That one may have been unloaded since, and its id be another object's that was loaded: then nothing is written.
        """

        def done(error: ErrorCode) -> None:
            with owned.lock:
                if self.groups.is_lost(owned):
                    error = ErrorCode.NOT_COORDINATOR  # whatever the log has: its successor decides
                effects = wanted.done(error, self.now_ms())
            self.groups.carry_out(owned, effects)

        if self.groups.holds(owned):
            self._writer.store_group(owned.partition, owned.group.id, wanted.value, done)
        else:
            done(ErrorCode.NOT_COORDINATOR)

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
        error, owned = self._find(group, empty_id_allowed=True)
        if error is ErrorCode.NONE and owned is None:
            if generation >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                owned = self.groups.get_or_new(group)
                error = ErrorCode.NONE if owned else ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE or owned is None:
            done(dict.fromkeys(offsets, error))
            return
        self._clock.look()
        stored, answers = _split(offsets)
        with owned.lock:
            if self.groups.is_lost(owned):
                error = ErrorCode.NOT_COORDINATOR
            else:
                error = self._may_commit(owned.group, member_id, instance_id, generation)
            if error is ErrorCode.NONE and owned.group.offsets.erasing.intersection(stored):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # tried again, it comes after the tombstone
            begun = owned.group.offsets.begin(stored) if error is ErrorCode.NONE else 0
        if error is not ErrorCode.NONE:
            done(dict.fromkeys(offsets, error))
            return
        if not stored:
            done(answers)
            return

        def appended(code: ErrorCode, base_offset: int) -> None:
            code = self._finish(owned, stored, code, base_offset, begun)
            done({**answers, **dict.fromkeys(stored, code)})

        self._writer.store_offsets(owned.partition, group, stored, appended)

    def commit_in_transaction(
        self,
        group: str,
        producer: TransactionalProducer,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Store commits that come in force with the marker of the producer's transaction (TXN-82, 83)."""
        error, owned = self._find(group)
        if error is ErrorCode.NONE and is_too_long(producer.transactional_id, self._limits):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and owned is None:
            owned = self.groups.get_or_new(group)
            error = ErrorCode.NONE if owned else ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE or owned is None:
            done(dict.fromkeys(offsets, error))
            return
        self._clock.look()
        stored, answers = _split(offsets)
        with owned.lock:
            if self.groups.is_lost(owned):
                error = ErrorCode.NOT_COORDINATOR
            else:
                error = owned.group.check_commit_in_transaction(member_id, instance_id, generation)
            if error is ErrorCode.NONE and owned.group.offsets.erasing.intersection(stored):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # tried again, it comes after the tombstone
            begun = 0
            if error is ErrorCode.NONE and stored:  # of nothing nobody would note the end
                begun = owned.group.offsets.begin(stored, producer.producer_id)
        if error is not ErrorCode.NONE or not stored:
            done(dict.fromkeys(offsets, error) if error is not ErrorCode.NONE else answers)
            return
        self.groups.note_transaction(owned, producer.producer_id)

        def appended(code: ErrorCode, base_offset: int) -> None:
            code = self._finish(owned, stored, code, base_offset, begun, producer.producer_id)
            done({**answers, **dict.fromkeys(stored, code)})

        self._writer.store_offsets_in_transaction(owned.partition, group, stored, producer, appended)

    def _finish(
        self,
        owned: OwnedGroup,
        stored: Mapping[TopicPartition, OffsetValue],
        code: ErrorCode,
        base_offset: int,
        begun: int,
        producer_id: int | None = None,
    ) -> ErrorCode:
        """Take over the outcome of writing commits; return what the client is told."""
        with owned.lock:
            if code is ErrorCode.NONE and (self.groups.is_lost(owned) or not self.groups.holds(owned)):
                code = ErrorCode.NOT_COORDINATOR  # written after the load of its successor, which does not have it
            deleted: list[TopicPartition] = []
            for index, (partition, value) in enumerate(stored.items()):
                commit = Commit(value, base_offset + index) if code is ErrorCode.NONE else None
                if owned.group.offsets.finish(partition, commit, begun, producer_id):
                    deleted.append(partition)
            if producer_id is not None:
                self._forget_if_over(owned, producer_id)
        self._erase(owned, deleted)
        return code

    def end_transaction(self, number: int, producer_id: int, *, committed: bool, log_offset: int) -> None:
        """Put in force, or drop, what the producer has committed in this partition: its marker is replicated (TXN-86)."""
        end = TransactionEnd(producer_id, committed, log_offset)
        for owned in self.groups.committing(number, end):
            with owned.lock:
                if not self.groups.is_lost(owned):
                    owned.group.offsets.end_transaction(**end._asdict())
                    self._forget_if_over(owned, producer_id)

    def _forget_if_over(self, owned: OwnedGroup, producer_id: int) -> None:
        """Keep nothing of a producer that no marker is waited for. Under the group's lock."""
        if not owned.group.offsets.knows_transaction(producer_id):
            self.groups.forget_transaction(owned, producer_id)

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

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = False
    ) -> FetchedOffsets:
        """Return committed offsets of those partitions, of all when None (GRP-56). Never a guess: lost means 16 (GRP-16).

        ``stable``: none that a transaction under way, or a commit on its way, may change (TXN-87): who takes over from a
        member that is gone would begin below what that has committed.
        """
        error, owned = self._find(group, empty_id_allowed=True)
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR  # 15 here ends Java and aiokafka consumers (GRP-8)
        found: dict[TopicPartition, OffsetValue] = {}
        unstable: Set[TopicPartition] = frozenset()
        if error is ErrorCode.NONE and owned is not None:
            partitions = None if partitions is None else list(partitions)
            with owned.lock:
                in_force = {} if owned.group.state is GroupState.DEAD else owned.group.offsets.in_force
                wanted = in_force if partitions is None else [p for p in partitions if p in in_force]
                found = {p: in_force[p].value for p in wanted}
                if stable:
                    unstable = owned.group.offsets.unstable().intersection(found if partitions is None else partitions)
            if self.groups.is_lost(owned):
                error = ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE:
            return FetchedOffsets(error, {})
        return FetchedOffsets(error, found, unstable)

    # --- administration (GRP-58 to 60) --------------------------------------------------------------------------

    def describe(self, group: str) -> GroupDescription:
        """Return state, protocol and members; a group that is not known is Dead."""
        error, owned = self._find(group, empty_id_allowed=True)
        if error is not ErrorCode.NONE:
            return GroupDescription(error)
        if owned is None:
            return UNKNOWN_GROUP
        with owned.lock:
            if self.groups.is_lost(owned):
                return GroupDescription(ErrorCode.NOT_COORDINATOR)
            return describe(owned.group)

    def list_groups(self) -> ListedGroups:
        """Return all groups this broker has in memory, in the order of their ids."""
        if self._stopping:
            return ListedGroups(ErrorCode.COORDINATOR_NOT_AVAILABLE, ())
        loading = self.groups.partitions.loading()
        groups = {h.group.id: h.group for h in self.groups.all()}
        states = ((i, g.protocol_type or "", g.state) for i, g in sorted(groups.items()))
        alive = ((i, kind, state.value) for i, kind, state in states if state is not GroupState.DEAD)
        return ListedGroups(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, tuple(alive))

    def delete(self, group: str, done: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members; ``done`` hears the outcome once the tombstones are replicated.

        While they are under way the group is Dead; when they cannot be stored it is there again, as it would be after
        the next load.
        """
        error, owned = self._find(group, empty_id_allowed=True)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and (keys := self.groups.broken_keys(group)):
            self._delete_broken(group, keys, done)
            return
        if error is not ErrorCode.NONE or owned is None:
            done(error or ErrorCode.GROUP_ID_NOT_FOUND)
            return
        with owned.lock:
            if self.groups.is_lost(owned):
                error = ErrorCode.NOT_COORDINATOR
            elif owned.group.state is GroupState.EMPTY:
                owned.group.die()
            else:
                error = ErrorCode.NON_EMPTY_GROUP
                if owned.group.state is GroupState.DEAD:
                    error = ErrorCode.GROUP_ID_NOT_FOUND
            doomed: list[Key] = [OffsetKey(group, t, p) for t, p in sorted(owned.group.offsets.partitions())]
            if owned.group.generation > 0:
                doomed.append(GroupKey(group))
        if error is not ErrorCode.NONE:
            done(error)
            return

        def stored(code: ErrorCode, _: Sequence[int]) -> None:
            with owned.lock:
                if self.groups.is_lost(owned) or not self.groups.holds(owned):
                    code = code or ErrorCode.NOT_COORDINATOR  # as for commits: its successor may be loaded already
                elif code is not ErrorCode.NONE:
                    owned.group.undelete()
            if code is ErrorCode.NONE:
                self.groups.forget(owned)
            done(code)

        self._writer.delete_keys(owned.partition, doomed, stored)

    def _delete_broken(self, group: str, keys: Collection[Key], done: Callable[[ErrorCode], None]) -> None:
        partition = self.partition_of(group)
        since = self.groups.partitions.owned_since(partition)

        def stored(code: ErrorCode, _: Sequence[int]) -> None:
            if code is ErrorCode.NONE and self.groups.partitions.owned_since(partition) != since:
                code = ErrorCode.NOT_COORDINATOR
            if code is ErrorCode.NONE:
                self.groups.forget_broken(group)
            done(code)

        self._writer.delete_keys(partition, list(keys), stored)

    def delete_offsets(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Forget what the group committed for those partitions, but for topics its members read (ADM-67).

        ``done`` hears the group's error, or a code for each partition once the tombstones are replicated. A commit on
        its way at the same time stays if its record stands behind the tombstone (GRP-52).
        """
        error, owned = self._find(group)
        if error is not ErrorCode.NONE or owned is None:
            done(error or ErrorCode.GROUP_ID_NOT_FOUND, {})
            return
        with owned.lock:
            if self.groups.is_lost(owned):
                error, free = ErrorCode.NOT_COORDINATOR, frozenset[TopicPartition]()
            else:
                error, free = owned.group.may_forget(partitions)
            doomed = sorted(free & owned.group.offsets.partitions())
        if error is not ErrorCode.NONE:
            done(error, {})
            return
        codes = {p: ErrorCode.NONE if p in free else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for p in partitions}

        def stored(code: ErrorCode, tombstones: Sequence[int]) -> None:
            with owned.lock:
                for partition, log_offset in zip(doomed, tombstones, strict=False):
                    owned.group.offsets.delete(partition, log_offset)
                if self.groups.is_lost(owned) or not self.groups.holds(owned):
                    code = ErrorCode.NOT_COORDINATOR  # as for commits: its successor may be loaded already
                    tombstones = ()
            done(ErrorCode.NONE, codes | dict.fromkeys(doomed[len(tombstones) :], code))

        keys: list[Key] = [OffsetKey(group, t, p) for t, p in doomed]
        self._writer.delete_keys(owned.partition, keys, stored)

    # --- expiry (GRP-53 to 55) ----------------------------------------------------------------------------------

    def expire(self) -> None:
        """Drop what has outlived its retention, with tombstones; a group without anything left is forgotten."""
        retention_ms = self._config.offsets_retention_minutes * 60_000
        now_ms = self._clock.expiry_ms(retention_ms)
        for owned in self.groups.all():
            with owned.lock:
                if self.groups.is_lost(owned):
                    continue  # its offsets are the next coordinator's to expire
                gone, dead = expire_group(owned.group, now_ms, retention_ms)
            self._drop(owned, gone, dead)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Take the offsets of deleted topics out of every group (GRP-53, BRK-113)."""
        for owned in self.groups.all():
            with owned.lock:
                if self.groups.is_lost(owned):
                    continue
                gone = owned.group.offsets.forget(partitions)
            self._drop(owned, gone, dead=False)

    def _drop(self, owned: OwnedGroup, gone: Sequence[TopicPartition], dead: bool) -> None:
        self._erase(owned, gone, *([GroupKey(owned.group.id)] if dead and owned.group.generation > 0 else []))
        if dead:
            self.groups.forget(owned)  # now: before, one of that id could commit what the tombstones would erase

    def _erase(self, owned: OwnedGroup, partitions: Sequence[TopicPartition], *more: Key) -> None:
        """Append the tombstones that were decided under the group's lock; it is not held while the disk is written."""
        if not (partitions or more):
            return
        keys: list[Key] = [OffsetKey(owned.group.id, t, p) for t, p in partitions]
        self._writer.store_tombstones(owned.partition, [*keys, *more])
        with owned.lock:
            owned.group.offsets.erasing.difference_update(partitions)


def _split(
    offsets: Mapping[TopicPartition, OffsetToCommit],
) -> tuple[dict[TopicPartition, OffsetValue], dict[TopicPartition, ErrorCode]]:
    """Return what can be stored, and the answers to what is too large for that."""
    too_large = {tp for tp, o in offsets.items() if o.metadata_too_large or not storable(o.value.metadata)}
    stored = {tp: o.value for tp, o in offsets.items() if tp not in too_large}
    return stored, dict.fromkeys(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
