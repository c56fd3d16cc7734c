"""All moves of replicas between this broker's log dirs, and the thread that carries them out (ADM-68, ADM-69).

One thread for all, and one replica after the other: a disk is read and written best by one, and each that is done gives
its space back. Source: Kafka 2.8.2 server/ReplicaManager.scala, server/ReplicaAlterLogDirsManager.scala.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kafkatool.broker.replication.moving.copying import Move
from kafkatool.broker.replication.moving.decisions import Asked, judge, shared_end
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.replica_copy import ReplicaCopy
from kafkatool.broker.replication.partition.replication_quota import NO_RATE, RateWindow
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import OutOfResourcesError, StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024  # read and written at a time
_LOOK_S = 0.1  # how often the throttle is asked again
_RETRY_MS = 1000


class LogDirMoves:
    """The moves under way. All but the thread's own work is called under the lock of the control requests."""

    def __init__(
        self,
        partitions: LocalPartitions,
        log_manager: LogManager,
        window: RateWindow,
        clock_ms: Callable[[], float],
        on_moved: Callable[[TopicPartition], object],
        *,
        name: str,
    ) -> None:
        """``on_moved`` is called after a replica has changed to its new log. The thread is started by the first move."""
        self._partitions = partitions
        self._log_manager = log_manager
        self._window = window
        self._clock_ms = clock_ms
        self._on_moved = on_moved
        self._limit = NO_RATE
        self._changed = threading.Condition()
        self._moves: dict[TopicPartition, Move] = {}
        self._stopping = False
        self._name = name
        self._thread: threading.Thread | None = None

    @property
    def under_way(self) -> list[TopicPartition]:
        """Return the replicas that are being moved."""
        return list(self._moves)

    def set_rate(self, bytes_per_second: int) -> None:
        """Copy no faster; NO_RATE: as fast as it goes."""
        self._limit = bytes_per_second

    def shutdown(self) -> None:
        """Stop where it is; the next start goes on."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # --- what is asked for ----------------------------------------------------------------------------------------

    def alter(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Have each replica in that log dir, named by its absolute path; return what to answer (ADM-68)."""
        return {partition: self._alter(partition, path) for partition, path in wanted.items()}

    def _alter(self, topic_partition: TopicPartition, name: str) -> ErrorCode:
        manager = self._log_manager
        live, offline = manager.live_dirs, manager.offline_dirs
        path = next((one for one in (*live, *offline) if str(one.absolute()) == name), None)
        found = self._partitions.find(topic_partition, missing=ErrorCode.REPLICA_NOT_AVAILABLE)
        current, copy = manager.get(topic_partition), manager.copy_of(topic_partition)
        verdict = judge(
            Asked(
                path=path or Path(name),
                is_log_dir=path is not None,
                fits_name=manager.can_move(topic_partition),
                live_dirs=live,
                some_offline=bool(offline),
                found=found if isinstance(found, ErrorCode) else ErrorCode.NONE,
                now_in=None if current is None else current.directory.parent,
                moves_to=None if copy is None else copy.directory.parent,
            )
        )
        try:
            if verdict.give_up:
                self.give_up(topic_partition)
                if manager.get(topic_partition) is not current:  # it was done a moment before
                    return self._alter(topic_partition, name)
                manager.drop_copy(topic_partition)
            if verdict.remember and path is not None:
                manager.want_in(topic_partition, path)
            if verdict.begin and path is not None and isinstance(found, Partition):
                self._begin(found, ReplicaCopy(manager.create_copy(topic_partition, path)))
            elif isinstance(found, Partition) and verdict.code is ErrorCode.NONE:
                self.resume([found])
        except StorageError as e:
            log.warning("%s: %s", topic_partition, e)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if verdict.code is not ErrorCode.NONE:
            log.warning("%s does not move to %s: %s", topic_partition, name, verdict.code.name)
        return verdict.code

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Go on with the moves of these, if they have any that is not under way: begun in an earlier life, or failed."""
        for partition in partitions:
            copied = self._log_manager.copy_of(partition.tp)
            if copied is not None and partition.tp not in self._moves:
                shared = _shared(partition.log, copied)
                log.info("%s moves on to %s, from offset %d", partition.tp, copied.directory.parent, shared)
                self._begin(partition, ReplicaCopy(copied, shared if shared < copied.log_end_offset else None))

    def give_up(self, topic_partition: TopicPartition) -> None:
        """End the move, if there is one: it is not wanted any more, or the replica goes."""
        with self._changed:
            move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.partition.give_up_copy()

    def _begin(self, partition: Partition, copy: ReplicaCopy) -> None:
        partition.take_copy(copy)
        with self._changed:
            if self._stopping:
                return
            self._moves[partition.tp] = Move(partition, copy)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (move := self._next()) is not None:
            try:
                self._window.add(move.advance(self._log_manager, max(1, min(_CHUNK_BYTES, self._limit))))
            except OutOfResourcesError as e:
                log.warning("%s", e)
                move.delayed_until_ms = self._clock_ms() + _RETRY_MS
            except StorageError as e:  # one of both log dirs is offline, or the move was just given up
                if not move.is_over:
                    log.error("%s does not move on: %s", move.partition.tp, e)
                self._forget(move)
            except Exception:  # a thread's top: the others must still move
                log.exception("%s does not move on until it is asked for again", move.partition.tp)
                self._forget(move)
            else:
                if move.is_over:
                    self._forget(move)
                    self._on_moved(move.partition.tp)

    def _next(self) -> Move | None:
        """Return the move to go on with, when the throttle lets it; None at the end."""
        with self._changed:
            while not self._stopping:
                now_ms = self._clock_ms()
                due = next((move for move in self._moves.values() if move.is_due(now_ms)), None)
                if due is not None and self._window.bytes_per_second() <= self._limit:
                    return due
                self._changed.wait(_LOOK_S if self._moves else None)
            return None

    def _forget(self, move: Move) -> None:
        with self._changed:
            if self._moves.get(move.partition.tp) is move:
                del self._moves[move.partition.tp]


def _shared(original: Log, copied: Log) -> int:
    end = shared_end(
        original.leader_epochs.entries, original.log_end_offset, copied.leader_epochs.entries, copied.log_end_offset
    )
    return end if copied.gap_at is None else min(end, copied.gap_at)  # what a power cut took of it is copied anew
