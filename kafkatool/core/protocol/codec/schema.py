"""The schema of messages: declarations turned into fields with wire types, for the compiler; and the APIs they make up."""

import dataclasses
import types
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.types import (
    BOOL,
    INT32,
    Fixed,
    GroupedSince,
    NullSince,
    RecordsMark,
    Since,
    Tagged,
    Until,
    cached,
)

NO_DEFAULT = object()
_ALWAYS = 1 << 15
Response = TypeVar("Response", covariant=True)


class Request(Generic[Response]):
    """The base of request classes: names the class of the answer, so that ``Connection.send`` is typed."""

    __slots__ = ()
    most_elements: ClassVar[int | None] = 250_000
    """What all arrays of one request may hold together, None: no bound. The smallest element, of two bytes on the wire,
    takes a hundred times that in memory, and as much again in the answer. No client asks about so many partitions."""


class Text(NamedTuple):
    """A string."""


class Blob(NamedTuple):
    """Bytes with an int32 length; ``records``: left where they are."""

    records: bool = False


class Array(NamedTuple):
    """An array of numbers, strings or structs."""

    element: "WireType"


class Struct(NamedTuple):
    """A class with fields of its own."""

    type: type[object]


WireType = Fixed | Text | Blob | Array | Struct


class Field(NamedTuple):
    """One field of a message class, in wire order."""

    name: str
    type: WireType
    since: int = 0
    until: int = _ALWAYS
    null_since: int = _ALWAYS
    grouped_since: int = _ALWAYS
    tag: int | None = None  # None: in its place among the others
    default: Any = NO_DEFAULT  # value in versions without the field
    default_is_list: bool = False  # instead: a new empty list

    def exists(self, version: int) -> bool:
        """Tell whether that version carries the field."""
        return self.since <= version <= self.until

    @property
    def is_never_null(self) -> bool:
        """Tell whether no version has null for it."""
        return self.null_since == _ALWAYS

    @property
    def default_source(self) -> str:
        """Return the default as Python writes it. TypeError for a field without one."""
        if self.default_is_list:
            return "[]"
        if self.default is NO_DEFAULT:
            raise TypeError(f"{self.name} needs a default for versions without it, or where its tag is left out")
        return repr(self.default)


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, the versions this protocol package knows, and the two messages.

    ``flexible_from`` is the first version with compact types and tagged fields (KIP-482), None if none has.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    request: type[object]
    response: type[object]
    flexible_from: int | None = None

    def is_flexible(self, version: int) -> bool:
        """Tell whether bodies of that version are in the compact form."""
        return self.flexible_from is not None and version >= self.flexible_from

    def knows(self, version: int) -> bool:
        """Tell whether messages of that version can be encoded and decoded."""
        return self.min_version <= version <= self.max_version


@cached
def fields_of(cls: type[object]) -> tuple[Field, ...]:
    """Return the fields of a message class in wire order. TypeError for an annotation that says no wire type."""
    if cls is TopicPartition:  # the shared value type knows nothing of the wire
        return (Field("topic", Text()), Field("partition", INT32))
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_field(f, hints[f.name]) for f in dataclasses.fields(cast(Any, cls)))


def _field(field: "dataclasses.Field[Any]", hint: Any) -> Field:
    marks: list[Any] = []
    wire_type, nullable = _resolve(hint, marks)
    versions: dict[type[object], int] = {type(m): m.number for m in marks if not isinstance(m, Tagged)}
    since = versions.get(Since, 0)
    tag = next((m.number for m in marks if isinstance(m, Tagged)), None)
    nullable = nullable and not (tag is not None and isinstance(wire_type, Struct))
    return Field(
        name=field.name,
        type=wire_type,
        since=since,
        until=versions.get(Until, _ALWAYS),
        null_since=versions.get(NullSince, since) if nullable else _ALWAYS,
        grouped_since=versions.get(GroupedSince, _ALWAYS),
        tag=tag,
        default=NO_DEFAULT if field.default is dataclasses.MISSING else field.default,
        default_is_list=field.default_factory is list,
    )


def _resolve(hint: Any, marks: list[Any]) -> tuple[WireType, bool]:
    """Return the wire type and whether null is allowed; version marks found on the way go to ``marks``."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        marks += [n for n in notes if isinstance(n, Since | Until | NullSince | GroupedSince | Tagged)]
        for note in notes:
            if isinstance(note, Fixed):
                return note, False
            if isinstance(note, RecordsMark):
                return Blob(records=True), False
        return _resolve(inner, marks)
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (a for a in get_args(hint) if a is not type(None))
        return _resolve(inner, marks)[0], True
    if get_origin(hint) is list:
        return Array(_resolve(get_args(hint)[0], [])[0]), False
    if hint is TopicPartition or dataclasses.is_dataclass(hint):
        return Struct(cast(type[object], hint)), False
    plain: dict[Any, WireType] = {str: Text(), bool: BOOL, bytes: Blob()}
    if hint not in plain:
        raise TypeError(f"no wire type for {hint!r}")
    return plain[hint], False
