"""A produce with acks=-1 that waits until its records are on all in-sync replicas (BRK-88 to 90)."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.broker.storage.batches.append_error import RecordError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class AppendResult(NamedTuple):
    """The outcome of an append to one partition. The time is -1 unless LogAppendTime (BRK-86).

    Offsets are -1 on error, but for the log start of most batches that the log refuses.
    """

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    next_offset: int = -1
    """The offset after the last record appended."""
    leader_epoch: int = -1
    """The epoch in which they were."""
    record_errors: tuple[RecordError, ...] = ()


AppendResults = Mapping[TopicPartition, AppendResult]


@dataclass(eq=False)
class DelayedProduce(DelayedOperation):
    """A produce settled partition by partition; a settled one keeps its result whatever becomes of others (BRK-89).

    ``_results`` are those of the local appends; those without error are waited for.
    """

    _find_leader: Callable[[TopicPartition], Partition | ErrorCode]
    _results: dict[TopicPartition, AppendResult]
    _on_done: Callable[[AppendResults], None]

    def __post_init__(self) -> None:
        self._unsettled = {tp: result for tp, result in self._results.items() if result.error is ErrorCode.NONE}

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return those still waited for."""
        return tuple(self._unsettled)

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self._once.locked():
            return True
        for topic_partition, result in list(self._unsettled.items()):
            if key is None or key == topic_partition:
                self._try_settle(topic_partition, result)
        return self.complete() if not self._unsettled else False

    def _try_settle(self, topic_partition: TopicPartition, result: AppendResult) -> None:
        partition = self._find_leader(topic_partition)
        if isinstance(partition, ErrorCode):
            self._settle(topic_partition, partition)
            return
        enough, error = partition.acknowledged(result.next_offset, result.leader_epoch)
        if enough or error is not ErrorCode.NONE:
            self._settle(topic_partition, error)

    def _settle(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        # The result stands before the partition counts as settled: another thread that finds nothing unsettled
        # answers at once, and would take an error not yet noted for an acknowledgement.
        if error is not ErrorCode.NONE and topic_partition in self._unsettled:
            appended = self._results[topic_partition].next_offset  # who writes for itself goes on waiting (TXN-21)
            self._results[topic_partition] = AppendResult(error, next_offset=appended)
        self._unsettled.pop(topic_partition, None)

    def abandon(self, key: Hashable) -> None:
        assert isinstance(key, TopicPartition)
        self._settle(key, ErrorCode.NOT_LEADER_FOR_PARTITION)
        self.try_complete(key)

    def on_expire(self) -> None:
        for topic_partition in list(self._unsettled):
            self._settle(topic_partition, ErrorCode.REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._on_done(self._results)
