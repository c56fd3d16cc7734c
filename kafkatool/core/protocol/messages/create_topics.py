"""CreateTopics (key 19), versions 0-7, 5 flexible (KIP-464, KIP-525, KIP-516).

Source: Kafka 2.8.2 message/CreateTopics*.json.
"""

from dataclasses import field
from typing import Annotated, ClassVar

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import NO_UUID, Int8, Int16, Int32, Since, Uuid, message


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
    """Partition count and replication factor are -1 with assignments; else, from version 4 on, -1 is the default."""

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
class CreatedTopicConfig:
    """One setting of the topic made. ``config_source`` as in DescribeConfigs."""

    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool = False


@message
class CreateTopicsResponseTopic:
    """Outcome for one topic; since version 5 with what was made. Nobody is denied the settings, which tag 0 would tell."""

    name: str
    topic_id: Annotated[Uuid, Since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(1)] = None
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[list[CreatedTopicConfig] | None, Since(5)] = field(default_factory=list)


@message
class CreateTopicsResponse:
    """One entry for each name."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[CreateTopicsResponseTopic]


API = Api(19, "CreateTopics", 0, 7, CreateTopicsRequest, CreateTopicsResponse, flexible_from=5)
