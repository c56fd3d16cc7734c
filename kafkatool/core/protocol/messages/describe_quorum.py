"""DescribeQuorum (key 55), versions 0-2, flexible: leader and voters of the metadata's log, on KRaft alone (KIP-595, 836).

Version 2 adds the voters' directories and addresses (KIP-853). Source: Kafka 3.9.1 message/DescribeQuorum*.json.
"""

from dataclasses import field
from typing import Annotated, Final

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import NO_UUID, Int16, Int32, Int64, Since, UInt16, Uuid, message

METADATA_TOPIC: Final = "__cluster_metadata"


@message
class QuorumPartition:
    """A partition asked about; there is partition 0 alone."""

    partition_index: Int32


@message
class QuorumTopic:
    """A topic asked about."""

    topic_name: str
    partitions: list[QuorumPartition]


@message
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """Asks for the quorum; a broker passes it on to the leader."""

    topics: list[QuorumTopic]


@message
class QuorumReplica:
    """A voter or an observer. Times in milliseconds since 1970 by the leader's clock; -1: not known."""

    replica_id: Int32
    replica_directory_id: Annotated[Uuid, Since(2)] = NO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, Since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, Since(1)] = -1


@message
class DescribedQuorumPartition:
    """``leader_id`` -1: none is elected."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(2)] = None
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[QuorumReplica]
    observers: list[QuorumReplica]


@message
class DescribedQuorumTopic:
    """The partitions of a topic."""

    topic_name: str
    partitions: list[DescribedQuorumPartition]


@message
class QuorumListener:
    """An address of a node."""

    name: str
    host: str
    port: UInt16


@message
class QuorumNode:
    """A voter, and where it is."""

    node_id: Int32
    listeners: list[QuorumListener]


@message
class DescribeQuorumResponse:
    """The quorum as its leader knows it."""

    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(2)] = None
    topics: list[DescribedQuorumTopic]
    nodes: Annotated[list[QuorumNode], Since(2)] = field(default_factory=list)


API = Api(55, "DescribeQuorum", 0, 2, DescribeQuorumRequest, DescribeQuorumResponse, flexible_from=0)
