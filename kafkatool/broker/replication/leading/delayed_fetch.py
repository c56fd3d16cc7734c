"""The fetches that wait for data (BRK-97 to 100)."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.replication.leading.fetch_session import FetchResults, FetchSession, SessionPartition
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import PartitionRead, Reader, readable_end, readable_log
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition


class AwaitedPartition(NamedTuple):
    """One partition of a fetch without a session: its part of the request, and where that lay when last read."""

    wanted: FetchRequestPartition
    start: LogOffset | None  # None: the read failed


_AT_ONCE = 1 << 62  # more bytes than any fetch waits for: the fetch has to be answered now


@dataclass(eq=False)
class DelayedFetch(DelayedOperation):
    """A fetch that completes when enough can be read, or when the reader must be told of a change.

    ``_is_held_back(partition, replica_id)``: withheld by the quota (BRK-102).
    """

    _reader: Reader
    _min_bytes: int
    _awaited: dict[TopicPartition, AwaitedPartition] | FetchSession  # the items of a session are those that changed
    _find: Callable[[TopicPartition], Partition | ErrorCode]
    _is_held_back: Callable[[Partition, int], bool]
    _respond: Callable[[], None]

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self.completed:
            return True
        if key is not None and self._min_bytes <= 1:
            # One byte is enough, and only this partition has changed since all were looked at.
            awaited = self._awaited.get(key)  # type: ignore[arg-type, call-overload]
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

    def _readable_bytes(self, topic_partition: TopicPartition, awaited: AwaitedPartition | SessionPartition) -> int:
        partition = self._find(topic_partition)
        if isinstance(partition, ErrorCode):
            return _AT_ONCE
        wanted, start = awaited.wanted, awaited.start
        if start is None:
            return _AT_ONCE
        reader = self._reader
        log = readable_log(partition, reader.replica_id, wanted.current_leader_epoch, anywhere=reader.anywhere)
        if isinstance(log, ErrorCode):
            return _AT_ONCE
        try:
            end = readable_end(partition, log, reader)
        except StorageError:
            return _AT_ONCE
        if end.offset == start.offset:
            return 0
        held_back = reader.is_follower and self._is_held_back(partition, reader.replica_id)
        if end.segment_base != start.segment_base:
            # The log was rolled, or cut: how much there is cannot be told from positions.
            return 0 if held_back and end.offset > start.offset else _AT_ONCE
        if end.offset < start.offset or held_back or end.position is None or start.position is None:
            return 0
        return min(end.position - start.position, wanted.partition_max_bytes)

    def on_complete(self) -> None:
        self._respond()


@dataclass(eq=False)
class FollowerFetch(DelayedOperation):
    """A follower's fetch that waits in its session for any byte, or an error to tell, as nearly all of them do.

    It is tried by reading: the append it waits for is what has it tried, so asking first whether there is something
    would only be the same look twice. What was found is the answer, unless another thread was faster; then its mark
    stays in the session and the next request finds it. ``_look()`` reads what has changed since the fetch came to wait.
    """

    _look: Callable[[], FetchResults]
    _respond: Callable[[FetchResults], None]
    _is_news: Callable[[TopicPartition, PartitionRead], bool] | None = None
    """Whether a read without records answers it too: where consumers read from followers, these hear at once up to where
    they may give."""

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self._once.locked():
            return True
        found = self._look()
        for partition, read in found:
            is_news = self._is_news is not None and self._is_news(partition, read)
            if read.size_bytes or read.error is not ErrorCode.NONE or is_news:
                if self._claim():
                    self._respond(found)
                return True
        return False

    def on_complete(self) -> None:
        self._respond(self._look())
