"""Fetch (key 1), versions 0-12: read record batches, as a consumer or as a follower (BRK-92 to 106, 158, ADM-85, 93).

Versions below 4 get entries of before record batches (``older_fetches``). From version 11 on consumers read from
followers too, and a leader may send them to one of their rack (KIP-392). Aborted transactions are listed.
"""

import contextlib
from collections.abc import Set
from dataclasses import replace

from kafkatool.broker.handlers.authorization import by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.network.client_quotas import FETCH
from kafkatool.broker.replication.leading.closer_replica import closer_replica
from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults
from kafkatool.broker.replication.leading.fetch_sessions import FetchPlan
from kafkatool.broker.replication.leading.fetches import CloserReplica
from kafkatool.broker.replication.leading.older_fetches import FORMATS
from kafkatool.broker.replication.partition.partition_reads import (
    CONSUMER,
    DEBUGGER,
    FAILED_READS,
    READ_COMMITTED,
    PartitionRead,
    Reader,
    find_divergence,
)
from kafkatool.broker.replication.partition.session_epochs import FINAL_EPOCH, INITIAL_EPOCH
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.settings.config import RACK_AWARE
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages import fetch as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_KNOWS_BATCHES = 4
_KNOWS_MAX_BYTES = 3
_COPY_BELOW_BYTES = 2048  # fewer are copied into the response: one call sends all of it
_KNOWS_STORAGE_ERROR = 6
_KNOWS_ZSTD = 10
_KNOWS_DIVERGING_EPOCHS = 12
_NO_EPOCH = -1
_TELL_THE_LEADER = frozenset(
    {ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
_READS_ANYWHERE = 11
_ZSTD = "zstd"
_NOT_PERMITTED = FAILED_READS[ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def _charge(request: wire.FetchRequest, call: Call, size_bytes: int) -> None:
    """Charge consumers with the answer's size; followers have quotas of their own (BRK-22)."""
    if request.replica_id < 0:
        call.charge(FETCH, None)


@Served(wire.API, versions=(0, 12), asks=(by_handler,), quick=True, throttled_at_once_from=8, charge=_charge)
def handle(request: wire.FetchRequest, call: Call) -> wire.FetchResponse | None:
    """Answer at once, or when there is enough to read."""
    manager = call.context.replica_manager
    version = call.header.api_version
    if request.cluster_id is not None and request.cluster_id != call.context.cluster_id:
        return wire.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[])
    anywhere = version >= _READS_ANYWHERE and request.replica_id == CONSUMER
    reader = Reader(request.replica_id, request.isolation_level == READ_COMMITTED, anywhere=anywhere)
    guarded = call.context.authorizer is not None or (
        reader.is_follower and not call.is_of_follower(request.replica_id, asked=False)
    )
    if (
        guarded
        and reader.is_follower
        and request.session_epoch == INITIAL_EPOCH
        and not call.is_of_follower(request.replica_id, asked=False)
    ):
        request = replace(request, session_epoch=FINAL_EPOCH)  # a follower's session would close a consumer's
    plan = manager.fetch_sessions.plan(request, call.principal)
    if plan.error is not ErrorCode.NONE:
        return wire.FetchResponse(error_code=plan.error, topics=[])
    entries: FetchEntries = plan.entries
    unreadable: FetchResults = []
    if guarded:  # before anything is looked up: what the others tell is for readers
        refused = _refused({topic_partition.topic for topic_partition, _ in entries}, reader, call)
        unreadable = [(tp, _NOT_PERMITTED) for tp, _ in entries if tp.topic in refused]
        entries = [entry for entry in entries if entry[0].topic not in refused]
    if version < _KNOWS_ZSTD:
        entries, undecodable = _without_zstd(manager, entries)
        unreadable = unreadable + undecodable
    elif version >= _KNOWS_DIVERGING_EPOCHS:
        entries, diverging = _without_diverging(manager, entries)
        unreadable = unreadable + diverging if diverging else unreadable

    def done(results: FetchResults) -> None:
        if guarded:  # the right may have been withdrawn while it waited (SEC-87)
            withdrawn = _refused({topic_partition.topic for topic_partition, _ in results}, reader, call)
            results = [(tp, _NOT_PERMITTED if tp.topic in withdrawn else read) for tp, read in results]
        call.respond(_response(plan, plan.to_tell(unreadable + results if unreadable else results, reader), call))

    max_wait_ms = 0 if unreadable else call.patience_ms(request.max_wait_ms)
    if version < _KNOWS_BATCHES:
        manager.older_fetches.fetch(
            entries,
            reader,
            FORMATS[version],
            max_wait_ms=max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes if version >= _KNOWS_MAX_BYTES else call.context.config.fetch_max_bytes,
            on_done=done,
        )
        return None
    manager.fetches.fetch(
        entries,
        reader,
        max_wait_ms=max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        on_done=done,
        session=plan.session,
        closer=_closer(request.rack_id, call) if anywhere and request.rack_id else None,
    )
    return None


def _closer(rack: str, call: Call) -> CloserReplica | None:
    """Return who is closer to a consumer of that rack than the leader, where brokers are to say so."""
    if call.context.config.replica_selector_class != RACK_AWARE:
        return None
    return closer_replica(rack, call.listener, call.context.metadata_cache)


def _refused(topics: Set[str], reader: Reader, call: Call) -> Set[str]:
    """Return the topics that the client may not read: all, for who is no follower but says so (SEC-50, 51)."""
    if reader.is_follower:
        return frozenset() if call.is_of_follower(reader.replica_id) else topics
    if reader.replica_id == DEBUGGER and not call.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return topics  # it reads what is not committed yet
    return {topic for topic in topics if not call.allows(Operation.READ, ResourceType.TOPIC, topic)}


def _without_zstd(manager: ReplicaManager, entries: FetchEntries) -> tuple[FetchEntries, FetchResults]:
    """Take out topics that ask for zstd, for a client that cannot know it (BRK-104)."""
    readable, unreadable = [], []
    for entry in entries:
        partition = manager.partitions.get(entry[0])
        if partition is not None and partition.log.config.compression_type == _ZSTD:
            unreadable.append((entry[0], FAILED_READS[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]))
        else:
            readable.append(entry)
    return readable, unreadable


def _without_diverging(manager: ReplicaManager, entries: FetchEntries) -> tuple[FetchEntries, FetchResults]:
    """Take out what a reader has of another history than this log; it is told where that history ends here (ADM-85)."""
    readable, diverging = [], []
    for entry in entries:
        topic_partition, wanted = entry
        read = None
        if wanted.last_fetched_epoch != _NO_EPOCH:
            found = manager.partitions.find(topic_partition)
            if not isinstance(found, ErrorCode):
                read = find_divergence(found, wanted)
        if read is None:
            readable.append(entry)
        else:
            diverging.append((topic_partition, read))
    return (readable, diverging) if diverging else (entries, diverging)


def _leader(call: Call, partition: TopicPartition) -> wire.LeaderIdAndEpoch | None:
    """Return who leads it now, as far as this broker was told."""
    state = call.context.metadata_cache.snapshot.partition(partition)
    if state is None:
        return None
    return wire.LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def _response(plan: FetchPlan, results: FetchResults, call: Call) -> wire.FetchResponse:
    version = call.header.api_version
    topics: dict[str, list[wire.FetchResponsePartition]] = {}
    for (topic, partition), read in results:
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = []
        partitions.append(told := _partition(partition, read, version))
        if version >= _KNOWS_DIVERGING_EPOCHS and told.error_code in _TELL_THE_LEADER:
            partitions[-1] = replace(told, current_leader=_leader(call, TopicPartition(topic, partition)))
    return wire.FetchResponse(
        session_id=plan.session_id, topics=[wire.FetchResponseTopic(topic=t, partitions=p) for t, p in topics.items()]
    )


def _partition(partition: int, read: PartitionRead, version: int) -> wire.FetchResponsePartition:
    error = read.error
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < _KNOWS_STORAGE_ERROR:
        error = ErrorCode.NOT_LEADER_FOR_PARTITION
    records = read.records
    if isinstance(records, FileRegion) and read.size_bytes < _COPY_BELOW_BYTES:
        with contextlib.suppress(OSError):  # sending it meets the error again, and ends that connection alone
            records = records.read()
    return wire.FetchResponsePartition(
        partition=partition,
        error_code=error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=read.diverging,
        aborted_transactions=read.aborted,
        preferred_read_replica=read.preferred_replica,
        records=records,
    )
