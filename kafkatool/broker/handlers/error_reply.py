"""The answer to a request that failed unexpectedly, or whose version is refused: every place for a code gets it.

Lists of the answer that have a counterpart in the request (topics, their partitions) are mirrored, as Kafka's
getErrorResponse does by hand for each request. Source: Kafka 1.1.1 common/requests/*Request.java.
"""

from collections.abc import Mapping
from typing import Any

from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError, RefusedError, StorageError
from kafkatool.core.protocol.codec.schema import NO_DEFAULT, Api, Array, Blob, Field, Struct, Text, fields_of
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_CODES: Mapping[type[Exception], ErrorCode] = {
    CorruptRecordsError: ErrorCode.CORRUPT_MESSAGE,
    OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    RefusedError: ErrorCode.INVALID_REQUEST,
}
_IDENTITY = frozenset({"topic", "partition", "name", "resource_type", "resource_name"})
_ZERO = frozenset({"throttle_time_ms", "session_id"})  # every other number without a default is -1 in an error


def code_of(error: Exception) -> ErrorCode:
    """Return the code an error carries or stands for, else UNKNOWN_SERVER_ERROR."""
    carried = getattr(error, "code", None)
    if isinstance(carried, ErrorCode):
        return carried
    return next((c for kind, c in _CODES.items() if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)


def error_reply(api: Api, request: Any, code: ErrorCode) -> Any:
    """Build the response of that API which says ``code`` everywhere."""
    return _build(api.response, request, code)


def _build(cls: type[Any], source: Any, code: ErrorCode) -> Any:
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if field.name == "error_code":
            values[field.name] = code
        elif field.name in _IDENTITY and hasattr(source, field.name):
            values[field.name] = getattr(source, field.name)
        elif isinstance(field.type, Array) and isinstance(field.type.element, Struct):
            counterpart = getattr(source, field.name, None) or []
            element = field.type.element.type
            values[field.name] = [
                _build(element, item, code) for item in counterpart if not isinstance(item, str | int)
            ]
        elif field.default is NO_DEFAULT and not field.default_is_list:
            values[field.name] = _nothing(field)
    return cls(**values)


def _nothing(field: Field) -> Any:
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, Text):
        return ""
    if isinstance(field.type, Blob):
        return b""
    return 0 if field.name in _ZERO else -1
