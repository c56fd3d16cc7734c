"""Drops the records below an offset on the leader, and waits until all live replicas have dropped them (KIP-107).

Followers learn of the new log start with their next fetch, and tell theirs with the one after. Source: Kafka 2.3.1
cluster/Partition.scala (deleteRecordsOnLeader, lowWatermarkIfLeader), server/DelayedDeleteRecords.scala.
"""

import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.delayed_requests import LIVE_BROKERS
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

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
    """Return the smallest log start of all replicas on live brokers; None: not led here any more."""
    with partition.lock:
        log = partition.leader_log
        if log is None:
            return None
        followers = [replica.log_start_offset for broker, replica in partition.remote.items() if broker in live]
        return min([log.log_start_offset, *followers])


class DelayedDeletion(DelayedOperation):
    """A request that waits until all live replicas have dropped the records. A settled partition keeps its result.

    Followers' fetches, changes of role and of the live brokers have it look again.
    """

    def __init__(
        self,
        timeout_ms: float,
        deletions: Mapping[TopicPartition, Deletion],
        find_leader: FindLeader,
        metadata_cache: MetadataCache,
        on_done: Callable[[], None],
    ) -> None:
        """Take the ``deletions`` as done on the leader; those without error are waited for, and settled in place."""
        super().__init__(timeout_ms)
        self._unsettled = {p: deletion for p, deletion in deletions.items() if deletion.error is ErrorCode.NONE}
        self._find_leader = find_leader
        self._metadata_cache = metadata_cache
        self._on_done = on_done
        self._settling = threading.Lock()  # one thread looks at a time: none changes what another has answered

    @property
    def subjects(self) -> tuple[Hashable, ...]:
        """Return the keys to watch it under."""
        return (*self._unsettled, LIVE_BROKERS)

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self.completed:
            return True
        with self._settling:
            live = self._metadata_cache.snapshot.brokers
            for partition in [p for p, deletion in self._unsettled.items() if self._is_done(p, deletion, live)]:
                del self._unsettled[partition]
        return self.complete() if not self._unsettled else False

    def _is_done(self, partition: TopicPartition, deletion: Deletion, live: Collection[int]) -> bool:
        found = self._find_leader(partition)
        low = None if isinstance(found, ErrorCode) else low_watermark(found, live)
        if low is None:
            deletion.error = found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_FOR_PARTITION
            return True
        deletion.low_watermark = low
        return low >= deletion.target

    def abandon(self, key: Hashable) -> None:
        self.try_complete()  # a leader that is told to stop its replica stays leader (BRK-109)

    def on_expire(self) -> None:
        with self._settling:
            for deletion in self._unsettled.values():
                deletion.error = ErrorCode.REQUEST_TIMED_OUT
            self._unsettled.clear()

    def on_complete(self) -> None:
        self._on_done()
