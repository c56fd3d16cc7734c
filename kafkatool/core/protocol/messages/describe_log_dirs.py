"""DescribeLogDirs (key 35), versions 0-4, 2 flexible. Source: Kafka 4.1.0 message/DescribeLogDirs*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class DescribeLogDirsRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """``topics`` None: all."""

    topics: list[DescribeLogDirsRequestTopic] | None


@message
class DescribeLogDirsPartition:
    """``offset_lag``: records the replica is behind the high watermark."""

    partition: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool = False


@message
class DescribeLogDirsTopic:
    """The partitions of one topic in that directory."""

    topic: str
    partitions: list[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    """One log directory, by its absolute path; its disk's bytes are -1 where they are not known."""

    error_code: Int16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1


@message
class DescribeLogDirsResponse:
    """One entry for each directory."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: list[DescribeLogDirsResult]


API = Api(35, "DescribeLogDirs", 0, 4, DescribeLogDirsRequest, DescribeLogDirsResponse, flexible_from=2)
