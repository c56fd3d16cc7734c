"""One partition on this broker: its role, its in-sync replicas, its high watermark (BRK-42 to 58).

One lock guards what changes; it is held for changes of role and positions and for appends, never for ZooKeeper
writes, and nobody completes a waiting request under it (BRK-43, KAFKA-7697). Readers take no lock: what they need
are single attributes, each replaced as a whole.
Source: Kafka 2.3.1 cluster/Partition.scala.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.replication.partition.in_sync import InSyncReplicas
from kafkatool.broker.replication.partition.replica import UNKNOWN, LastSessionFetch, RemoteReplica
from kafkatool.broker.replication.partition.replica_copy import ReplicaCopy
from kafkatool.broker.replication.partition.topic_counters import TopicCounts
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_writer import AppendInfo
from kafkatool.broker.storage.log_config import RECORD_BATCHES
from kafkatool.broker.storage.producers.producer_state import Verification
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition
from kafkatool.core.protocol.records.batches import read_header

ALL_IN_SYNC = -1
"""acks: the append counts once every in-sync replica has it."""


class StaleRoleError(KafkatoolError):
    """Raised when the partition is not, or no longer, a follower in that leader epoch: drop what was fetched for it."""


class LeaderAppend(NamedTuple):
    """An append on the leader, in which epoch, and whether it alone raised the high watermark."""

    info: AppendInfo
    raised: bool
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A new in-sync set, to be written on the state node's ``version``."""

    partition: "Partition"
    state: LeaderAndIsr
    version: int
    before: tuple[int, ...]

    @property
    def grows(self) -> bool:
        """Tell whether a replica joins; else some leave."""
        return len(self.state.isr) > len(self.before)


