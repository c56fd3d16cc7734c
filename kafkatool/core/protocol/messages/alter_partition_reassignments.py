"""AlterPartitionReassignments (key 45), versions 0-1, flexible: begin, replace or cancel moves of replicas (KIP-455).

Source: Kafka 2.8.2 and 4.1.0 message/AlterPartitionReassignments*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class PartitionMove:
    """``replicas`` None: cancel the move that is under way."""

    partition: Int32
    replicas: list[Int32] | None = None


@message
class TopicMoves:
    """The partitions of one topic."""

    topic: str
    partitions: list[PartitionMove]


@message
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """Answered by the controller when the moves are stored."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[bool, Since(1)] = True
    topics: list[TopicMoves]


@message
class PartitionMoveResult:
    """Outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None


@message
class TopicMoveResults:
    """The partitions of one topic."""

    topic: str
    partitions: list[PartitionMoveResult]


@message
class AlterPartitionReassignmentsResponse:
    """One entry for each partition; an error at the top is about the whole request."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, Since(1)] = True
    error_code: Int16 = 0
    error_message: str | None = None
    topics: list[TopicMoveResults]


API = Api(
    45,
    "AlterPartitionReassignments",
    0,
    1,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    flexible_from=0,
)
