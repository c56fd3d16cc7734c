"""A fetch that waits for data (BRK-97 to 100)."""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, Protocol

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import Reader, readable_end, readable_log
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition


class Awaited(Protocol):
    """One partition of a waiting fetch: its part of the request, and where that lay when last read (None: failed)."""

    @property
    def wanted(self) -> FetchRequestPartition: ...
    @property
    def start(self) -> LogOffset | None: ...


class AwaitedPartition(NamedTuple):
    """One partition of a fetch without a session."""

    wanted: FetchRequestPartition
    start: LogOffset | None


class Awaiting(Protocol):
    """The partitions a fetch waits for: a dict, or a session, whose items are only those that changed."""

    def get(self, partition: TopicPartition, /) -> Awaited | None: ...
    def items(self) -> Iterable[tuple[TopicPartition, Awaited]]: ...


_AT_ONCE = 1 << 62  # more bytes than any fetch waits for: the fetch has to be answered now


class DelayedFetch(DelayedOperation):
    """A fetch that completes when enough can be read, or when the reader must be told of a change."""

    def __init__(
        self,
        max_wait_ms: float,
        reader: Reader,
        min_bytes: int,
        awaited: Awaiting,
        find: Callable[[TopicPartition], Partition | ErrorCode],
        is_held_back: Callable[[Partition, int], bool],
        on_complete: Callable[[], None],
    ) -> None:
        """Note what it waits for. ``is_held_back(partition, replica_id)``: withheld by the quota (BRK-102)."""
        super().__init__(max_wait_ms)
        self._reader = reader
        self._min_bytes = min_bytes
        self._awaited = awaited
        self._find = find
        self._is_held_back = is_held_back
        self._respond = on_complete

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self.completed:
            return True
        if key is not None and self._min_bytes <= 1:
            # One byte is enough, and only this partition has changed since all were looked at.
            awaited = self._awaited.get(key)  # type: ignore[arg-type]
            enough = awaited is not None and self._readable_bytes(key, awaited) > 0  # type: ignore[arg-type]
        else:
            enough = self._has_enough()
        return self.complete() if enough else False

    def _has_enough(self) -> bool:
        readable_bytes = 0
        for topic_partition, awaited in self._awaited.items():
            readable_bytes += self._readable_bytes(topic_partition, awaited)
            if readable_bytes >= self._min_bytes:
                return True
        return False

    def _readable_bytes(self, topic_partition: TopicPartition, awaited: Awaited) -> int:
        partition = self._find(topic_partition)
        if isinstance(partition, ErrorCode):
            return _AT_ONCE
        wanted, start = awaited.wanted, awaited.start
        if start is None:
            return _AT_ONCE
        log = readable_log(partition, self._reader.replica_id, wanted.current_leader_epoch)
        if isinstance(log, ErrorCode):
            return _AT_ONCE
        try:
            end = readable_end(partition, log, self._reader)
        except StorageError:
            return _AT_ONCE
        if end.offset == start.offset:
            return 0
        held_back = self._reader.is_follower and self._is_held_back(partition, self._reader.replica_id)
        if end.segment_base != start.segment_base:
            # The log was rolled, or cut: how much there is cannot be told from positions.
            return 0 if held_back and end.offset > start.offset else _AT_ONCE
        if end.offset < start.offset or held_back or end.position is None or start.position is None:
            return 0
        return min(end.position - start.position, wanted.partition_max_bytes)

    def on_complete(self) -> None:
        self._respond()
