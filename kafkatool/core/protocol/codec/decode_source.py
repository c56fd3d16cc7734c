"""The writer of the function that decodes one message class in one version.

Every length is held against the bytes left before anything is allocated or sliced.
"""

from typing import Any

from kafkatool.core.protocol.codec.primitives import (
    FEW,
    READ_FEW,
    malformed,
    numbers_struct,
    read_uvarint,
    skip_tagged_fields,
    too_many,
)
from kafkatool.core.protocol.codec.schema import Array, Blob, Field, Struct, Text, WireType, fields_of
from kafkatool.core.protocol.codec.source import Source
from kafkatool.core.protocol.codec.types import INT8, INT16, INT32, Fixed


class DecodeSource(Source):
    """The text of ``decode(data, pos) -> message``; that raises ProtocolError, struct.error or IndexError on bad bytes."""

    def __init__(self, cls: type[object], version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.names |= {
            "malformed": malformed,
            "memoryview": memoryview,
            "new": object.__new__,
            "numbers": numbers_struct,
            "read_few_i": READ_FEW["i"],
            "read_few_q": READ_FEW["q"],
            "read_uvarint": read_uvarint,
            "skip_tagged_fields": skip_tagged_fields,
            "too_many": too_many,
        }
        self._most_elements: int | None = getattr(cls, "most_elements", None)
        self.line("size = len(data)")
        if self._most_elements is not None:
            self.line(f"left = {self._most_elements}")
        self._struct(cls, self.fields(cls), "m", 0)
        self.line("return m")

    def _struct(self, cls: type[object], fields: list[Field], target: str, depth: int) -> None:
        """Read ``fields``, then build the object; a grouped element's topic is read already."""
        for field in fields:
            if field.tag is None:
                self._field(field, f"v{depth}_{field.name}", depth)
        self._flush()
        if tagged := [field for field in fields if field.tag is not None]:
            self._tagged(tagged, depth)
        elif self.flexible:
            with self.block("if data[pos]:"):
                self.line("pos = skip_tagged_fields(data, pos)")
            with self.block("else:"):
                self.line("pos += 1")
        self._build(cls, target, depth)

    def _tagged(self, fields: list[Field], depth: int) -> None:
        """Read the tagged fields that are known, in any order, and pass over the others."""
        for field in fields:
            self.line(f"v{depth}_{field.name} = {field.default_source}")
        self.line("n = data[pos]")
        with self.block("if n < 128:"):
            self.line("pos += 1")
        with self.block("else:"):
            self.line("n, pos = read_uvarint(data, pos)")
        with self.block("for _ in range(n):"):
            self.line("tag, pos = read_uvarint(data, pos)")
            self.line("n, pos = read_uvarint(data, pos)")
            self.line(f"end{depth} = pos + n")
            with self.block(f"if end{depth} > size:"):
                self.line("raise malformed('tagged field', n)")
            for field in fields:
                with self.block(f"if tag == {field.tag}:"):
                    self._field(field, f"v{depth}_{field.name}", depth)
                    self._flush()
            self.line(f"pos = end{depth}")

    def _build(self, cls: type[object], target: str, depth: int) -> None:
        name = self.name(cls)
        if issubclass(cls, tuple):
            values = ", ".join(f"v{depth}_{f.name}" for f in fields_of(cls))
            self.line(f"{target} = {name}({values})")
            return
        self.line(f"{target} = new({name})")
        for field in fields_of(cls):
            self.line(f"{target}.{field.name} = {self._value(field, depth)}")

    def _value(self, field: Field, depth: int) -> str:
        if field.exists(self.version):
            return f"v{depth}_{field.name}"
        return field.default_source

    def _field(self, field: Field, target: str, depth: int) -> None:
        if isinstance(field.type, Fixed):
            self.pending.append((field.type.code, target))
            return
        if isinstance(field.type, Struct):
            self._nested(field.type.type, target, self.may_be_null(field), depth + 1)
            return
        self._length(INT16 if isinstance(field.type, Text) else INT32)
        if self.may_be_null(field):
            with self.block("if n == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._content(field.type, target, field.name, depth)
        elif self.is_grouped(field):
            self._grouped(field, target, depth)
        else:
            self._content(field.type, target, field.name, depth)

    def _nested(self, cls: type[object], target: str, nullable: bool, depth: int) -> None:
        """Read a struct; a nullable one has a byte in front of it, -1 for null."""
        if not nullable:
            self._struct(cls, self.fields(cls), target, depth)
            return
        self.pending.append((INT8.code, "n"))
        self._flush()
        with self.block("if n < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._struct(cls, self.fields(cls), target, depth)

    def _length(self, width: Fixed) -> None:
        """Read the pending values and, after them, a length or count into ``n``; -1 is null."""
        if not self.flexible:
            self.pending.append((width.code, "n"))
            self._flush()
            return
        self._flush()
        self.line("n = data[pos] - 1")
        with self.block("if n < 127:"):
            self.line("pos += 1")
        with self.block("else:"):
            self.line("n, pos = read_uvarint(data, pos)")
            self.line("n -= 1")

    def _content(self, wire_type: WireType, target: str, label: str, depth: int) -> None:
        """Read the ``n`` bytes or elements that follow."""
        if isinstance(wire_type, Array):
            self._array(wire_type.element, target, label, depth)
            return
        self._check_end("n", label)
        if isinstance(wire_type, Text):
            self.line(f"{target} = str(data[pos:end], 'utf-8', 'replace')")
        elif isinstance(wire_type, Blob) and wire_type.records:
            self.line(f"{target} = memoryview(data)[pos:end]")
        else:
            self.line(f"{target} = bytes(data[pos:end])")
        self.line("pos = end")

    def _check_end(self, size: str, label: str) -> None:
        self.line(f"end = pos + {size}")
        with self.block("if n < 0 or end > size:"):
            self.line(f"raise malformed({label!r}, n)")

    def _array(self, element: WireType, target: str, label: str, depth: int) -> None:
        if isinstance(element, Fixed):
            self._check_end(f"n * {element.width}", label)
            self._count(label)
            with self.block(f"if n < {FEW}:"):
                self.line(f"{target} = list(read_few_{element.code}[n](data, pos))")
            with self.block("else:"):
                self.line(f"{target} = list(numbers({element.code!r}, n).unpack_from(data, pos))")
            self.line("pos = end")
            return
        with self._elements(target, label, self.fewest_bytes(element), depth):
            if isinstance(element, Struct):
                item = f"m{depth + 1}"
                self._struct(element.type, self.fields(element.type), item, depth + 1)
            else:
                item = f"v{depth + 1}_item"
                self._length(INT16 if isinstance(element, Text) else INT32)
                self._content(element, item, label, depth + 1)
            self.line(f"add{depth}({item})")

    def _elements(self, target: str, label: str, fewest_bytes: int, depth: int) -> Any:
        """Make the list and open the loop over ``n`` elements."""
        with self.block(f"if n < 0 or n * {fewest_bytes} > size - pos:"):
            self.line(f"raise malformed({label!r}, n)")
        self._count(label)
        self.line(f"{target} = []")
        self.line(f"add{depth} = {target}.append")
        return self.block("for _ in range(n):")

    def _count(self, label: str) -> None:
        """Take the ``n`` elements off those that the request may still have."""
        if self._most_elements is None:
            return
        self.line("left -= n")
        with self.block("if left < 0:"):
            self.line(f"raise too_many({label!r})")

    def _grouped(self, field: Field, target: str, depth: int) -> None:
        """Read an array of topics, each with an array of elements that lack it, into one flat list."""
        assert isinstance(field.type, Array) and isinstance(field.type.element, Struct)
        element = field.type.element
        inner = self.ungrouped(element)
        fewest = sum(self.fewest_bytes(f.type) for f in inner)
        topic = f"v{depth + 1}_topic"
        with self._elements(target, field.name, self.fewest_bytes(Text()) + (1 if self.flexible else 4), depth):
            self._length(INT16)
            self._content(Text(), topic, "topic", depth)
            self._length(INT32)
            bare = len(inner) == 1 and isinstance(inner[0].type, Fixed)  # numbers have no tagged fields of their own
            with self.block(f"if n < 0 or n * {max(1, fewest)} > size - pos:"):
                self.line(f"raise malformed({field.name!r}, n)")
            self._count(field.name)
            with self.block("for _ in range(n):"):
                if bare:
                    self._field(inner[0], f"v{depth + 1}_{inner[0].name}", depth + 1)
                    self._flush()
                    self._build(element.type, f"m{depth + 1}", depth + 1)
                else:
                    self._struct(element.type, inner, f"m{depth + 1}", depth + 1)
                self.line(f"add{depth}(m{depth + 1})")
            if self.flexible:
                self.line("pos = skip_tagged_fields(data, pos)")

    def _flush(self) -> None:
        """Read the values gathered with one call."""
        if not self.pending:
            return
        struct, targets = self.take_pending()
        unpack = self.name_of_struct(struct, "unpack_from")
        self.line(f"{', '.join(targets)}, = {unpack}(data, pos)")
        self.line(f"pos += {struct.size}")
