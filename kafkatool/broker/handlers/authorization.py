"""The steps that an API's ``Served.asks`` is made of: what a client must be allowed to do (SEC-83, 84).

A step takes the request and returns what of it may be served: the request, or one with fewer items, and then the refused
ones are added to the answer with their codes. None: there is nothing left to serve, the answer is given. A step that
refuses the whole raises NotPermittedError. All are taken only where there is an authorizer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.error_reply import error_reply
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from kafkatool.core.protocol.messages.error_codes import ErrorCode

REFUSALS: Final[Mapping[ResourceType, tuple[ErrorCode, str]]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""The code that refuses something done to a resource of that type, and Kafka's words for it."""

NOT_ASKED_FOR: Final = -(2**31)
"""What is told of authorized operations to who did not ask."""


class NotPermittedError(KafkatoolError):
    """The whole request is refused. ``told``: the message beside the code, where the answer has one."""

    def __init__(self, kind: ResourceType, *, with_text: bool = False) -> None:
        self.code, text = REFUSALS[kind]
        self.told = text if with_text else None
        super().__init__(text)


class Resource(NamedTuple):
    """Something an operation is done to. ``text``: the message of its refusal, None: Kafka gives none."""

    operation: Operation
    type: ResourceType
    name: str = CLUSTER_NAME
    text: str | None = None


def by_handler(request: Any, call: Call) -> Any:
    """Leave the decision to the handler: it is about what the answer shows, or needs more than the request."""
    return request


@dataclass(frozen=True, slots=True)
class Whole:
    """Asks one thing of the whole request. ``field`` names the resource; None: it is the cluster."""

    operation: Operation
    type: ResourceType
    field: str | None = None
    with_text: bool = False

    def __call__(self, request: Any, call: Call) -> Any:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        if not call.allows(self.operation, self.type, name):
            raise NotPermittedError(self.type, with_text=self.with_text)
        return request


@dataclass(frozen=True, slots=True)
class Each:
    """Asks for each item of a list by itself; an absent list (null) passes. ``asks`` says what for; None: nothing."""

    field: str
    asks: Callable[[Any], Resource | None]

    def __call__(self, request: Any, call: Call) -> Any:
        items = getattr(request, self.field) or ()
        kept: list[Any] = []
        refused: dict[tuple[ErrorCode, str | None], list[Any]] = {}
        for item in items:
            wanted = self.asks(item)
            if wanted is None or call.allows(wanted.operation, wanted.type, wanted.name):
                kept.append(item)
            else:
                refused.setdefault((REFUSALS[wanted.type][0], wanted.text), []).append(item)
        if not refused:
            return request
        replies = [
            error_reply(call.api.response, replace(request, **{self.field: of_code}), code, text)
            for (code, text), of_code in refused.items()
        ]
        call.will_add(replies[1:] if not kept else replies)
        if kept:
            return replace(request, **{self.field: kept})
        call.respond_refused(request, _without_top(replies[0]))
        return None


def topics(operation: Operation, field: str = "topics", name: str = "topic", text: str | None = None) -> Each:
    """Ask it of each topic in a list of texts, or of structs with the topic's ``name``."""
    return Each(
        field,
        lambda item: Resource(
            operation, ResourceType.TOPIC, item if isinstance(item, str) else getattr(item, name), text
        ),
    )


def groups(operation: Operation, field: str) -> Each:
    """Ask it of each group in a list of names."""
    return Each(field, lambda name: Resource(operation, ResourceType.GROUP, name))


def on_controller(step: Callable[[Any, Call], Any]) -> Callable[[Any, Call], Any]:
    """Ask it on the active controller; any other broker says that it is none, and does nothing.

    It says so here: one that became controller before its handler looked would do what nobody was asked for.
    """

    def asked(request: Any, call: Call) -> Any:
        if call.context.controller.is_active:
            return step(request, call)
        code, text = ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
        call.respond(error_reply(call.api.response, request, code, text))
        return None

    return asked


def cluster(operation: Operation, *, with_text: bool = False) -> Whole:
    """Ask it of the cluster."""
    return Whole(operation, ResourceType.CLUSTER, with_text=with_text)


def group(operation: Operation) -> Whole:
    """Ask it of the group that the request names."""
    return Whole(operation, ResourceType.GROUP, "group_id")


def transactional_id(operation: Operation) -> Whole:
    """Ask it of the transactional id that the request names."""
    return Whole(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")


def may_create_topic(name: str, call: Call) -> bool:
    """Tell whether the client may create that topic, or any."""
    return call.allows(Operation.CREATE, ResourceType.CLUSTER, asked=False) or call.allows(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def operations_on(call: Call, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the bits of all operations that the client may do to that resource (SEC-86)."""
    return sum(1 << one for one in OPERATIONS[kind] if call.allows(one, kind, name, asked=False))


def cluster_operations(call: Call, *, asked_for: bool) -> int:
    """Return the same of the cluster for those who asked; 0 for those who may not describe it."""
    if not asked_for:
        return NOT_ASKED_FOR
    allowed = call.allows(Operation.DESCRIBE, ResourceType.CLUSTER, asked=False)
    return operations_on(call, ResourceType.CLUSTER) if allowed else 0


def _without_top(response: Any) -> Any:
    """Take the error from the top: it is its items that are refused."""
    tops: dict[str, Any] = {"error_code": ErrorCode.NONE, "error_message": None}
    return replace(response, **{field.name: tops[field.name] for field in fields(response) if field.name in tops})
