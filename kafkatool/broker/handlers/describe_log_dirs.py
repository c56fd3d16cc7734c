"""DescribeLogDirs (key 35), versions 0-1: what lies where on this broker's disks, and how large it is (KIP-113).

Not served: replicas on their way to another directory (is_future_key is always false).
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.describe_log_dirs import (
    API,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NO_REPLICA = -1  # a log without a role, such as one before the controller's first request: its lag is not known


def handle(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    manager = call.context.log_manager
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
    logs = sorted(
        (one for one in manager.logs() if wanted is None or one.partition in wanted), key=lambda x: x.partition
    )

    def lag(one: Log) -> int:
        replica = call.context.replica_manager.partitions.get(one.partition)
        return _NO_REPLICA if replica is None else max(replica.high_watermark.offset - one.log_end_offset, 0)

    online = [
        DescribeLogDirsResult(log_dir=str(path.absolute()), topics=_topics(path, logs, lag))
        for path in manager.live_dirs
    ]
    offline = [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()))
        for path in manager.offline_dirs
    ]
    return DescribeLogDirsResponse(results=online + offline)


def _topics(path: Path, logs: Iterable[Log], lag: Callable[[Log], int]) -> list[DescribeLogDirsTopic]:
    here = [one for one in logs if one.directory.parent == path]
    return [
        DescribeLogDirsTopic(
            topic=topic,
            partitions=[
                DescribeLogDirsPartition(
                    partition=one.partition.partition, partition_size=one.size_bytes, offset_lag=lag(one)
                )
                for one in of_topic
            ],
        )
        for topic, of_topic in groupby(here, key=lambda one: one.partition.topic)
    ]


SERVED = Served(api=API, versions=(0, 1), handle=handle)
