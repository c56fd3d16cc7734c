"""CreatePartitions (key 37), versions 0-3, 2 flexible. Source: Kafka 2.8.2 message/CreatePartitions*.json."""

from typing import ClassVar

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class CreatePartitionsAssignment:
    """Replicas of one new partition."""

    broker_ids: list[Int32]


@message
class CreatePartitionsTopic:
    """``count`` is the new total; ``assignments`` None: the broker decides."""

    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None


@message
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """``validate_only``: say what would happen."""

    most_elements: ClassVar[int | None] = 2_000_000  # the largest topic, each replica written out
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool = False


@message
class CreatePartitionsResult:
    """Outcome for one topic."""

    name: str
    error_code: Int16 = 0
    error_message: str | None = None


@message
class CreatePartitionsResponse:
    """One entry for each topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsResult]


API = Api(37, "CreatePartitions", 0, 3, CreatePartitionsRequest, CreatePartitionsResponse, flexible_from=2)
