"""DeleteTopics (key 20), versions 0-3."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Since, message


@message
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """``timeout_ms`` as in CreateTopics."""

    topic_names: list[str]
    timeout_ms: Int32


@message
class DeleteTopicsResponseTopic:
    """Outcome for one topic."""

    name: str
    error_code: Int16 = 0


@message
class DeleteTopicsResponse:
    """One entry for each name."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    topics: list[DeleteTopicsResponseTopic]


API = Api(20, "DeleteTopics", 0, 3, DeleteTopicsRequest, DeleteTopicsResponse)
