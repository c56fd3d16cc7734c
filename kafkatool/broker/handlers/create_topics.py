"""CreateTopics (key 19), versions 0-7: answered by the active controller alone (KIP-4).

A topic counts as created when all its partitions have a leader in this broker's metadata; when that takes longer than
the request allows, the answer is REQUEST_TIMED_OUT though the creation goes on. From version 4 on the counts may be left
to this broker's defaults (KIP-464), and 5 tells what was made (KIP-525). 7 tells no id, as no topic has one here (KIP-516).
Not served: policies.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from kafkatool.broker.administration.topics import AdminError, NewTopic
from kafkatool.broker.administration.waiting_topics import is_led
from kafkatool.broker.handlers.authorization import on_controller, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.limits import Limit
from kafkatool.broker.settings.description import ConfigSource, Setting
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.assignment import MAX_PARTITIONS
from kafkatool.core.protocol.messages import create_topics as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

MOST_REPLICAS = 200_000
"""Replicas that one request may make (SEC-100)."""

_may_create_each = on_controller(topics(Operation.CREATE, name="name", text="Authorization failed."))


def _may_create(request: wire.CreateTopicsRequest, call: Call) -> wire.CreateTopicsRequest | None:
    if call.allows(Operation.CREATE, ResourceType.CLUSTER, asked=False):
        return request
    allowed: wire.CreateTopicsRequest | None = _may_create_each(request, call)
    return allowed


@Served(wire.API, versions=(0, 7), asks=(_may_create,))
def handle(request: wire.CreateTopicsRequest, call: Call) -> wire.CreateTopicsResponse | None:
    """Write the nodes of what passes the checks, then wait for leaders."""
    counts = Counter(t.name for t in request.topics)
    replicas = _replicas_of(request, call) if call.context.controller.is_active else 0
    too_many = replicas > MOST_REPLICAS
    if too_many:
        told = (call.principal, replicas, MOST_REPLICAS)
        call.context.limits.reached(Limit.CREATED_REPLICAS, *told, key=call.principal)
    results: dict[str, wire.CreateTopicsResponseTopic] = {}
    started: list[str] = []
    inherited: list[wire.CreatedTopicConfig] = []  # shared by all topics: a request may name thousands
    if call.header.api_version >= 5 and call.context.controller.is_active:
        inherited = [_config(setting) for setting in call.context.topic_admin.inherited_settings()]
    for topic in request.topics:
        if counts[topic.name] > 1:
            results[topic.name] = _result(topic.name, ErrorCode.INVALID_REQUEST, "the topic is listed twice")
        elif too_many:
            why = f"the request asks for more than {MOST_REPLICAS} replicas in all: ask for its topics one after the other"
            results[topic.name] = _result(topic.name, ErrorCode.INVALID_REQUEST, why)
        else:
            results[topic.name] = _create(topic, request, call, inherited)
            if results[topic.name].error_code == ErrorCode.NONE and not request.validate_only:
                started.append(topic.name)

    def answer(pending: set[str]) -> None:
        for name in pending:
            results[name] = replace(
                results[name],
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message="created, but not all partitions are led yet",
            )
        call.respond(wire.CreateTopicsResponse(topics=list(results.values())))

    if not started:
        return wire.CreateTopicsResponse(topics=list(results.values()))
    call.context.topic_admin.waiting.wait(started, is_led, call.patience_ms(request.timeout_ms), answer)
    return None


def _replicas_of(request: wire.CreateTopicsRequest, call: Call) -> int:
    """Return how many replicas its topics are to have in all."""
    config, found = call.context.config, 0
    for topic in request.topics:
        partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        assigned = sum(len(a.broker_ids) for a in topic.assignments)
        may_be = 0 < partitions <= MAX_PARTITIONS and factor > 0  # else it is refused by itself
        found += assigned if topic.assignments else partitions * factor * may_be
    return found


def _result(name: str, code: ErrorCode, message: str) -> wire.CreateTopicsResponseTopic:
    return wire.CreateTopicsResponseTopic(name=name, error_code=code, error_message=message)


def _config(setting: Setting) -> wire.CreatedTopicConfig:
    return wire.CreatedTopicConfig(
        name=setting.name, value=setting.value, read_only=setting.read_only, config_source=setting.source
    )


def _create(
    topic: wire.CreateTopicsTopic,
    request: wire.CreateTopicsRequest,
    call: Call,
    inherited: list[wire.CreatedTopicConfig],
) -> wire.CreateTopicsResponseTopic:
    if not call.context.controller.is_active:
        return _result(topic.name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    try:
        wanted = _new_topic(topic, unset=-1 if call.header.api_version >= 4 else None)
        made = call.context.topic_admin.create(wanted, validate_only=request.validate_only)
    except (AdminError, ZooKeeperError) as e:
        return _result(topic.name, code_of(e), str(e))
    return wire.CreateTopicsResponseTopic(
        name=topic.name,
        num_partitions=made.partitions,
        replication_factor=made.replication_factor,
        configs=_with(wanted.configs, inherited) if wanted.configs else inherited,
    )


def _with(own: Mapping[str, str], inherited: list[wire.CreatedTopicConfig]) -> list[wire.CreatedTopicConfig]:
    return [
        replace(one, value=own[one.name], config_source=ConfigSource.TOPIC) if one.name in own else one
        for one in inherited
    ]


def _new_topic(topic: wire.CreateTopicsTopic, *, unset: int | None) -> NewTopic:
    """Check what belongs to the wire; a count of ``unset`` leaves it to the broker."""
    if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise AdminError(
            ErrorCode.INVALID_REQUEST, "give either an assignment or partition count and replication factor, not both"
        )
    if len({a.partition for a in topic.assignments}) < len(topic.assignments):
        raise AdminError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise AdminError(ErrorCode.INVALID_CONFIG, f"config {config.name} has no value")
        configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        partitions=None if topic.num_partitions == unset else topic.num_partitions,
        replication_factor=None if topic.replication_factor == unset else topic.replication_factor,
        assignment={a.partition: tuple(a.broker_ids) for a in topic.assignments} or None,
        configs=configs,
    )
