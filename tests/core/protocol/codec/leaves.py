"""The values of a message in the order of its schema: what ours and others' forms of it have in common."""

import base64
import math
from typing import Any

from kafkatool.core.protocol.codec.primitives import by_topic
from kafkatool.core.protocol.codec.schema import Array, Blob, Field, Struct, WireType, fields_of
from kafkatool.core.protocol.codec.types import FLOAT64, UUID

# Shown as a size, or not at all, by version and kind of Java object: the bytes written again tell of them.
_RECORDS = {"records", "recordSet", "recordsSizeInBytes", "recordSetSizeInBytes"}


_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
"""How Kafka's JSON writes what JSON has no number for."""


def leaves_of_json(value: Any) -> list[Any]:
    """Return the values of a message's JSON form, whose names are in the order of its schema."""
    if isinstance(value, dict):
        return [leaf for key, v in value.items() if key not in _RECORDS for leaf in leaves_of_json(v)]
    if isinstance(value, list):
        return [leaf for v in value for leaf in leaves_of_json(v)]
    return [value]


def leaves(message: object, version: int) -> list[Any]:
    """Return the values that a message of ours has in that version."""
    return _leaves(message, _carried(type(message), version), version)


def _leaves(message: object, fields: list[Field], version: int) -> list[Any]:
    found: list[Any] = []
    for field in fields:
        value = getattr(message, field.name)
        if field.tag is not None and value == field.default:
            continue  # not written, nor shown
        if version >= field.grouped_since:
            assert isinstance(field.type, Array) and isinstance(field.type.element, Struct)
            inner = [f for f in _carried(field.type.element.type, version) if f.name != "topic"]
            for topic, group in by_topic(value).items():
                found += [topic, *(leaf for element in group for leaf in _leaves(element, inner, version))]
        else:
            found += _leaves_of_value(field.type, value, version)
    return found


def _leaves_of_value(wire_type: WireType, value: Any, version: int) -> list[Any]:
    if isinstance(wire_type, Blob) and wire_type.records:
        return []
    if value is None:
        return [None]
    if isinstance(wire_type, Array):
        return [leaf for element in value for leaf in _leaves_of_value(wire_type.element, element, version)]
    if isinstance(wire_type, Struct):
        return _leaves(value, _carried(wire_type.type, version), version)
    if isinstance(wire_type, Blob):
        return [base64.b64encode(value).decode()]
    if wire_type == UUID:
        return [base64.urlsafe_b64encode(value).decode().rstrip("=")]
    return [_INFINITE.get(value, value)] if wire_type == FLOAT64 else [value]


def _carried(cls: type[object], version: int) -> list[Field]:
    return [f for f in fields_of(cls) if f.exists(version)]
