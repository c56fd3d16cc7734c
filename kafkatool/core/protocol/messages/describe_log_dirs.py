"""DescribeLogDirs (key 35), versions 0-1. Source: Kafka 2.3.1 message/DescribeLogDirs*.json."""

from dataclasses import field

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


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
    """One log directory, by its absolute path."""

    error_code: Int16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)


@message
class DescribeLogDirsResponse:
    """One entry for each directory."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeLogDirsResult]


API = Api(35, "DescribeLogDirs", 0, 1, DescribeLogDirsRequest, DescribeLogDirsResponse)
