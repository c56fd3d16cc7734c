"""Appends on the leader: write, try what waits for it, answer now or when enough replicas have it (BRK-82 to 90)."""

import logging
from collections.abc import Callable, Mapping

from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults, DelayedProduce
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import ALL_IN_SYNC
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

WritableBuffer = bytearray | memoryview
"""A record batch into which the log writes offset and leader epoch."""

_DISK_FAILED = AppendResult(ErrorCode.KAFKA_STORAGE_ERROR)
_INTERNAL_TOPIC = AppendResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
_BAD_ACKS = AppendResult(ErrorCode.INVALID_REQUIRED_ACKS)


class Appends:
    """The way of batches into the partitions led here. Any thread."""

    def __init__(
        self, partitions: LocalPartitions, delayed: DelayedRequests, *, acks_all_allowed: Callable[[], bool]
    ) -> None:
        self._partitions = partitions
        self._produces = delayed.produces
        self._fetches = delayed.fetches
        self._acks_all_allowed = acks_all_allowed

    def append(
        self,
        entries: Mapping[TopicPartition, WritableBuffer],
        *,
        acks: int,
        timeout_ms: float,
        internal: bool = False,
        allow_internal_topics: bool = False,
        on_done: Callable[[AppendResults], None],
    ) -> None:
        """Append; ``on_done`` is called once, on this thread or on the one that completes the wait.

        ``internal``: by this broker's own coordinators, whose batches are not checked like a client's. Others need
        ``allow_internal_topics`` to write to theirs.
        """
        if acks not in (ALL_IN_SYNC, 0, 1):
            on_done(dict.fromkeys(entries, _BAD_ACKS))
            return
        results: dict[TopicPartition, AppendResult] = {}
        for topic_partition, records in entries.items():
            if topic_partition.topic in INTERNAL_TOPICS and not (internal or allow_internal_topics):
                results[topic_partition] = _INTERNAL_TOPIC
            else:
                results[topic_partition] = self._append_one(topic_partition, records, acks, internal)
        if acks != ALL_IN_SYNC:
            on_done(results)
            return
        operation = DelayedProduce(timeout_ms, self._partitions.leader, results, on_done)
        if operation.partitions:
            self._produces.watch(operation, operation.partitions)
        else:
            on_done(results)

    def _append_one(
        self, topic_partition: TopicPartition, records: WritableBuffer, acks: int, internal: bool
    ) -> AppendResult:
        partition = self._partitions.find(topic_partition)
        if isinstance(partition, ErrorCode):
            return AppendResult(partition)
        if acks == ALL_IN_SYNC and not self._acks_all_allowed():
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, message="the ZooKeeper session is not confirmed")
        try:
            info, raised = partition.append_as_leader(records, acks=acks, origin_client=not internal)
        except AppendError as e:
            partition.counts.failed_appends += 1
            return AppendResult(e.code, message=str(e), record_errors=e.record_errors)
        except StorageError as e:
            log.error("append to %s failed: %s", topic_partition, e)
            return _DISK_FAILED
        partition.counts.appends += 1
        partition.counts.bytes_in += len(records)
        self._fetches.check(topic_partition)
        if raised:
            self._produces.check(topic_partition)
        time_ms = -1 if info.log_append_time_ms is None else info.log_append_time_ms
        return AppendResult(
            ErrorCode.NONE, info.first_offset, time_ms, info.log_start_offset, next_offset=info.last_offset + 1
        )