class Partition:
    """A partition with a replica here. Offsets are 64-bit, times in ms of ``clock_ms``."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        log: Log,
        *,
        lag_time_max_ms: float,
        clock_ms: Callable[[], float],
        high_watermark: int = 0,
    ) -> None:
        """Begin without a role. ``high_watermark`` is the one checkpointed; it is kept within the log (BRK-41)."""
        self.tp = topic_partition
        self.broker_id = broker_id
        self.log = log
        self.lock = threading.Lock()
        self.counts = TopicCounts()  # its topic's, once it is hosted
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.epoch_start = -1  # where the current epoch began in the local log; leader only
        self.led_since = -1
        """The epoch from which on this broker has led without a break, as far as it can know: of what was appended or read
        in an earlier one, another leader may have had a say."""
        self.took_over_ms = float("-inf")
        """Since when that is so. Of a partition that began here nothing is older, and nobody else had a say."""

        self.controller_epoch = 0  # of the decision that gave the role
        self.leader_log: Log | None = None  # the log, while this broker leads; what reads and appends go by
        self.assigned: tuple[int, ...] = ()
        self.in_sync = InSyncReplicas()
        self.remote: dict[int, RemoteReplica] = {}
        self.copy: ReplicaCopy | None = None  # of the log, in another log dir, to take its place
        self._lag_time_max_ms = lag_time_max_ms
        self._clock_ms = clock_ms
        self._proposed: IsrChange | None = None
        self.high_watermark = LogOffset(0)
        self._set_high_watermark(LogOffset(max(0, min(high_watermark, log.log_end_offset))))

    def __repr__(self) -> str:
        return f"Partition({self.tp}, leader {self.leader_id}, epoch {self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        """Tell whether this broker leads the partition, as far as it knows (BRK-44)."""
        return self.leader_log is not None

    @property
    def isr(self) -> tuple[int, ...]:
        """Return the in-sync replicas, when leading; empty on a follower."""
        return self.in_sync.members

    @property
    def lacks_a_fetch(self) -> bool:
        """Tell whether a replica in sync has not fetched since this broker leads: it may not have asked for it yet."""
        members = self.in_sync.members
        return any(r.end is UNKNOWN and r.broker_id in members for r in list(self.remote.values()))

    # --- roles ----------------------------------------------------------------------------------------------------

    def make_leader(self, state: LeaderAndIsrPartition) -> tuple[bool, bool]:
        """Lead in ``state``'s epoch; return (was not leading before, high watermark raised) (BRK-45)."""
        now_ms = self._clock_ms()
        with self.lock:
            log = self.log
            end = log.end
            log.keep_gap()
            if log.config.record_format >= RECORD_BATCHES:  # entries have no epochs, and are cut by the high watermark
                log.leader_epochs.assign(state.leader_epoch, end.offset)
            is_new = self.leader_log is None
            if is_new or state.leader_epoch > self.leader_epoch + 1:  # in one that was missed another may have led
                self.led_since = state.leader_epoch
                self.took_over_ms = now_ms if state.leader_epoch > 0 else float("-inf")
            self._adopt(state)
            self.in_sync.adopt(tuple(state.isr), state.zk_version)
            self.epoch_start = end.offset
            for replica in self.remote.values():
                replica.begin_term(end.offset, now_ms, in_sync=replica.broker_id in state.isr)
            if is_new:
                self._set_high_watermark(self._located(self.high_watermark.offset))
                self.leader_id = self.broker_id
                self.leader_log = log
                log.void_verifications()
            if self.led_since == state.leader_epoch:
                for replica in self.remote.values():
                    replica.forget_positions()
            return is_new, self._raise_high_watermark(log, now_ms)

    def make_follower(self, state: LeaderAndIsrPartition) -> bool:
        """Follow ``state.leader``; True if leader or epoch changed, so that fetching starts anew (BRK-47)."""
        leader = state.leader if state.leader >= 0 else None
        with self.lock:
            changed = self.leader_id != leader or self.leader_epoch != state.leader_epoch
            self.leader_log = None
            self.leader_id = leader
            self._adopt(state)
            self.in_sync.adopt((), state.zk_version)
            self.epoch_start = -1
            return changed

    def stop_leading(self) -> bool:
        """Serve nobody: another broker leads in a new epoch, which is not adopted yet. Return whether it was led here.

        Its epoch stays as it is, so that the decision can be taken over later (BRK-30).
        """
        with self.lock:
            led = self.leader_log is not None
            self.leader_log = None
            self.leader_id = None
            self._proposed = None
            self.in_sync.adopt((), -1)
            self.epoch_start = -1
            return led

    def retire(self) -> None:
        """Be neither leader nor follower any more: the replica is being deleted (BRK-111)."""
        with self.lock:
            self.leader_log = None
            self.leader_id = None
            self.leader_epoch = 2**31 - 1  # no fetched data of any epoch is taken any more
            self.assigned = ()
            self.remote = {}
            self.copy = None
            self.in_sync.adopt((), -1)

    def _adopt(self, state: LeaderAndIsrPartition) -> None:
        self.controller_epoch = state.controller_epoch
        self.assigned = tuple(state.replicas)
        others = [b for b in state.replicas if b != self.broker_id]
        self.remote = {b: self.remote.get(b) or RemoteReplica(b) for b in others}
        self.leader_epoch = state.leader_epoch

    def _located(self, offset: int) -> LogOffset:
        """Return the offset with its place in the log; outside the log, the log's start (BRK-46)."""
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            offset = log.log_start_offset
        return log.offset_metadata(offset)

    # --- another log dir ------------------------------------------------------------------------------------------

    def take_copy(self, copy: ReplicaCopy) -> None:
        """Let the copy go along with what is cut off the log from now on."""
        with self.lock:
            self.copy = copy

    def give_up_copy(self) -> None:
        """Let go of it: the replica stays where it is."""
        with self.lock:
            self.copy = None

    def go_on_with(self, log: Log) -> None:
        """Have the copy, which has the same records, as the log. Under the lock."""
        self.copy = None
        self.log = log
        for replica in self.remote.values():
            replica.end = LogOffset(replica.end.offset)  # its place was one in the other log
        self._set_high_watermark(self._located(self.high_watermark.offset))
        if self.leader_log is not None:
            self.leader_log = log

    # --- leading --------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview | OlderEntries,
        *,
        acks: int = 1,
        origin_client: bool = True,
        verification: Verification | None = None,
        still: Callable[[], bool] | None = None,
    ) -> LeaderAppend:
        """Append one batch, or entries (BRK-48, 49). Raises AppendError with the code to answer, StorageError.

        ``verification``: its leave to open a transaction (TXN-72). ``still`` tells whether a coordinator owns the
        partition as it did when it decided; asked under the lock, no change of role comes between (TXN-14).

        The caller tries what waits: followers' fetches always, everything else if ``raised``.
        """
        with self.lock:
            log = self.leader_log
            if log is None or not (still is None or still()):
                raise AppendError(ErrorCode.NOT_LEADER_FOR_PARTITION, f"{self.tp} is not led here")
            if acks == ALL_IN_SYNC and len(self.in_sync.members) < log.config.min_insync_replicas:
                if not origin_client and not isinstance(records, OlderEntries):
                    log.check_marker(records)  # one that comes too late is not to be sent again (TXN-59)
                raise AppendError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.tp}: {len(self.in_sync.members)} replicas in sync, "
                    f"min.insync.replicas is {log.config.min_insync_replicas}",
                )
            end = log.log_end_offset
            for replica in self.remote.values():
                if replica.end.offset == end:
                    replica.note_session_fetch()
            if isinstance(records, OlderEntries):
                info = log.append_entries(records)
            else:
                info = log.append_as_leader(
                    records, self.leader_epoch, origin_client=origin_client, verification=verification
                )
            return LeaderAppend(info, self._raise_high_watermark(log), self.leader_epoch)

    def acknowledged(self, required_offset: int, appended_in: int) -> tuple[bool, ErrorCode]:
        """Tell whether everything below that offset is on all in-sync replicas, and the code to say (BRK-58).

        ``appended_in``: the leader epoch in which it was appended here; by now another leader may have cut it off.
        """
        high_watermark = self.high_watermark.offset  # before the role: never one learnt from another leader
        log = self.leader_log
        if log is None or appended_in < self.led_since:
            return False, ErrorCode.NOT_LEADER_FOR_PARTITION
        if high_watermark < required_offset:
            return False, ErrorCode.NONE
        if len(self.in_sync.members) < log.config.min_insync_replicas:
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, ErrorCode.NONE

    def record_fetch(
        self,
        replica_id: int,
        start: LogOffset,
        leader_end: int,
        log_start_offset: int,
        session_fetch: LastSessionFetch | None = None,
        *,
        read_in: int,
    ) -> tuple[bool, IsrChange | None] | None:
        """Note that a follower read from ``start``; return (high watermark raised, ISR change to write) (BRK-101).

        ``session_fetch``: of the fetch session in which it goes on reading from there. ``read_in``: the leader epoch then.
        None: not led here any more, or anew, or the sender is not among the assigned replicas (KAFKA-5758).
        """
        now_ms = self._clock_ms()
        with self.lock:
            log = self.leader_log
            replica = self.remote.get(replica_id)
            if log is None or replica is None or read_in < self.led_since:
                return None
            replica.record_fetch(start, leader_end, log_start_offset, now_ms, session_fetch)
            change = None
            if replica_id not in self.in_sync.members and self.in_sync.may_change and self._may_join(start.offset):
                change = self._propose((*self.in_sync.members, replica_id))
            return self._raise_high_watermark(log, now_ms), change

    def forget_gone(self, brokers: Collection[int]) -> bool:
        """Wait no longer for replicas out of sync on brokers that are gone; True if that raised the high watermark.

        A follower whose last fetch came as it was stopping, after the controller had taken it out of the in-sync set,
        counts as about to join: nothing would be committed for ``replica.lag.time.max.ms`` (BRK-56; Kafka: KIP-841).
        """
        with self.lock:
            for broker_id in brokers:
                replica = self.remote.get(broker_id)
                if replica is not None and broker_id not in self.in_sync.members:
                    replica.forget_presence()
            return self.leader_log is not None and self._raise_high_watermark(self.leader_log)

    def _may_join(self, end: int) -> bool:
        # Below the start of this epoch it may still hold what the last leader never committed (KAFKA-7128).
        return end >= self.high_watermark.offset and end >= self.epoch_start

    def propose_shrink(self) -> IsrChange | None:
        """Return the change that drops followers which lag for too long; None: none does (BRK-51)."""
        now_ms = self._clock_ms()
        with self.lock:
            log = self.leader_log
            if log is None or not self.in_sync.may_change:
                return None
            end = log.log_end_offset
            kept = tuple(b for b in self.in_sync.members if b == self.broker_id or self._keeps_up(b, end, now_ms))
            return self._propose(kept) if len(kept) < len(self.in_sync.members) else None

    def _keeps_up(self, broker_id: int, leader_end: int, now_ms: float) -> bool:
        replica = self.remote.get(broker_id)
        if replica is None:
            return False
        # At the leader's end there is nothing to catch up with, however long ago it fetched (KAFKA-7152).
        return now_ms - replica.caught_up_ms <= self._lag_time_max_ms or replica.end.offset == leader_end

    def _propose(self, members: tuple[int, ...]) -> IsrChange:
        self.in_sync.propose(members)
        state = LeaderAndIsr(self.broker_id, self.leader_epoch, members, self.controller_epoch)
        self._proposed = IsrChange(self, state, self.in_sync.version, self.in_sync.members)
        return self._proposed

    def isr_written(self, change: IsrChange, version: int) -> bool:
        """Take over that the node holds the change; True if that raised the high watermark."""
        with self.lock:
            if self._proposed is not change or self.leader_log is None:
                return False  # a leadership decision came meanwhile: it holds
            self._proposed = None
            if self.leader_epoch != change.state.leader_epoch:
                return False
            self.in_sync.adopt(change.state.isr, version)
            return self._raise_high_watermark(self.leader_log)

    def isr_not_written(self, change: IsrChange, found: PartitionState | None, *, outcome_known: bool) -> bool:
        """Note that it was refused, or the outcome is unknown; ``found`` is what the node holds (BRK-54, 55).

        True if the node holds what we wanted after all, a reply having been lost.
        """
        with self.lock:
            if self._proposed is not change or self.leader_epoch != change.state.leader_epoch:
                return False
            self._proposed = None
            if found is not None:
                if self._is_ours(found.leader_and_isr, change):
                    self.in_sync.adopt(found.leader_and_isr.isr, found.version)
                    if self.leader_log is not None:
                        self._raise_high_watermark(self.leader_log)
                    return True
                if found.leader_and_isr.leader != self.broker_id:
                    self.leader_log = None  # deposed: serve nobody until the controller has spoken (KAFKA-2729)
                    self.leader_id = None
                else:
                    self.in_sync.frozen = True  # every further write on this version would be refused, too (Z-39)
            self.in_sync.give_up(outcome_known=outcome_known)
            return False

    def _is_ours(self, found: LeaderAndIsr, change: IsrChange) -> bool:
        wanted = change.state
        return (
            found.leader == wanted.leader
            and found.leader_epoch == wanted.leader_epoch
            and found.controller_epoch == wanted.controller_epoch
            and self.in_sync.sent_before(found.isr)
        )

    def _raise_high_watermark(self, log: Log, now_ms: float | None = None) -> bool:
        """Move it to the lowest end among replicas in sync or about to be (BRK-56, 57). Under the lock."""
        current = self.high_watermark
        lowest = log.end
        waited_for = self.in_sync.waited_for
        for replica in self.remote.values():
            if replica.end.offset >= lowest.offset:
                continue
            if replica.broker_id not in waited_for:
                if now_ms is None:
                    now_ms = self._clock_ms()
                if now_ms - replica.caught_up_ms > self._lag_time_max_ms:
                    continue
            if replica.end.offset < current.offset:
                return False
            lowest = replica.end
        if lowest.offset < current.offset:
            return False
        if lowest.offset == current.offset and (lowest.segment_base or 0) <= (current.segment_base or 0):
            return False
        self._set_high_watermark(lowest)
        return True

    def _set_high_watermark(self, to: LogOffset) -> None:
        self.high_watermark = to
        self.log.high_watermark = to.offset

    # --- following ------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, *, fetched_at: int, high_watermark: int, log_start_offset: int
    ) -> int:
        """Take over what the leader sent (BRK-70); return the next offset to fetch.

        Raises StaleRoleError, CorruptRecordsError, OffsetOrderError, StorageError.
        """
        with self.lock:
            log = self._followed(leader_epoch)
            if fetched_at != log.log_end_offset:
                raise StaleRoleError(f"{self.tp} ends at {log.log_end_offset}, not {fetched_at}")
            if len(records):
                empty_if_only_below_start(log, records)
                log.append_as_follower(records)
            end = log.log_end_offset
            self._set_high_watermark(LogOffset(max(0, min(end, high_watermark))))
            if log.log_start_offset < log_start_offset <= end:
                log.advance_log_start(log_start_offset)
            return end

    def truncate(self, leader_epoch: int, offset: int) -> int:
        """Drop everything from ``offset`` on; return the log's new end. Raises StaleRoleError, StorageError."""
        with self.lock:
            log = self._followed(leader_epoch)
            self._cut_copy(offset)
            log.truncate_to(offset)
            return self._after_truncation(log)

    def restart_at(self, leader_epoch: int, offset: int) -> int:
        """Drop everything and begin at ``offset``, the leader's log start. Raises StaleRoleError, StorageError."""
        with self.lock:
            log = self._followed(leader_epoch)
            self._cut_copy(0)
            log.truncate_fully_and_start_at(offset)
            return self._after_truncation(log)

    def _cut_copy(self, offset: int) -> None:
        if self.copy is not None:
            self.copy.note_cut(offset)

    def _after_truncation(self, log: Log) -> int:
        end = log.log_end_offset
        self._cut_copy(end)  # where a batch began before the offset asked for
        self._set_high_watermark(LogOffset(min(self.high_watermark.offset, end)))
        return end

    def _followed(self, leader_epoch: int) -> Log:
        if self.leader_log is not None or self.leader_epoch != leader_epoch:
            raise StaleRoleError(f"{self.tp} does not follow in epoch {leader_epoch} any more")
        return self.log


def empty_if_only_below_start(log: Log, records: memoryview) -> None:
    """Drop what a log without records from its start on has below it, if the first batch lies across its end (BRK-75).

    Such a log has been cut back to its start, inside a batch of the leader. Raises CorruptRecordsError, StorageError.
    """
    end = log.log_end_offset
    if log.log_start_offset != end or not log.size_bytes:
        return
    first = read_header(records)
    if first is not None and first.base_offset < end <= first.last_offset:
        log.truncate_fully_and_start_at(end)
