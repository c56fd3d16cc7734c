"""DeleteTopics (key 20), versions 0-6, 4 flexible. Source: Kafka 2.8.2 message/DeleteTopics*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import NO_UUID, Int16, Int32, NullSince, Since, Until, Uuid, message


@message
class DeleteTopicsTopic:
    """A topic by its name, or by its id alone."""

    name: str | None
    topic_id: Uuid = NO_UUID


@message
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """``timeout_ms`` as in CreateTopics."""

    topics: Annotated[list[DeleteTopicsTopic], Since(6)] = field(default_factory=list)
    topic_names: Annotated[list[str], Until(5)] = field(default_factory=list)
    timeout_ms: Int32


@message
class DeleteTopicsResponseTopic:
    """Outcome for one topic. ``name`` None: asked for by an id that is not known, or not to this caller."""

    name: Annotated[str | None, NullSince(6)]
    topic_id: Annotated[Uuid, Since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(5)] = None


@message
class DeleteTopicsResponse:
    """One entry for each topic."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    topics: list[DeleteTopicsResponseTopic]


API = Api(20, "DeleteTopics", 0, 6, DeleteTopicsRequest, DeleteTopicsResponse, flexible_from=4)
