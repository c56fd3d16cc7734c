"""Fetch (key 1), versions 3-11: read record batches, as a consumer or as a follower (BRK-92 to 108).

Brokers serve 4 and above. Version 3 is there to ask Kafka 0.10 for its replicas, whose messages are of format 0 or 1.
"""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import FileRecords, Int8, Int16, Int32, Int64, Since, message


@message
class FetchRequestPartition:
    """A partition to read, and from where. ``log_start_offset`` is the follower's, ``current_leader_epoch`` -1 unchecked."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32


@message
class FetchRequestTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[FetchRequestPartition]


@message
class ForgottenTopic:
    """Partitions to take out of the fetch session."""

    topic: str
    partitions: list[Int32]


@message
class FetchRequest(Request["FetchResponse"]):
    """``replica_id``: follower's broker id, -1 consumer, -2 debugging; ``max_bytes`` bounds the whole response."""

    replica_id: Int32 = -1
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32
    isolation_level: Annotated[Int8, Since(4)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: list[FetchRequestTopic]
    forgotten_topics: Annotated[list[ForgottenTopic], Since(7)] = field(default_factory=list)
    rack_id: Annotated[str, Since(11)] = ""


@message
class AbortedTransaction:
    """A transaction to skip: records of that producer from ``first_offset`` to its abort marker."""

    producer_id: Int64
    first_offset: Int64


@message
class FetchResponsePartition:
    """Whole batches from the offset on, the last one perhaps cut; offsets are -1 on error (BRK-93)."""

    partition: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = -1
    last_stable_offset: Annotated[Int64, Since(4)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    aborted_transactions: Annotated[list[AbortedTransaction] | None, Since(4)] = None
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: FileRecords | None = b""


@message
class FetchResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[FetchResponsePartition]


@message
class FetchResponse:
    """``error_code`` is for the fetch session (70, 71), and then there are no topics; ``session_id`` 0 is none."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    topics: list[FetchResponseTopic]


API = Api(1, "Fetch", 3, 11, FetchRequest, FetchResponse)
