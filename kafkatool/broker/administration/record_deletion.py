"""Dropping the records below an offset on the leader, and seeing when all live replicas have dropped them (KIP-107).

Followers learn of the new log start with their next fetch, and tell theirs with the one after. Source: Kafka 2.3.1
cluster/Partition.scala (deleteRecordsOnLeader, lowWatermarkIfLeader), server/DelayedDeleteRecords.scala.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_LOOK_EVERY_MS = 50
UP_TO_HIGH_WATERMARK = -1
FindLeader = Callable[[TopicPartition], Partition | ErrorCode]


@dataclass(slots=True)
class Deletion:
    """One partition's part of a request."""

    target: int = -1
    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = -1


def delete_on_leader(partition: TopicPartition, offset: int, find_leader: FindLeader) -> Deletion:
    """Raise the log start here; -1 as offset stands for the high watermark."""
    if partition.topic in INTERNAL_TOPICS:
        return Deletion(error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    found = find_leader(partition)
    if isinstance(found, ErrorCode):
        return Deletion(error=found)
    with found.lock:
        log = found.leader_log
        if log is None:
            return Deletion(error=ErrorCode.NOT_LEADER_FOR_PARTITION)
        if "delete" not in log.config.cleanup_policy:
            return Deletion(error=ErrorCode.POLICY_VIOLATION)
        target = found.high_watermark.offset if offset == UP_TO_HIGH_WATERMARK else offset
        if not 0 <= target <= found.high_watermark.offset:
            return Deletion(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            log.advance_log_start(target)
        except StorageError:
            return Deletion(error=ErrorCode.KAFKA_STORAGE_ERROR)
    return Deletion(target)


def low_watermark(partition: Partition, live: Collection[int]) -> int | None:
    """The smallest log start of all replicas on live brokers; None: not led here any more."""
    with partition.lock:
        log = partition.leader_log
        if log is None:
            return None
        followers = [replica.log_start_offset for broker, replica in partition.remote.items() if broker in live]
        return min([log.log_start_offset, *followers])


@dataclass(slots=True)
class WaitingDeletions:
    """A request under way: looked at every 50 ms until all is done or the time is out, then answered, once."""

    deletions: Mapping[TopicPartition, Deletion]
    find_leader: FindLeader
    live_brokers: Callable[[], Collection[int]]
    timer: Timer
    answer: Callable[[], None]
    _left_ms: float = field(default=0, init=False)

    def start(self, timeout_ms: float) -> None:
        self._left_ms = timeout_ms
        self._look()

    def _look(self) -> None:
        live = self.live_brokers()
        pending = [d for p, d in self.deletions.items() if d.error is ErrorCode.NONE and not self._done(p, d, live)]
        if pending and self._left_ms > 0:
            wait_ms = min(_LOOK_EVERY_MS, self._left_ms)
            self._left_ms -= wait_ms
            self.timer.add(wait_ms, self._look)
            return
        for deletion in pending:
            deletion.error = ErrorCode.REQUEST_TIMED_OUT
        self.answer()

    def _done(self, partition: TopicPartition, deletion: Deletion, live: Collection[int]) -> bool:
        found = self.find_leader(partition)
        low = None if isinstance(found, ErrorCode) else low_watermark(found, live)
        if low is None:
            deletion.error = found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_FOR_PARTITION
            return True
        deletion.low_watermark = low
        return low >= deletion.target
