"""The base of the writers of decode and encode functions: lines, constants, the run of fixed-width values."""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from kafkatool.core.protocol.codec.schema import Field, Text, WireType, fields_of
from kafkatool.core.protocol.codec.schema import Struct as StructType
from kafkatool.core.protocol.codec.types import Fixed


class Source:
    """The text of one function under construction, and the objects it refers to by name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self.pending: list[tuple[str, str]] = []  # struct code, expression: not yet read or written
        self._lines: list[str] = []
        self._indent = 1

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add ``head`` and, deeper, what is added inside."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, value: Any) -> str:
        """Return the name under which the function reaches ``value``."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def name_of_struct(self, struct: Struct, method: str) -> str:
        """Return the name of a bound method of ``struct``; equal formats share it."""
        name = f"{method}_{struct.format[1:].replace('?', 'o')}"
        self.names.setdefault(name, getattr(struct, method))
        return name

    def take_pending(self) -> tuple[Struct, list[str]]:
        """Return the struct of the values gathered, and their expressions; the run is empty afterwards."""
        struct = Struct(">" + "".join(code for code, _ in self.pending))
        expressions = [expression for _, expression in self.pending]
        self.pending = []
        return struct, expressions

    def fields(self, cls: type[object]) -> list[Field]:
        """Return the fields of the class that this version carries."""
        return [f for f in fields_of(cls) if f.exists(self.version)]

    def is_grouped(self, field: Field) -> bool:
        """Tell whether this version sends the flat list grouped by topic."""
        return self.version >= field.grouped_since

    def may_be_null(self, field: Field) -> bool:
        """Tell whether this version allows null."""
        return self.version >= field.null_since

    def ungrouped(self, element: StructType) -> list[Field]:
        """Return the fields of an element of a group: its topic stands in front of the group."""
        return [f for f in self.fields(element.type) if f.name != "topic"]

    def fewest_bytes(self, wire_type: WireType) -> int:
        """Return the size of the shortest encoding, at least 1: it bounds what a count can honestly be."""
        if isinstance(wire_type, Fixed):
            return wire_type.width
        if isinstance(wire_type, StructType):
            fields = [f for f in self.fields(wire_type.type) if f.tag is None]
            return max(1, sum(self._fewest_bytes_of(f) for f in fields) + self.flexible)
        if self.flexible:
            return 1
        return 2 if isinstance(wire_type, Text) else 4

    def _fewest_bytes_of(self, field: Field) -> int:
        return 1 if isinstance(field.type, StructType) and self.may_be_null(field) else self.fewest_bytes(field.type)

    def compile(self, head: str, title: str) -> Any:
        """Return the finished function. Its text is kept for tracebacks under ``title``."""
        text = "\n".join([head, *self._lines]) + "\n"
        filename = f"<{title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)
        return self.names[head.removeprefix("def ").partition("(")[0]]
