"""Produce (key 0), versions 0-9, 9 flexible: append record batches; below 3 entries of format 0 or 1 (ADM-90)."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Records, Since, message


@message
class ProduceRequestPartition:
    """The records for one partition: exactly one v2 batch (BRK-84), below version 3 entries (ADM-90); None: nothing."""

    partition: Int32
    records: Records | None


@message
class ProduceRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[ProduceRequestPartition]


@message
class ProduceRequest(Request["ProduceResponse"]):
    """``acks`` -1, 0 or 1 (BRK-82); ``timeout_ms`` bounds the wait of acks -1."""

    transactional_id: Annotated[str | None, Since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topics: list[ProduceRequestTopic]


@message
class ProduceRecordError:
    """A single record to blame, by its position in the batch."""

    batch_index: Int32
    message: str | None = None


@message
class ProduceResponsePartition:
    """The outcome of the append; offsets are -1 on error, the time -1 unless the topic uses LogAppendTime (BRK-86)."""

    partition: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Annotated[Int64, Since(2)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[list[ProduceRecordError], Since(8)] = field(default_factory=list)
    error_message: Annotated[str | None, Since(8)] = None


@message
class ProduceResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[ProduceResponsePartition]


@message
class ProduceResponse:
    """Never sent for acks 0. The throttle time is the last field here, unlike elsewhere."""

    topics: list[ProduceResponseTopic]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0


API = Api(0, "Produce", 0, 9, ProduceRequest, ProduceResponse, flexible_from=9)
