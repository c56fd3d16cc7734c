"""The answer to a request that failed unexpectedly, or whose version is refused: every place for a code gets it.

Lists of the answer that have a counterpart in the request (topics, their partitions) are mirrored, as Kafka's
getErrorResponse does by hand for each request. Source: Kafka 1.1.1 common/requests/*Request.java.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError, RefusedError, StorageError
from kafkatool.core.protocol.codec.schema import NO_DEFAULT, Array, Blob, Field, Struct, Text, fields_of
from kafkatool.core.protocol.codec.types import NO_UUID, UUID
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_CODES: Mapping[type[Exception], ErrorCode] = {
    CorruptRecordsError: ErrorCode.CORRUPT_MESSAGE,
    OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    RefusedError: ErrorCode.INVALID_REQUEST,
}
_IDENTITY = frozenset(
    {
        "topic",
        "partition",
        "name",
        "resource_type",
        "resource_name",
        "group_id",
        "transactional_id",
        "key",
    }
)
_MIRRORED = _IDENTITY | {"topic_id"}
_ZERO = frozenset({"throttle_time_ms", "session_id"})  # every other number without a default is -1 in an error


def code_of(error: Exception) -> ErrorCode:
    """Return the code an error carries or stands for, else UNKNOWN_SERVER_ERROR."""
    carried = getattr(error, "code", None)
    if isinstance(carried, ErrorCode):
        return carried
    return next((c for kind, c in _CODES.items() if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)


def error_reply(cls: type[Any], request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """Build the response that says ``code`` everywhere: whole, or for each thing that the request names."""
    return _reply(cls, request, code, message, otherwise=_named(request))


def _named(request: Any) -> Sequence[Any]:
    """Return what the request names in its only list, or in several of things with names, each once.

    Of a list of things that have no name of their own (log dirs), what those name.
    """
    lists = [v for f in fields_of(type(request)) if isinstance(v := getattr(request, f.name), list) and v]
    if len(lists) == 1 and hasattr(lists[0][0], "path"):
        return [named for directory in lists[0] for named in _named(directory)]
    if len(lists) == 1:
        return lists[0]
    items = [item for one in lists for item in one]
    return list({item.name: item for item in items}.values()) if all(hasattr(item, "name") for item in items) else ()


def _reply(cls: type[Any], source: Any, code: ErrorCode, message: str | None, otherwise: Sequence[Any] = ()) -> Any:
    """Build a response, or a part of one; ``source``: its counterpart, a name or a number where that is all it has.

    ``otherwise``: what a list answers for which the request has none of the same name.
    """
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if field.name == "error_code":
            values[field.name] = code
        elif field.name == "error_message":
            values[field.name] = message
        elif isinstance(source, str | int) and field.name in _IDENTITY:  # a list of names, or of partitions
            values[field.name] = source
        elif hasattr(source, field.name) and (field.name in _MIRRORED or _is_marked_producer(field)):
            told = getattr(source, field.name)
            values[field.name] = _nothing(field) if told is None and field.is_never_null else told
        elif field.name == "user" and hasattr(source, "name"):
            values[field.name] = source.name
        elif isinstance(field.type, Array) and isinstance(field.type.element, Struct):
            element = field.type.element.type
            counterpart = getattr(source, field.name, None) or (otherwise if _answers(element) else ())
            values[field.name] = [_reply(element, item, code, message) for item in counterpart]
        elif field.default is NO_DEFAULT and not field.default_is_list:
            values[field.name] = _nothing(field)
    return cls(**values)


def _answers(element: type[Any]) -> bool:
    """Tell whether such a thing has a place for a code, its own or in its partitions."""
    parts = fields_of(element)
    return any(part.name == "error_code" for part in parts) or any(
        part.name == "partitions"
        and isinstance(part.type, Array)
        and isinstance(part.type.element, Struct)
        and _answers(part.type.element.type)
        for part in parts
    )


def _is_marked_producer(field: Field) -> bool:
    """Tell whether it says whose marker was refused; elsewhere a producer id is what is given, -1 in an error."""
    return field.name == "producer_id" and field.default is NO_DEFAULT


def _nothing(field: Field) -> Any:
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, Text):
        return ""
    if isinstance(field.type, Blob):
        return b""
    if field.type == UUID:
        return NO_UUID
    return 0 if field.name in _ZERO else -1
