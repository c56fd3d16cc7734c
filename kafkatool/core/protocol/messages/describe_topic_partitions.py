"""DescribeTopicPartitions (key 75), version 0, flexible: topics page by page, with eligible leaders (KIP-966).

Source: Kafka 3.9.1 message/DescribeTopicPartitions*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Uuid, message


@message
class TopicName:
    """A topic asked about."""

    name: str


@message
class Cursor:
    """Where a page ends: the first partition that is not on it."""

    topic_name: str
    partition_index: Int32


@message
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """``topics`` empty: all. The broker may give fewer partitions than the limit."""

    topics: list[TopicName]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@message
class DescribedPartition:
    """``leader_id`` -1: none. Eligible leaders are None where the cluster does not track them."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32]


@message
class DescribedTopic:
    """A topic, or the part of it that is on this page."""

    error_code: Int16 = 0
    name: str | None
    topic_id: Uuid
    is_internal: bool = False
    partitions: list[DescribedPartition]
    topic_authorized_operations: Int32 = -(2**31)


@message
class DescribeTopicPartitionsResponse:
    """``next_cursor`` None: this was the last page."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribedTopic]
    next_cursor: Cursor | None = None


API = Api(
    75,
    "DescribeTopicPartitions",
    0,
    0,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    flexible_from=0,
)
