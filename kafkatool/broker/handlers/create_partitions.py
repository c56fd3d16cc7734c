"""CreatePartitions (key 37), versions 0-3: add partitions; answered by the active controller alone (KIP-195).

A topic has grown when all its partitions have a leader in this broker's metadata; when that takes longer than the
request allows, the answer is REQUEST_TIMED_OUT though the growth goes on. Not served: policies.
"""

from collections import Counter

from kafkatool.broker.administration.waiting_topics import is_led
from kafkatool.broker.handlers.authorization import on_controller, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.metadata_cache import MetadataSnapshot
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import create_partitions as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(
    wire.API,
    versions=(0, 3),
    asks=(on_controller(topics(Operation.ALTER, name="name", text="The topic authorization is failed.")),),
)
def handle(request: wire.CreatePartitionsRequest, call: Call) -> wire.CreatePartitionsResponse | None:
    """Write the new assignments, then wait for leaders."""
    listed = Counter(t.name for t in request.topics)
    is_active = call.context.controller.is_active
    existing = call.context.topic_admin.existing(listed) if is_active else frozenset()
    results: dict[str, wire.CreatePartitionsResult] = {}
    started: dict[str, int] = {}
    for topic in request.topics:
        if listed[topic.name] > 1:
            results[topic.name] = _result(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            continue
        if is_active and topic.name not in existing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[topic.name] = _result(topic.name, code, f"The topic '{topic.name}' does not exist.")
            continue
        result = results[topic.name] = _grow(topic, call, validate_only=request.validate_only)
        if result.error_code == ErrorCode.NONE and not request.validate_only:
            started[topic.name] = topic.count

    def is_done(snapshot: MetadataSnapshot, topic: str) -> bool:
        return len(snapshot.partitions.get(topic, ())) >= started[topic] and is_led(snapshot, topic)

    def answer(pending: set[str]) -> None:
        for name in pending:
            results[name] = _result(name, ErrorCode.REQUEST_TIMED_OUT, "grown, but not all partitions are led yet")
        call.respond(wire.CreatePartitionsResponse(results=list(results.values())))

    if not started:
        return wire.CreatePartitionsResponse(results=list(results.values()))
    call.context.topic_admin.waiting.wait(started, is_done, call.patience_ms(request.timeout_ms), answer)
    return None


def _result(name: str, code: ErrorCode, message: str | None = None) -> wire.CreatePartitionsResult:
    return wire.CreatePartitionsResult(name=name, error_code=code, error_message=message)


def _grow(topic: wire.CreatePartitionsTopic, call: Call, *, validate_only: bool) -> wire.CreatePartitionsResult:
    if not call.context.controller.is_active:
        return _result(topic.name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    lists = None if topic.assignments is None else [tuple(a.broker_ids) for a in topic.assignments]
    try:
        call.context.topic_admin.grow(topic.name, topic.count, lists, validate_only=validate_only)
    except KafkatoolError as e:  # refused; or ZooKeeper, or what is in it
        return _result(topic.name, code_of(e), str(e))
    return _result(topic.name, ErrorCode.NONE)
