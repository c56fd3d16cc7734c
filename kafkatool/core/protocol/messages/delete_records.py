"""DeleteRecords (key 21), versions 0-2, 2 flexible: drop what lies below an offset (KIP-107).

Source: Kafka 2.8.2 message/DeleteRecords*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class DeleteRecordsPartition:
    """``offset`` -1: the high watermark."""

    partition: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[DeleteRecordsPartition]


@message
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """Answered when all live replicas have dropped them, or the time is out."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    """``low_watermark``: the smallest log start of all live replicas, -1 on error."""

    partition: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


@message
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str
    partitions: list[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    """One entry for each topic."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


API = Api(21, "DeleteRecords", 0, 2, DeleteRecordsRequest, DeleteRecordsResponse, flexible_from=2)
