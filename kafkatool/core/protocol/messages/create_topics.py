"""CreateTopics (key 19), versions 0-3."""

from dataclasses import field
from typing import Annotated, ClassVar

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class CreateTopicsAssignment:
    """Replicas of one partition; the first is the preferred leader."""

    partition: Int32
    broker_ids: list[Int32]


@message
class CreateTopicsConfig:
    """One topic config."""

    name: str
    value: str | None


@message
class CreateTopicsTopic:
    """Partition count and replication factor are -1 with assignments."""

    name: str
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: list[CreateTopicsAssignment] = field(default_factory=list)
    configs: list[CreateTopicsConfig] = field(default_factory=list)


@message
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """``timeout_ms`` not above 0: do not wait; what was started answers 7."""

    most_elements: ClassVar[int | None] = 2_000_000  # the largest topic, each replica written out
    topics: list[CreateTopicsTopic]
    timeout_ms: Int32
    validate_only: Annotated[bool, Since(1)] = False


@message
class CreateTopicsResponseTopic:
    """Outcome for one topic."""

    name: str
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(1)] = None


@message
class CreateTopicsResponse:
    """One entry for each name."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[CreateTopicsResponseTopic]


API = Api(19, "CreateTopics", 0, 3, CreateTopicsRequest, CreateTopicsResponse)
