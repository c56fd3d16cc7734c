"""Fetch (key 1), versions 0-17, 12 flexible: read record batches, as a consumer or as a follower (BRK-92 to 108, ADM-85).

Versions below 4 are of before record batches: they read entries of format 1 (from 2 on) or 0 (ADM-93). From 13 on topics
are named by their ids alone (KIP-516, ADM-15).
Source: Kafka 2.8.2 and 4.1.0 message/Fetch*.json.
"""

from dataclasses import field, replace
from typing import Annotated, Final

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import (
    NO_UUID,
    FileRecords,
    Int8,
    Int16,
    Int32,
    Int64,
    Since,
    Tagged,
    Until,
    Uuid,
    message,
)


@message
class FetchRequestPartition:
    """A partition to read, and from where. ``log_start_offset`` is the follower's, ``current_leader_epoch`` -1 unchecked.

    ``last_fetched_epoch``: of the last record the reader has, -1 where it does not want it compared.
    """

    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, Since(17), Tagged(0)] = NO_UUID


@message
class FetchRequestTopic:
    """The partitions of one topic, by its name or by its id."""

    topic: Annotated[str, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: list[FetchRequestPartition]


@message
class ForgottenTopic:
    """Partitions to take out of the fetch session."""

    topic: Annotated[str, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: list[Int32]


@message
class ReplicaState:
    """Who reads, as ``replica_id`` of the request says before, and by which of its registrations with the controller."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@message
class FetchRequest(Request["FetchResponse"]):
    """``replica_id``: follower's broker id, -1 consumer, -2 debugging; ``max_bytes`` bounds the whole response.

    From version 15 on the id is in ``replica_state``, which a consumer leaves out.
    """

    cluster_id: Annotated[str | None, Since(12), Tagged(0)] = None
    replica_id: Annotated[Int32, Until(14)] = -1
    replica_state: Annotated[ReplicaState | None, Since(15), Tagged(1)] = None
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, Since(3)] = 0x7FFFFFFF
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
class EpochEnd:
    """Where an epoch ends in the leader's log: the newest that is not above the one asked about."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@message
class LeaderIdAndEpoch:
    """The leader a partition has now."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@message
class SnapshotId:
    """What is to be fetched instead, of the metadata of a cluster without ZooKeeper (KIP-630)."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@message
class FetchResponsePartition:
    """Whole batches from the offset on, the last one perhaps cut; offsets are -1 on error (BRK-93)."""

    partition: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = -1
    last_stable_offset: Annotated[Int64, Since(4)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[EpochEnd | None, Since(12), Tagged(0)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Since(12), Tagged(1)] = None
    snapshot_id: Annotated[SnapshotId | None, Since(12), Tagged(2)] = None
    aborted_transactions: Annotated[list[AbortedTransaction] | None, Since(4)] = None
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: FileRecords | None = b""


@message
class FetchResponseTopic:
    """The partitions of one topic, by its name or by its id."""

    topic: Annotated[str, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: list[FetchResponsePartition]


@message
class LeaderEndpoint:
    """Where a leader is that ``current_leader`` names."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@message
class FetchResponse:
    """``error_code`` is for the fetch session (70, 71), and then there are no topics; ``session_id`` 0 is none."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    topics: list[FetchResponseTopic]
    node_endpoints: Annotated[list[LeaderEndpoint], Since(16), Tagged(0)] = field(default_factory=list)


API = Api(1, "Fetch", 0, 17, FetchRequest, FetchResponse, flexible_from=12)
BY_NAME: Final = replace(API, max_version=12)
"""The same, for who does not know the topics' ids."""
