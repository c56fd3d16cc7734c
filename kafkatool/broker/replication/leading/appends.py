"""Appends on the leader: write, try what waits for it, answer now or when enough replicas have it (BRK-82 to 90)."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults, DelayedProduce
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import ALL_IN_SYNC
from kafkatool.broker.storage.batches.append_error import AppendError, TooMuchInsideError
from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.batches.produced_sets import as_stored
from kafkatool.broker.storage.log_config import RECORD_BATCHES
from kafkatool.broker.storage.producers.producer_state import Verification
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

WritableBuffer = bytearray | memoryview
"""A record batch into which the log writes offset and leader epoch."""

KNOWN_ACKS = (ALL_IN_SYNC, 0, 1)

_DISK_FAILED = AppendResult(ErrorCode.KAFKA_STORAGE_ERROR)
_INTERNAL_TOPIC = AppendResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
_BAD_ACKS = AppendResult(ErrorCode.INVALID_REQUIRED_ACKS)
_NONE: Final[Mapping[TopicPartition, Verification]] = {}

_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
"""Refusals that tell no log start, as in Kafka 2.8 (server/ReplicaManager.scala). All others do: a Java producer that is
told UNKNOWN_PRODUCER_ID without it repeats the batch as it is until its time is out."""


class Appends:
    """The way of batches into the partitions led here. Any thread."""

    def __init__(
        self, partitions: LocalPartitions, delayed: DelayedRequests, *, acks_all_allowed: Callable[[], bool]
    ) -> None:
        self._partitions = partitions
        self._produces = delayed.produces
        self._fetches = delayed.fetches
        self._acks_all_allowed = acks_all_allowed
        self.on_too_much: Callable[[TopicPartition, TooMuchInsideError], object] = lambda _partition, _error: None
        """Told of each batch that is refused for what is inside; must not wait for anything."""

    def append(
        self,
        entries: Mapping[TopicPartition, WritableBuffer],
        *,
        acks: int,
        timeout_ms: float,
        internal: bool = False,
        allow_internal_topics: bool = False,
        verifications: Mapping[TopicPartition, Verification] = _NONE,
        still: Callable[[], bool] | None = None,
        message_sets: bool = False,
        on_done: Callable[[AppendResults], None],
    ) -> None:
        """Append; ``on_done`` is called once, on this thread or on the one that completes the wait.

        ``internal``: by this broker's own coordinators, whose batches are not checked like a client's. Others need
        ``allow_internal_topics`` to write to theirs. ``verifications``: the leave to open transactions (TXN-72);
        ``still``: see ``Partition.append_as_leader``. ``message_sets``: they are from before record batches (ADM-90).
        """
        if acks not in KNOWN_ACKS:
            on_done(dict.fromkeys(entries, _BAD_ACKS))
            return
        results: dict[TopicPartition, AppendResult] = {}
        for topic_partition, records in entries.items():
            if topic_partition.topic in INTERNAL_TOPICS and not (internal or allow_internal_topics):
                results[topic_partition] = _INTERNAL_TOPIC
            else:
                results[topic_partition] = self._append_one(
                    topic_partition, records, acks, internal, verifications.get(topic_partition), still, message_sets
                )
        if acks != ALL_IN_SYNC:
            on_done(results)
            return
        self._wait(results, timeout_ms, on_done)

    def await_replicated(
        self, partition: TopicPartition, next_offset: int, timeout_ms: float, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Call ``on_done`` when all below that offset is on the in-sync replicas, the time is out, or it is led no more."""
        found = self._partitions.get(partition)
        result = AppendResult(next_offset=next_offset, leader_epoch=-1 if found is None else found.leader_epoch)
        self._wait({partition: result}, timeout_ms, lambda results: on_done(results[partition].error))

    def _wait(
        self, results: dict[TopicPartition, AppendResult], timeout_ms: float, on_done: Callable[[AppendResults], None]
    ) -> None:
        operation = DelayedProduce(timeout_ms, self._partitions.leader, results, on_done)
        if operation.partitions:
            self._produces.watch(operation, operation.partitions)
        else:
            on_done(results)

    def _append_one(
        self,
        topic_partition: TopicPartition,
        records: WritableBuffer,
        acks: int,
        internal: bool,
        verification: Verification | None,
        still: Callable[[], bool] | None,
        message_set: bool,
    ) -> AppendResult:
        partition = self._partitions.find(topic_partition)
        if isinstance(partition, ErrorCode):
            return AppendResult(partition)
        if acks == ALL_IN_SYNC and not self._acks_all_allowed():
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, message="the ZooKeeper session is not confirmed")
        try:
            stored: WritableBuffer | OlderEntries = records
            config = partition.log.config
            if (message_set or config.record_format < RECORD_BATCHES) and partition.leader_log is not None:
                stored = as_stored(records, config, message_set=message_set, origin_client=not internal)
            info, raised, epoch = partition.append_as_leader(
                stored, acks=acks, origin_client=not internal, verification=verification, still=still
            )
        except AppendError as e:
            partition.counts.failed_appends += 1
            if isinstance(e, TooMuchInsideError):
                self.on_too_much(topic_partition, e)
            log_start = -1 if e.code in _WITHOUT_LOG_START else partition.log.log_start_offset
            return AppendResult(e.code, log_start_offset=log_start, message=str(e), record_errors=e.record_errors)
        except StorageError as e:
            log.error("append to %s failed: %s", topic_partition, e)
            return _DISK_FAILED
        partition.counts.appends += 1
        partition.counts.bytes_in += len(records)
        self._fetches.check(topic_partition)
        if raised:
            self._produces.check(topic_partition)
        elif acks == ALL_IN_SYNC and partition.lacks_a_fetch:
            self._fetches.end_waits_without(topic_partition)
        time_ms = -1 if info.log_append_time_ms is None else info.log_append_time_ms
        return AppendResult(
            *(ErrorCode.NONE, info.first_offset, time_ms, info.log_start_offset),
            next_offset=info.last_offset + 1,
            leader_epoch=epoch,
        )
