"""The controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata, one at a time under one lock (BRK-23 to 33).

Source: Kafka 2.3.1 server/ReplicaManager.scala, with the log lines of 1.1.1.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.control import state_lines as lines
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager, LeaderAddress
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.moving.log_dir_moves import LogDirMoves
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import StorageError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartition,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest

log = logging.getLogger(__name__)

OnLeadershipChange = Callable[[list[Partition], list[Partition]], None]
"""(partitions that became led here, partitions that became followed here)."""
_REGISTRATION_S, _LOOK_S = 20, 0.005  # below controller.socket.timeout.ms, after which the request would come again
_DISK_ERRORS = (StorageError, OSError)
# A log is made with its topic's configs. When they cannot be read, that replica alone fails and the controller hears it.
_OPENING_ERRORS = (*_DISK_ERRORS, ZooKeeperError)


_FromController = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class MetadataUpdate(NamedTuple):
    """Outcome of UpdateMetadata."""

    error: ErrorCode
    removed: list[TopicPartition]
    """Partitions being deleted, that were known before (BRK-113)."""


@dataclass(eq=False)
class ControlRequests:
    """The one writer of roles and of the set of partitions here. Any thread; one request at a time."""

    _broker_id: int
    _listener: str  # of brokers among each other
    _partitions: LocalPartitions
    _log_manager: LogManager
    _metadata_cache: MetadataCache
    _fetchers: FetcherManager
    _moves: LogDirMoves
    _delayed: DelayedRequests
    _state_log: StateChangeLog
    _broker_epoch: Callable[[], int | None]
    _make_partition: Callable[[TopicPartition, bool], Partition]
    """Given whether it is new, opens or creates the log; raises StorageError."""
    _on_first: Callable[[], object] | None
    """Called once, with the first LeaderAndIsr."""
    shutting_down: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _controller_epoch: int = field(default=0, init=False)  # below any real one
    _waiting: dict[TopicPartition, tuple[LeaderAndIsrPartition, lines.Origin]] = field(default_factory=dict, init=False)

    # --- checks ---------------------------------------------------------------------------------------------------

    def _refusal(self, request: _FromController, old_controller: Callable[[int], str]) -> ErrorCode:
        """Return why the request as a whole is not obeyed (BRK-24, 25); NONE: it is, and its epoch is noted.

        ``old_controller`` makes the line for a request of an old controller, given the latest epoch known.
        A broker epoch above the own one is obeyed, as in Kafka 2.8: after a new session the controller may know of the
        registration before this broker has read its own node, and it does not ask twice.
        """
        if request.broker_epoch >= 0:
            own = self._own_epoch()
            if own is None or request.broker_epoch < own:
                log.info("a request for broker epoch %d was refused, this one is %s", request.broker_epoch, own)
                return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self._controller_epoch:
            self._state_log.write(lines.WARN, [old_controller(self._controller_epoch)])
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _own_epoch(self) -> int | None:
        """Return the epoch of this registration; wait while there is none.

        A request that comes meanwhile is for a former life, or for the node that was made a moment ago and has not been
        read back yet: the controller will not send that again.
        """
        deadline = time.monotonic() + _REGISTRATION_S
        while (own := self._broker_epoch()) is None and not self.shutting_down and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return own

    def _origin(self, request: _FromController, correlation_id: int) -> lines.Origin:
        return lines.Origin(self._broker_id, request.controller_id, request.controller_epoch, correlation_id)

    def _write(self, level: str, messages: Iterable[str]) -> None:
        self._state_log.write(level, yielding_gil(messages))

    def _check_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in yielding_gil(partitions):
            self._delayed.check(partition)

    # --- LeaderAndIsr ---------------------------------------------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, on_leadership_change: OnLeadershipChange, *, correlation_id: int = 0
    ) -> LeaderAndIsrResponse:
        """Take over the roles the controller decided; partition by partition (BRK-26 to 33).

        ``on_leadership_change`` runs before the next control request begins (BRK-32).
        """
        origin = self._origin(request, correlation_id)
        self._write(lines.TRACE, lines.received(origin, request.partition_states))
        with self._lock:
            refusal = self._refusal(request, partial(lines.old_controller, origin))
            if refusal is not ErrorCode.NONE:
                return _leader_and_isr_response(refusal, {_name(s): refusal for s in request.partition_states})
            codes, accepted = self._sort_out(origin, request.partition_states)
            if request.broker_epoch >= 0:  # else it may be for a former life, repeated after a restart
                self._set_aside_strays(accepted)
            self._log_manager.expect({s.topic for s in accepted if self._log_manager.get(_name(s)) is None})
            lead = [s for s in accepted if s.leader == self._broker_id]
            follow = [s for s in accepted if s.leader != self._broker_id]
            live = {b.broker_id: LeaderAddress(b.broker_id, b.host, b.port) for b in request.live_leaders}
            leaders = self._make_leaders(origin, lead, codes)
            followers = self._make_followers(origin, follow, live, codes)
            self._moves.resume([*leaders, *followers])
            if self._on_first is not None:
                self._on_first()
                self._on_first = None
            self._fetchers.close_idle()
            on_leadership_change(leaders, followers)
            return _leader_and_isr_response(ErrorCode.NONE, codes)

    def _sort_out(
        self, origin: lines.Origin, states: Sequence[LeaderAndIsrPartition]
    ) -> tuple[dict[TopicPartition, ErrorCode], list[LeaderAndIsrPartition]]:
        """Return a code for each partition, and those to go on with (BRK-26)."""
        codes: dict[TopicPartition, ErrorCode] = {}
        accepted: list[LeaderAndIsrPartition] = []
        ignored: list[str] = []
        for state in yielding_gil(states):
            topic_partition = _name(state)
            partition = self._partitions.get(topic_partition)
            current = partition.leader_epoch if partition else -1
            if self._partitions.is_offline(topic_partition):
                codes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                ignored.append(lines.ignored(origin, topic_partition, lines.in_offline_dir()))
            elif state.leader_epoch <= current:
                codes[topic_partition] = ErrorCode.STALE_CONTROLLER_EPOCH
                ignored.append(lines.ignored(origin, topic_partition, lines.old_leader_epoch(state, current)))
            elif self._broker_id not in state.replicas:
                codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ignored.append(lines.ignored(origin, topic_partition, lines.not_assigned(state)))
            else:
                codes[topic_partition] = ErrorCode.NONE
                accepted.append(state)
                self._waiting.pop(topic_partition, None)
        if ignored:
            self._state_log.write(lines.WARN, ignored)
        return codes, accepted

    def _set_aside_strays(self, states: Sequence[LeaderAndIsrPartition]) -> None:
        """Let no partition said to be new here, or replica that a move begins, adopt the log that an earlier topic left.

        Only a log that this life of the broker has not used yet, and never one that the cluster counts on. After the first
        news of a life nothing is new any more: what a broker that was away has of an earlier topic, or of a partition that
        is not assigned to it, is found by the topic's identity at its start and before it registers again
        (``LogManager.find_strays``). That leaves what came since then, and logs with no identity noted.
        """
        for state in yielding_gil(states):
            if not state.is_new or (state.leader_epoch > 0 and self._broker_id in state.isr):
                continue
            found = self._log_manager.get(_name(state))
            if found is not None and found.log_end_offset and self._partitions.get(_name(state)) is None:
                with contextlib.suppress(StorageError):  # its dir is offline: making the log anew is refused, too
                    self._log_manager.set_aside(_name(state))
                self._partitions.checkpointed.pop(_name(state), None)

    def _make_leaders(
        self, origin: lines.Origin, states: Sequence[LeaderAndIsrPartition], codes: dict[TopicPartition, ErrorCode]
    ) -> list[Partition]:
        """Stop the fetchers of all, then lead (BRK-28)."""
        if not states:
            return []
        names = [_name(s) for s in states]
        self._write(lines.TRACE, lines.starting(origin, "leader", names))
        self._fetchers.remove(names)
        self._write(lines.TRACE, lines.fetchers_stopped_to_lead(origin, states))
        led: list[Partition] = []
        for state, topic_partition in yielding_gil(zip(states, names, strict=True)):
            try:
                partition = self._partitions.get(topic_partition) or self._create(topic_partition, state.is_new)
                is_new, _ = partition.make_leader(state)
            except _OPENING_ERRORS as e:
                codes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                self._state_log.write(lines.ERROR, [lines.disk_failed(origin, "leader", state, e)])
                continue
            led.append(partition)
            if not is_new:
                self._state_log.write(lines.INFO, [lines.leads_already(origin, state)])
        self._check_delayed(p.tp for p in led)
        self._write(lines.TRACE, lines.completed(origin, "leader", names))
        return led

    def _make_followers(
        self,
        origin: lines.Origin,
        states: Sequence[LeaderAndIsrPartition],
        live: dict[int, LeaderAddress],
        codes: dict[TopicPartition, ErrorCode],
    ) -> list[Partition]:
        """Adopt the new leader, then fetch from it (BRK-29). Partitions whose leader is not known wait (BRK-30).

        Return those that now follow, and those that wait but were led here: a deposed leader may serve nobody.
        """
        if not states:
            return []
        names = [_name(s) for s in states]
        self._write(lines.TRACE, lines.starting(origin, "follower", names))
        changed: list[tuple[Partition, LeaderAddress]] = []
        deposed: list[Partition] = []
        for state, topic_partition in yielding_gil(zip(states, names, strict=True)):
            try:
                partition = self._partitions.get(topic_partition) or self._create(topic_partition, state.is_new)
            except _OPENING_ERRORS as e:
                codes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                self._state_log.write(lines.ERROR, [lines.disk_failed(origin, "follower", state, e)])
                continue
            address = self._address_of(state.leader) or live.get(state.leader)
            if address is None:
                self._waiting[topic_partition] = (state, origin)
                self._state_log.write(lines.ERROR, [lines.leader_unavailable(origin, state)])
                if partition.stop_leading():
                    deposed.append(partition)
            elif partition.make_follower(state):
                changed.append((partition, address))
            else:
                self._state_log.write(lines.INFO, [lines.follows_already(origin, state)])
        self._check_delayed(partition.tp for partition in deposed)
        self._start_following(origin, changed)
        self._write(lines.TRACE, lines.completed(origin, "follower", names))
        return [*deposed, *(partition for partition, _ in changed)]

    def _start_following(self, origin: lines.Origin, changed: Sequence[tuple[Partition, LeaderAddress]]) -> None:
        if not changed:
            return
        names = [partition.tp for partition, _ in changed]
        self._fetchers.remove(names)
        self._write(lines.TRACE, lines.fetchers_stopped_to_follow(origin, names))
        self._check_delayed(names)
        self._write(lines.TRACE, lines.truncated(origin, names))
        if self.shutting_down:
            self._write(lines.TRACE, lines.fetchers_not_started(origin, names))
            return
        self._fetchers.add(changed)
        self._write(lines.TRACE, lines.fetchers_started(origin, names))

    def _create(self, topic_partition: TopicPartition, is_new: bool) -> Partition:
        partition = self._make_partition(topic_partition, is_new)
        self._partitions.add(partition)
        return partition

    def _address_of(self, broker_id: int) -> LeaderAddress | None:
        endpoint = self._metadata_cache.broker_endpoint(broker_id, self._listener)
        return LeaderAddress(broker_id, endpoint.host, endpoint.port) if endpoint else None

    # --- UpdateMetadata -------------------------------------------------------------------------------------------

    def update_metadata(
        self,
        request: UpdateMetadataRequest,
        on_leadership_change: OnLeadershipChange = lambda *_: None,
        *,
        correlation_id: int = 0,
    ) -> MetadataUpdate:
        """Hand it to the metadata cache; partitions that waited for their leader's address follow it now (BRK-30).

        ``on_leadership_change`` is called with those.
        """
        origin = self._origin(request, correlation_id)
        with self._lock:
            refusal = self._refusal(request, partial(lines.metadata_from_old_controller, origin))
            if refusal is not ErrorCode.NONE:
                return MetadataUpdate(refusal, [])
            removed = self._metadata_cache.update(request)
            self._write(lines.TRACE, lines.metadata(origin, request.partition_states))
            if self._waiting:
                on_leadership_change([], self._follow_those_that_waited())
            return MetadataUpdate(ErrorCode.NONE, removed)

    def _follow_those_that_waited(self) -> list[Partition]:
        followers: list[Partition] = []
        for topic_partition, (state, origin) in list(self._waiting.items()):
            address = self._address_of(state.leader)
            partition = self._partitions.get(topic_partition)
            if partition is None:
                del self._waiting[topic_partition]
            elif address is not None:
                del self._waiting[topic_partition]
                if partition.make_follower(state):
                    self._start_following(origin, [(partition, address)])
                    followers.append(partition)
        return followers

    # --- AlterReplicaLogDirs --------------------------------------------------------------------------------------

    def alter_log_dirs(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Have each replica in the log dir of that absolute path; return what to answer (ADM-68)."""
        with self._lock:
            return self._moves.alter(wanted)

    # --- StopReplica ----------------------------------------------------------------------------------------------

    def stop_replicas(
        self, request: StopReplicaRequest, on_deleted: Callable[[list[TopicPartition]], None] = lambda _: None
    ) -> StopReplicaResponse:
        """Stop fetching, and with ``delete_partitions`` drop partition and log (BRK-109 to 111).

        ``on_deleted`` is called with the partitions that were to be deleted.
        """
        with self._lock:
            old_controller = partial(lines.stop_from_old_controller, self._broker_id, request.controller_epoch)
            refusal = self._refusal(request, old_controller)
            if refusal is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=refusal, partitions=[])
            names = [TopicPartition(*p) for p in request.partitions]
            self._fetchers.remove(names)
            delete = request.delete_partitions
            answers = []
            for topic_partition in yielding_gil(names):
                self._state_log.write(lines.TRACE, [lines.stopping(self._broker_id, topic_partition, delete)])
                code = self._delete(topic_partition) if delete else self._stop(topic_partition)
                self._state_log.write(lines.TRACE, [lines.stopped(self._broker_id, topic_partition, delete)])
                topic, partition = topic_partition
                answers.append(StopReplicaResponsePartition(topic=topic, partition=partition, error_code=code))
            self._fetchers.close_idle()
            if delete:
                on_deleted(names)
            return StopReplicaResponse(partitions=answers)

    def set_aside(self, partitions: Collection[TopicPartition]) -> None:
        """Drop replicas that the cluster assigns here no more: the order to delete them never came. Logs are set aside."""
        with self._lock:
            self._fetchers.remove(list(partitions))
            for topic_partition in yielding_gil(partitions):
                self._waiting.pop(topic_partition, None)
                self._moves.give_up(topic_partition)
                if (partition := self._partitions.remove(topic_partition)) is not None:
                    partition.retire()
                    self._check_delayed([topic_partition])
                with contextlib.suppress(StorageError):  # its dir is offline, and serves nothing
                    self._log_manager.set_aside(topic_partition)
            self._fetchers.close_idle()

    def _stop(self, topic_partition: TopicPartition) -> ErrorCode:
        """Keep the data, but let no request wait for it any longer (KAFKA-9198)."""
        if self._partitions.is_offline(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._delayed.abandon(topic_partition)
        return ErrorCode.NONE

    def _delete(self, topic_partition: TopicPartition) -> ErrorCode:
        self._waiting.pop(topic_partition, None)
        if self._partitions.is_offline(topic_partition):
            self._state_log.write(lines.ERROR, [lines.stop_failed(self._broker_id, topic_partition)])
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._moves.give_up(topic_partition)
        partition = self._partitions.remove(topic_partition)
        if partition is not None:
            partition.retire()
            self._check_delayed([topic_partition])
        elif self._log_manager.get(topic_partition) is None:
            self._state_log.write(lines.TRACE, [lines.nothing_to_stop(self._broker_id, topic_partition)])
            return ErrorCode.NONE
        try:
            self._log_manager.delete(topic_partition)
        except _DISK_ERRORS:
            log.exception("%s could not be deleted", topic_partition)
            self._state_log.write(lines.ERROR, [lines.stop_failed(self._broker_id, topic_partition)])
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def _name(state: LeaderAndIsrPartition) -> TopicPartition:
    return TopicPartition(state.topic, state.partition)


def _leader_and_isr_response(error: ErrorCode, codes: dict[TopicPartition, ErrorCode]) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(
        error_code=error,
        partitions=[
            LeaderAndIsrResponsePartition(topic=tp.topic, partition=tp.partition, error_code=code)
            for tp, code in codes.items()
        ],
    )
