"""DeleteTopics (key 20), versions 0-6: answered by the active controller alone (KIP-4).

A topic counts as deleted when this broker's metadata no longer has it; when that takes longer than the request allows,
the answer is REQUEST_TIMED_OUT though the deletion goes on. Topics have no ids here: what version 6 names by one (KIP-516)
is refused as by a Kafka 2.8 that has none.
"""

from typing import Any

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.administration.waiting_topics import is_gone
from kafkatool.broker.handlers.authorization import Each, Resource, on_controller, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import delete_topics as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_BY_NAME_OR_ID = 6  # the version from which on a topic may be named by its id

_names = topics(Operation.DELETE, "topic_names")
_entries = Each(
    "topics", lambda topic: None if topic.name is None else Resource(Operation.DELETE, ResourceType.TOPIC, topic.name)
)


def _may_delete(request: wire.DeleteTopicsRequest, call: Call) -> Any:
    return (_entries if call.header.api_version >= _BY_NAME_OR_ID else _names)(request, call)


@Served(wire.API, versions=(0, 6), asks=(on_controller(_may_delete),))
def handle(request: wire.DeleteTopicsRequest, call: Call) -> wire.DeleteTopicsResponse | None:
    """Mark the topics, then wait until they are gone."""
    names = request.topic_names or [t.name for t in request.topics if _is_by_name(t) and t.name is not None]
    results = {name: _delete(name, call) for name in names}
    refused = [_by_id(topic, call) for topic in request.topics if not _is_by_name(topic)]
    started = [name for name, result in results.items() if result.error_code is ErrorCode.NONE]

    def answer(pending: set[str]) -> None:
        results.update(
            {name: _result(name, ErrorCode.REQUEST_TIMED_OUT, "marked, but not gone yet") for name in pending}
        )
        call.respond(wire.DeleteTopicsResponse(topics=[*results.values(), *refused]))

    if not started:
        return wire.DeleteTopicsResponse(topics=[*results.values(), *refused])
    call.context.topic_admin.waiting.wait(started, is_gone, call.patience_ms(request.timeout_ms), answer)
    return None


def _is_by_name(topic: wire.DeleteTopicsTopic) -> bool:
    return topic.name is not None and topic.topic_id == NO_UUID


def _by_id(topic: wire.DeleteTopicsTopic, call: Call) -> wire.DeleteTopicsResponseTopic:
    """Refuse one that is not named by its name alone."""
    code, why = ErrorCode.UNSUPPORTED_VERSION, "topics have no ids here: name it by its name"
    if not call.context.controller.is_active:
        code, why = ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
    elif topic.name is not None or topic.topic_id == NO_UUID:
        code, why = ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id"
    return wire.DeleteTopicsResponseTopic(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=why)


def _result(name: str, code: ErrorCode, why: str | None = None) -> wire.DeleteTopicsResponseTopic:
    return wire.DeleteTopicsResponseTopic(name=name, error_code=code, error_message=why)


def _delete(name: str, call: Call) -> wire.DeleteTopicsResponseTopic:
    if not call.context.controller.is_active:
        return _result(name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    if not call.context.config.delete_topic_enable:
        told = call.header.api_version >= 3
        return _result(
            name,
            ErrorCode.TOPIC_DELETION_DISABLED if told else ErrorCode.INVALID_REQUEST,
            "delete.topic.enable is false",
        )
    try:
        call.context.topic_admin.delete(name)
    except (AdminError, ZooKeeperError) as e:
        return _result(name, code_of(e), str(e))
    return _result(name, ErrorCode.NONE)
