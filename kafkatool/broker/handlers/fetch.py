"""Fetch (key 1), versions 4-11: read record batches, as a consumer or as a follower (BRK-92 to 106, 158).

Left out: reading from the closest replica (preferred_read_replica is always -1), down-conversion (version 4 and later
clients read every batch format). No transactions are served, but aborted ones of logs that came from a broker which
serves them are listed.
"""

import contextlib

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.broker.network.client_quotas import FETCH
from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults
from kafkatool.broker.replication.leading.fetch_sessions import FetchPlan
from kafkatool.broker.replication.partition.partition_reads import READ_COMMITTED, PartitionRead, Reader, failed_read
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import (
    API,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)

_COPY_BELOW_BYTES = 2048  # fewer are copied into the response: one call sends all of it
_KNOWS_STORAGE_ERROR = 6
_KNOWS_ZSTD = 10
_ZSTD = "zstd"


def handle(request: FetchRequest, call: Call) -> FetchResponse | None:
    """Answer at once, or when there is enough to read."""
    manager = call.context.replica_manager
    version = call.header.api_version
    plan = manager.fetch_sessions.plan(request)
    if plan.error is not ErrorCode.NONE:
        return FetchResponse(error_code=plan.error, topics=[])
    entries, unreadable = (plan.entries, []) if version >= _KNOWS_ZSTD else _without_zstd(manager, plan.entries)

    reader = Reader(request.replica_id, request.isolation_level == READ_COMMITTED)

    def done(results: FetchResults) -> None:
        call.respond(_response(plan, plan.to_tell(unreadable + results if unreadable else results, reader), version))

    manager.fetches.fetch(
        entries,
        reader,
        max_wait_ms=0 if unreadable else call.patience_ms(request.max_wait_ms),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        on_done=done,
        session=plan.session,
    )
    return None


def _charge(request: FetchRequest, call: Call, size_bytes: int) -> None:
    """Charge consumers with the answer's size; followers have quotas of their own (BRK-22)."""
    if request.replica_id < 0:
        call.charge(FETCH, None)


def _without_zstd(manager: ReplicaManager, entries: FetchEntries) -> tuple[FetchEntries, FetchResults]:
    """Take out topics that ask for zstd, for a client that cannot know it (BRK-104)."""
    readable, unreadable = [], []
    for entry in entries:
        partition = manager.partitions.get(entry[0])
        if partition is not None and partition.log.config.compression_type == _ZSTD:
            unreadable.append((entry[0], failed_read(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)))
        else:
            readable.append(entry)
    return readable, unreadable


def _response(plan: FetchPlan, results: FetchResults, version: int) -> FetchResponse:
    topics: dict[str, list[FetchResponsePartition]] = {}
    for (topic, partition), read in results:
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = []
        partitions.append(_partition(partition, read, version))
    return FetchResponse(
        session_id=plan.session_id, topics=[FetchResponseTopic(topic=t, partitions=p) for t, p in topics.items()]
    )


def _partition(partition: int, read: PartitionRead, version: int) -> FetchResponsePartition:
    error = read.error
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < _KNOWS_STORAGE_ERROR:
        error = ErrorCode.NOT_LEADER_FOR_PARTITION
    records = read.records
    if isinstance(records, FileRegion) and read.size_bytes < _COPY_BELOW_BYTES:
        with contextlib.suppress(OSError):  # sending it meets the error again, and ends that connection alone
            records = records.read()
    return FetchResponsePartition(
        partition=partition,
        error_code=error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=read.aborted,
        records=records,
    )


SERVED = Served(api=API, versions=(4, 11), handle=handle, quick=True, throttled_at_once_from=8, charge=_charge)
