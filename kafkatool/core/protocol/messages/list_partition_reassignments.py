"""ListPartitionReassignments (key 46), version 0, flexible: the partitions that are being moved (KIP-455).

Source: Kafka 2.8.2 message/ListPartitionReassignments*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class ListReassignmentsTopic:
    """The partitions asked for of one topic."""

    topic: str
    partitions: list[Int32]


@message
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """``topics`` None: all that move. Answered by the controller."""

    timeout_ms: Int32 = 60_000
    topics: list[ListReassignmentsTopic] | None = None


@message
class OngoingPartition:
    """One partition on the move: ``replicas`` are those of origin and target together."""

    partition: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@message
class OngoingTopic:
    """The moving partitions of one topic."""

    topic: str
    partitions: list[OngoingPartition]


@message
class ListPartitionReassignmentsResponse:
    """Those of the partitions asked for that are moving; the others are left out."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: list[OngoingTopic]


API = Api(
    46,
    "ListPartitionReassignments",
    0,
    0,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    flexible_from=0,
)
