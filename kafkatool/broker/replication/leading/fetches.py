"""Fetches served here: read, note where followers are, and answer now or when there is something (BRK-92 to 102)."""

import logging
from collections.abc import Callable, Hashable

from kafkatool.broker.replication.leading.delayed_fetch import AwaitedPartition, DelayedFetch, FollowerFetch
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults, FetchSession
from kafkatool.broker.replication.partition.isr_writer import IsrWriter
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import FAILED_READS, PartitionRead, Reader, read_partition
from kafkatool.broker.replication.partition.replica import LastSessionFetch
from kafkatool.broker.replication.partition.replication_quota import ReplicationQuota
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

CloserReplica = Callable[[Partition, int], int | None]
"""Names the broker that is closer to the consumer and has the partition's records from that offset on; None: nobody."""

log = logging.getLogger(__name__)


class Fetches:
    """The fetches served here, each reading some partitions. Any thread.

    ``followers_serve``: followers are told a raised high watermark at once, as consumers wait for it there (KIP-392).
    """

    def __init__(
        self,
        partitions: LocalPartitions,
        delayed: DelayedRequests,
        isr_writer: IsrWriter,
        quota: ReplicationQuota,
        *,
        followers_serve: bool = False,
    ) -> None:
        self._partitions = partitions
        self._produces, self._fetches, self._deletions = delayed.produces, delayed.fetches, delayed.deletions
        self._isr_writer = isr_writer
        self._quota = quota
        self._followers_serve = followers_serve

    def fetch(
        self,
        entries: FetchEntries,
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        on_done: Callable[[FetchResults], None],
        session: FetchSession | None = None,
        one_batch_each: bool = False,
        closer: CloserReplica | None = None,
    ) -> None:
        """Read; ``on_done`` is called once, on this thread or on the one that ends the wait; results in request order.

        ``closer`` may name a replica that the consumer should rather read from: then nothing is read.

        ``entries`` of a ``session`` are those to be looked at; it says which those are when the wait is over.
        ``one_batch_each``: not the first partition alone may give a batch larger than its limit.
        """
        results = self._read(entries, reader, max_bytes, closer, one_batch_each)
        if reader.is_follower:
            self._record(entries, results, reader.replica_id, None if session is None else session.last_fetch)
        if max_wait_ms <= 0 or (not entries and session is None) or _enough(results, min_bytes):
            self._count(results, reader)
            on_done(results)
            return
        awaited: dict[TopicPartition, AwaitedPartition] | FetchSession
        keys: tuple[Hashable, ...]
        if session is not None:
            session.wait(results)
            awaited, keys = session, (session,)
        else:
            awaited = {
                tp: AwaitedPartition(wanted, read.start)
                for (tp, wanted), (_, read) in zip(entries, results, strict=True)
            }
            keys = tuple(awaited)

        def look() -> FetchResults:
            again = entries if session is None else session.take_again()
            return self._read(again, reader, max_bytes, closer, one_batch_each)

        def respond(found: FetchResults) -> None:
            if session is not None:
                found = session.with_untold(found)
            self._count(found, reader)
            on_done(found)

        if session is not None and reader.is_follower and min_bytes <= 1:
            is_news = None
            if self._followers_serve:
                is_news = lambda partition, read: not session.knows_high_watermark(partition, read)  # noqa: E731
            self._fetches.watch(FollowerFetch(max_wait_ms, look, respond, is_news), keys)
            return
        operation = DelayedFetch(
            max_wait_ms,
            reader,
            min_bytes,
            awaited,
            lambda tp: self._partitions.find(tp, missing=reader.missing),
            self._is_held_back,
            lambda: respond(look()),
        )
        self._fetches.watch(operation, keys)

    def _read(
        self,
        entries: FetchEntries,
        reader: Reader,
        max_bytes: int,
        closer: CloserReplica | None,
        one_batch_each: bool,
    ) -> FetchResults:
        results: FetchResults = []
        left_bytes = max_bytes
        nothing_yet = True
        throttled = self._quota.limited and reader.is_follower
        for topic_partition, wanted in entries:
            partition = self._partitions.find(topic_partition, missing=reader.missing)
            if isinstance(partition, ErrorCode):
                results.append((topic_partition, FAILED_READS[partition]))
                continue
            if closer is not None and (preferred := closer(partition, wanted.fetch_offset)) is not None:
                read = read_partition(partition, wanted, reader, 0, min_one_batch=False)
                if read.error is ErrorCode.NONE:
                    read = _emptied(read)._replace(preferred_replica=preferred)
                results.append((topic_partition, read))
                continue
            limit = min(wanted.partition_max_bytes, left_bytes)
            read = read_partition(partition, wanted, reader, limit, min_one_batch=nothing_yet)
            if read.size_bytes:
                if throttled and self._is_held_back(partition, reader.replica_id):
                    read = _emptied(read)
                else:
                    left_bytes = max(0, left_bytes - read.size_bytes)
                    nothing_yet = one_batch_each and left_bytes > 0
            results.append((topic_partition, read))
        return results

    def _record(
        self, entries: FetchEntries, results: FetchResults, replica_id: int, session_fetch: LastSessionFetch | None
    ) -> None:
        """Note the follower's positions, and draw conclusions: ISR, high watermark, what waits for them (BRK-101)."""
        for index, (topic_partition, read) in enumerate(results):
            if read.start is None:
                continue  # a failed read says nothing about the follower (BRK-40, KAFKA-8400)
            partition = self._partitions.get(topic_partition)
            if partition is None:
                log.warning("While recording the replica LEO, the partition %s hasn't been created.", topic_partition)
                continue
            recorded = partition.record_fetch(
                *(replica_id, read.start, read.leader_end, entries[index][1].log_start_offset, session_fetch),
                read_in=read.leader_epoch,
            )
            if recorded is None:
                if replica_id not in (assigned := partition.assigned):  # else leadership went meanwhile
                    log.warning(
                        "broker %d fetches %s but is not one of its replicas %s", replica_id, topic_partition, assigned
                    )
                results[index] = (topic_partition, _emptied(read))
                continue
            raised, change = recorded
            if change is not None:
                self._isr_writer.submit(change)
            if raised:
                self._produces.check(topic_partition)
                self._fetches.check(topic_partition, followers=self._followers_serve)
        if self._deletions:  # rarely: the log starts of followers matter to nothing else
            for topic_partition, _ in results:
                self._deletions.check(topic_partition)

    def _is_held_back(self, partition: Partition, replica_id: int) -> bool:
        return self._quota.holds_back(partition, in_sync=replica_id in partition.isr)

    def _count(self, results: FetchResults, reader: Reader) -> None:
        """Count bytes: followers' go to the replication quota, others' to the topic."""
        for topic_partition, read in results:
            if read.size_bytes and (partition := self._partitions.get(topic_partition)) is not None:
                if reader.is_follower:
                    self._quota.count(partition, read.size_bytes)
                else:
                    partition.counts.reads += 1
                    partition.counts.bytes_out += read.size_bytes


def _enough(results: FetchResults, min_bytes: int) -> bool:
    total_bytes = 0
    for _, read in results:
        if read.error is not ErrorCode.NONE or read.preferred_replica >= 0:
            return True
        total_bytes += read.size_bytes
    return total_bytes >= min_bytes


def _emptied(read: PartitionRead) -> PartitionRead:
    return read._replace(records=b"", size_bytes=0)
