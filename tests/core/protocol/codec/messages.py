"""Random messages of any class and version, from the same declarations the compiler reads."""

from typing import Any

from hypothesis import strategies as st

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api, Array, Blob, Field, Struct, Text, WireType, fields_of
from kafkatool.core.protocol.codec.types import Fixed
from tests.core.protocol.apis import APIS

_BITS = {"b": 7, "h": 15, "i": 31, "q": 63}

EVERY_VERSION = [
    (api, version, cls)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for cls in (api.request, api.response)
]


def case_name(case: object) -> str:
    """Readable test ids."""
    if isinstance(case, Api):
        return case.name
    return getattr(case, "__name__", str(case))


def messages(cls: type[object], version: int) -> st.SearchStrategy[Any]:
    """Messages whose fields are set only as far as the version carries them: they come back equal."""
    fields = {f.name: _values(f, version) for f in fields_of(cls) if f.exists(version)}
    if cls is TopicPartition:
        return st.builds(TopicPartition, **fields)
    return st.builds(cls, **fields)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_type(field.type, version)
    if version >= field.grouped_since:
        values = values.map(_grouped)
    if field.tag is not None and not field.default_is_list:
        return st.just(field.default) | values
    return st.none() | values if version >= field.null_since else values


def _of_type(wire_type: WireType, version: int) -> st.SearchStrategy[Any]:
    match wire_type:
        case Fixed(code="?"):
            return st.booleans()
        case Fixed(code="16s"):
            return st.binary(min_size=16, max_size=16)
        case Fixed(code="d"):
            return st.floats(allow_nan=False)
        case Fixed(code="H"):
            return st.integers(0, 0xFFFF)
        case Fixed(code=code):
            return st.integers(-(1 << _BITS[code]), (1 << _BITS[code]) - 1)
        case Text():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
        case Blob():
            return st.binary(max_size=6)
        case Array(element=element):
            return st.lists(_of_type(element, version), max_size=3)
        case Struct(type=cls):
            return messages(cls, version)
    raise AssertionError(wire_type)


def _grouped(elements: list[Any]) -> list[Any]:
    """Return elements in the order in which grouping by topic leaves them."""
    topics = list(dict.fromkeys(e.topic for e in elements))
    return sorted(elements, key=lambda e: topics.index(e.topic))
