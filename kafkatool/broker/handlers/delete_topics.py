"""DeleteTopics (key 20), versions 0-3: answered by the active controller alone (KIP-4).

A topic counts as deleted when this broker's metadata no longer has it; when that takes longer than the request allows,
the answer is REQUEST_TIMED_OUT though the deletion goes on.
"""

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.administration.waiting_topics import is_gone
from kafkatool.broker.handlers.authorization import on_controller, topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import delete_topics as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 3), asks=(on_controller(topics(Operation.DELETE, "topic_names")),))
def handle(request: wire.DeleteTopicsRequest, call: Call) -> wire.DeleteTopicsResponse | None:
    """Mark the topics, then wait until they are gone."""
    codes = {name: _delete(name, call) for name in request.topic_names}
    started = [name for name, code in codes.items() if code is ErrorCode.NONE]

    def answer(pending: set[str]) -> None:
        codes.update(dict.fromkeys(pending, ErrorCode.REQUEST_TIMED_OUT))
        call.respond(_response(codes))

    if not started:
        return _response(codes)
    call.context.topic_admin.waiting.wait(started, is_gone, call.patience_ms(request.timeout_ms), answer)
    return None


def _response(codes: dict[str, ErrorCode]) -> wire.DeleteTopicsResponse:
    return wire.DeleteTopicsResponse(
        topics=[wire.DeleteTopicsResponseTopic(name=name, error_code=code) for name, code in codes.items()]
    )


def _delete(name: str, call: Call) -> ErrorCode:
    if not call.context.controller.is_active:
        return ErrorCode.NOT_CONTROLLER
    if not call.context.config.delete_topic_enable:
        return ErrorCode.TOPIC_DELETION_DISABLED if call.header.api_version >= 3 else ErrorCode.INVALID_REQUEST
    try:
        call.context.topic_admin.delete(name)
    except (AdminError, ZooKeeperError) as e:
        return code_of(e)
    return ErrorCode.NONE
