"""The vocabulary in which messages are declared: wire types, and the versions in which a field exists.

A message is a class with ``@message``; a field's annotation is its Python type with the wire type and versions beside
it, which type checkers see as a plain ``int``, ``str`` or ``list``::

    current_leader_epoch: Annotated[Int32, Since(9)] = -1

``str`` and ``bool`` need no mark, ``bytes`` neither; ``list[X]`` is an array. ``X | None`` may be null in every version
that has the field, unless ``NullSince`` says later. A default is the value in versions that lack the field.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, NamedTuple, TypeVar, cast, dataclass_transform

from kafkatool.core.protocol.codec.file_region import FileRegion

T = TypeVar("T")
OfClass = TypeVar("OfClass", bound=Callable[..., Any])

Buffer = bytes | bytearray | memoryview
"""Bytes in memory. A memoryview must be of single bytes and contiguous."""

Chunk = Buffer | FileRegion
"""A part of an encoded message, ready to be sent."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def message(cls: type[T]) -> type[T]:
    """Make a message, or a part of one, of a class that declares its fields; to type checkers it is frozen.

    Held so at run time too, it would be made and decoded two to three times slower; handlers' tests do hold requests.
    All messages share what compares and shows them, and ``__init__`` is compiled for the first object that is made by it.
    Done for each of 230 classes as they are declared, that was a sixth of what a broker loads before it serves.
    """
    made: Any = dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)(cls)
    made.__init__, made.__eq__, made.__repr__ = _first_init, _equals, _shown
    made.__hash__ = None  # it can be changed
    return cast(type[T], made)


def _first_init(self: Any, **values: Any) -> None:
    """Give the class of this object, the first one, the ``__init__`` of a dataclass. Any thread; twice does no harm."""
    cls = type(self)
    declared = [(f.name, f.type, f) for f in fields(cls)]
    documented = {"__doc__": cls.__doc__}  # else a signature is made up for it, which takes longer than all the rest
    same: Any = make_dataclass(cls.__name__, declared, namespace=documented, kw_only=True, eq=False, repr=False)
    cls.__init__ = same.__init__
    cls.__init__(self, **values)


def _equals(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))


def _shown(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"


def cached(function: OfClass) -> OfClass:
    """Keep what a function of a class returns; ``functools.cache`` whose arguments mypy lets be a class."""
    return cast(OfClass, functools.cache(function))


class Fixed(NamedTuple):
    """A type of fixed width: its ``struct`` code, big-endian."""

    code: str
    width: int


class _Mark:
    """What an annotation says of a field beside its type. Equal to itself alone.

    ``typing`` keeps the annotations it has made and gives an equal one again: were ``Until(3)`` equal to ``Since(3)``,
    as named tuples are, the second of two fields would get the mark of the first, whichever was imported first.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Since(_Mark):
    """First version that has the field."""

    __slots__ = ()


class Until(_Mark):
    """Last version that has the field."""

    __slots__ = ()


class NullSince(_Mark):
    """First version in which the field may be null."""

    __slots__ = ()


class Tagged(_Mark):
    """The field stands among the tagged fields (KIP-482) under that number; written where it is not its default.

    ``X | None`` of a message is there or not; it is never null on the wire.
    """

    __slots__ = ()


class GroupedSince(_Mark):
    """From this version on the flat list is sent grouped: an array of (topic, elements without their topic)."""

    __slots__ = ()


class RecordsMark:
    """The field holds record batches: read without copying, written from memory or from a file."""


BOOL = Fixed("?", 1)
INT8 = Fixed("b", 1)
INT16 = Fixed("h", 2)
UINT16 = Fixed("H", 2)
INT32 = Fixed("i", 4)
INT64 = Fixed("q", 8)
FLOAT64 = Fixed("d", 8)
UUID = Fixed("16s", 16)
RECORDS = RecordsMark()

Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[bytes, UUID]
"""16 bytes; all zero is none."""
NO_UUID = bytes(16)
Records = Annotated[Buffer, RECORDS]
"""Record batches in memory; a memoryview into the frame after decoding."""
FileRecords = Annotated[Buffer | FileRegion, RECORDS]
"""The same, in memory (always, after decoding) or in a segment file."""
