"""CreatePartitions (key 37), versions 0-1: add partitions; answered by the active controller alone (KIP-195).

A topic has grown when all its partitions have a leader in this broker's metadata; when that takes longer than the
request allows, the answer is REQUEST_TIMED_OUT though the growth goes on. Not served: policies.
"""

from collections import Counter

from kafkatool.broker.administration.waiting_topics import is_led
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.handlers.served import Served
from kafkatool.broker.metadata_cache import MetadataSnapshot
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.protocol.messages.create_partitions import (
    API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


def handle(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse | None:
    """Write the new assignments, then wait for leaders."""
    listed = Counter(t.name for t in request.topics)
    results: dict[str, CreatePartitionsResult] = {}
    started: dict[str, int] = {}
    for topic in request.topics:
        if listed[topic.name] > 1:
            results[topic.name] = _result(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            continue
        result = results[topic.name] = _grow(topic, call, validate_only=request.validate_only)
        if result.error_code == ErrorCode.NONE and not request.validate_only:
            started[topic.name] = topic.count

    def is_done(snapshot: MetadataSnapshot, topic: str) -> bool:
        return len(snapshot.partitions.get(topic, ())) >= started[topic] and is_led(snapshot, topic)

    def answer(pending: set[str]) -> None:
        for name in pending:
            results[name] = _result(name, ErrorCode.REQUEST_TIMED_OUT, "grown, but not all partitions are led yet")
        call.respond(CreatePartitionsResponse(results=list(results.values())))

    if not started:
        return CreatePartitionsResponse(results=list(results.values()))
    call.context.topic_admin.waiting.wait(started, is_done, call.patience_ms(request.timeout_ms), answer)
    return None


def _result(name: str, code: ErrorCode, message: str | None = None) -> CreatePartitionsResult:
    return CreatePartitionsResult(name=name, error_code=code, error_message=message)


def _grow(topic: CreatePartitionsTopic, call: Call, *, validate_only: bool) -> CreatePartitionsResult:
    if not call.context.controller.is_active:
        return _result(topic.name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    lists = None if topic.assignments is None else [tuple(a.broker_ids) for a in topic.assignments]
    try:
        call.context.topic_admin.grow(topic.name, topic.count, lists, validate_only=validate_only)
    except KafkatoolError as e:  # refused; or ZooKeeper, or what is in it
        return _result(topic.name, code_of(e), str(e))
    return _result(topic.name, ErrorCode.NONE)


SERVED = Served(api=API, versions=(0, 1), handle=handle)
