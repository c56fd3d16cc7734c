"""DescribeProducers (key 61), version 0, flexible: who writes to a partition, and in which transaction (KIP-664).

Source: Kafka 2.8.2 message/DescribeProducers*.json.
"""

from dataclasses import field

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class DescribeProducersTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Any replica's broker may be asked; it tells of its own log."""

    topics: list[DescribeProducersTopic]


@message
class ActiveProducer:
    """One producer; -1 is what is not known, or no open transaction."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = -1
    current_txn_start_offset: Int64 = -1


@message
class DescribeProducersResponsePartition:
    """The producers of one partition."""

    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ActiveProducer] = field(default_factory=list)


@message
class DescribeProducersResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[DescribeProducersResponsePartition]


@message
class DescribeProducersResponse:
    """One entry for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersResponseTopic]


API = Api(61, "DescribeProducers", 0, 0, DescribeProducersRequest, DescribeProducersResponse, flexible_from=0)
