"""DescribeLogDirs (key 35), versions 0-4: what lies where on this broker's disks, and how large it is (KIP-113, KIP-827).

A replica on its way to another directory is told of in both (``is_future_key``), there with what it lacks as its lag.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from kafkatool.broker.handlers.authorization import by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import describe_log_dirs as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_KNOWS_ERROR = 3
_KNOWS_DISKS = 4
_NOT_KNOWN = -1
_NO_REPLICA = -1  # a log without a role, such as one before the controller's first request: its lag is not known


@Served(wire.API, versions=(0, 4), asks=(by_handler,))
def handle(request: wire.DescribeLogDirsRequest, call: Call) -> wire.DescribeLogDirsResponse:
    version = call.header.api_version
    if not call.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version >= _KNOWS_ERROR else ErrorCode.NONE
        return wire.DescribeLogDirsResponse(error_code=refused, results=[])
    manager = call.context.log_manager
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
    logs = sorted(
        (one for one in (*manager.logs(), *manager.copies()) if wanted is None or one.partition in wanted),
        key=lambda x: x.partition,
    )

    def described(one: Log) -> wire.DescribeLogDirsPartition:
        replica = call.context.replica_manager.partitions.get(one.partition)
        is_copy = one is manager.copy_of(one.partition)
        lag = _NO_REPLICA
        if replica is not None and is_copy:
            lag = replica.log.log_end_offset - one.log_end_offset
        elif replica is not None:
            lag = max(replica.high_watermark.offset - one.log_end_offset, 0)
        return wire.DescribeLogDirsPartition(
            partition=one.partition.partition, partition_size=one.size_bytes, offset_lag=lag, is_future_key=is_copy
        )

    online = [
        _result(path, _topics(path, logs, described), with_disk=version >= _KNOWS_DISKS) for path in manager.live_dirs
    ]
    offline = [
        wire.DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()))
        for path in manager.offline_dirs
    ]
    return wire.DescribeLogDirsResponse(results=online + offline)


def _result(path: Path, topics: list[wire.DescribeLogDirsTopic], *, with_disk: bool) -> wire.DescribeLogDirsResult:
    total = usable = _NOT_KNOWN
    if with_disk:
        with contextlib.suppress(OSError):  # the directory is just going
            total, _, usable = shutil.disk_usage(path)
    return wire.DescribeLogDirsResult(
        log_dir=str(path.absolute()), topics=topics, total_bytes=total, usable_bytes=usable
    )


def _topics(
    path: Path, logs: Iterable[Log], described: Callable[[Log], wire.DescribeLogDirsPartition]
) -> list[wire.DescribeLogDirsTopic]:
    here = [one for one in logs if one.directory.parent == path]
    return [
        wire.DescribeLogDirsTopic(topic=topic, partitions=[described(one) for one in of_topic])
        for topic, of_topic in groupby(here, key=lambda one: one.partition.topic)
    ]
