"""CreateTopics (key 19), versions 0-3: answered by the active controller alone (KIP-4).

A topic counts as created when all its partitions have a leader in this broker's metadata; when that takes longer than
the request allows, the answer is REQUEST_TIMED_OUT though the creation goes on. Not served: policies.
"""

from collections import Counter

from kafkatool.broker.administration.topics import NewTopic, TopicError
from kafkatool.broker.administration.waiting_topics import is_led
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.handlers.served import Served
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages.create_topics import (
    API,
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    CreateTopicsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


def handle(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse | None:
    """Write the nodes of what passes the checks, then wait for leaders."""
    counts = Counter(t.name for t in request.topics)
    results: dict[str, CreateTopicsResponseTopic] = {}
    started: list[str] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            results[topic.name] = _result(topic.name, ErrorCode.INVALID_REQUEST, "the topic is listed twice")
        else:
            results[topic.name] = _create(topic, request, call)
            if results[topic.name].error_code == ErrorCode.NONE and not request.validate_only:
                started.append(topic.name)

    def answer(pending: set[str]) -> None:
        for name in pending:
            results[name] = _result(name, ErrorCode.REQUEST_TIMED_OUT, "created, but not all partitions are led yet")
        call.respond(CreateTopicsResponse(topics=list(results.values())))

    if not started:
        return CreateTopicsResponse(topics=list(results.values()))
    call.context.topic_admin.waiting.wait(started, is_led, call.patience_ms(request.timeout_ms), answer)
    return None


def _result(name: str, code: ErrorCode, message: str | None = None) -> CreateTopicsResponseTopic:
    return CreateTopicsResponseTopic(name=name, error_code=code, error_message=message)


def _create(topic: CreateTopicsTopic, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponseTopic:
    if not call.context.controller.is_active:
        return _result(topic.name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    try:
        call.context.topic_admin.create(_new_topic(topic), validate_only=request.validate_only)
    except (TopicError, ZooKeeperError) as e:
        return _result(topic.name, code_of(e), str(e))
    return _result(topic.name, ErrorCode.NONE)


def _new_topic(topic: CreateTopicsTopic) -> NewTopic:
    if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise TopicError(
            ErrorCode.INVALID_REQUEST, "give either an assignment or partition count and replication factor, not both"
        )
    if len({a.partition for a in topic.assignments}) < len(topic.assignments):
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise TopicError(ErrorCode.INVALID_CONFIG, f"config {config.name} has no value")
        configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={a.partition: tuple(a.broker_ids) for a in topic.assignments} or None,
        configs=configs,
    )


SERVED = Served(api=API, versions=(0, 3), handle=handle)
