"""The writer of the function that encodes one message class in one version."""

from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.primitives import FEW, WRITE_FEW, by_topic, numbers_struct, uvarint
from kafkatool.core.protocol.codec.schema import Array, Blob, Field, Struct, Text, WireType
from kafkatool.core.protocol.codec.source import Source
from kafkatool.core.protocol.codec.types import INT16, INT32, Fixed

_THROTTLE_TIME = "m.throttle_time_ms"  # of a response; the one field that an argument may say
# Records below this are copied into the message: cheaper than one more buffer for the socket.
_COPY_BELOW_BYTES = 2048


class EncodeSource(Source):
    """The text of ``encode(m, out, chunks, throttle_time_ms) -> out``: appends; records not copied close it into ``chunks``.

    The buffer returned is the last one, not yet in ``chunks``.
    """

    def __init__(self, cls: type[object], version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.names |= {
            "FileRegion": FileRegion,
            "by_topic": by_topic,
            "numbers": numbers_struct,
            "uvarint": uvarint,
            "write_few_i": WRITE_FEW["i"],
            "write_few_q": WRITE_FEW["q"],
        }
        self._struct(self.fields(cls), "m", 0)
        self.line("return out")

    def _struct(self, fields: list[Field], source: str, depth: int) -> None:
        tagged = [field for field in fields if field.tag is not None]
        for field in fields:
            if field.tag is not None:
                continue
            value = f"{source}.{field.name}"
            self._field(field, f"throttle_time_ms or {value}" if value == _THROTTLE_TIME else value, depth)
        self._flush()
        if tagged:
            self._tagged(tagged, source, depth)
        elif self.flexible:
            self.line("out.append(0)")  # no tagged fields

    def _tagged(self, fields: list[Field], source: str, depth: int) -> None:
        """Write the tagged fields that differ from their defaults; nearly always there is none."""
        tests = [f"{source}.{field.name} != {field.default_source}" for field in fields]
        with self.block(f"if {' or '.join(tests)}:"):
            self.line(f"tagged{depth} = []")
            for field, test in zip(fields, tests, strict=True):
                with self.block(f"if {test}:"):
                    self.line(f"before{depth}, out = out, bytearray()")
                    self._field(field, f"{source}.{field.name}", depth)
                    self._flush()
                    self.line(f"tagged{depth} += [uvarint({field.tag}), uvarint(len(out)), out]")
                    self.line(f"out = before{depth}")
            self.line(f"out += uvarint(len(tagged{depth}) // 3)")
            self.line(f"out += b''.join(tagged{depth})")
        with self.block("else:"):
            self.line("out.append(0)")

    def _field(self, field: Field, source: str, depth: int) -> None:
        if isinstance(field.type, Fixed):
            self.pending.append((field.type.code, source))
        elif isinstance(field.type, Struct):
            self._nested(field.type.type, source, self.may_be_null(field), depth)
        elif self.is_grouped(field):
            self._grouped(field, source, depth)
        else:
            self._sized(field.type, source, self.may_be_null(field), depth)

    def _nested(self, cls: type[object], source: str, nullable: bool, depth: int) -> None:
        """Write a struct; a nullable one has a byte in front of it, -1 for null."""
        value = f"v{depth}"
        self.line(f"{value} = {source}")
        if not nullable:
            self._struct(self.fields(cls), value, depth + 1)
            return
        self._flush()
        with self.block(f"if {value} is None:"):
            self.line("out.append(0xFF)")
        with self.block("else:"):
            self.line("out.append(1)")
            self._struct(self.fields(cls), value, depth + 1)

    def _sized(self, wire_type: WireType, source: str, nullable: bool, depth: int) -> None:
        """Write a value with a length in front."""
        value = f"v{depth}"
        self.line(f"{value} = {source}")
        width = INT16 if isinstance(wire_type, Text) else INT32
        if nullable:
            with self.block(f"if {value} is None:"):
                self.line("n = -1")
            with self.block("else:"):
                self._measure(wire_type, value)
        else:
            self._measure(wire_type, value)
        self._length(width)
        if nullable:
            with self.block(f"if {value} is not None:"):
                self._content(wire_type, value, depth)
        else:
            self._content(wire_type, value, depth)

    def _measure(self, wire_type: WireType, value: str) -> None:
        """Compute ``n``, and for a string its bytes."""
        if isinstance(wire_type, Text):
            self.line(f"{value} = {value}.encode()")
        if isinstance(wire_type, Blob) and wire_type.records:
            self.line(f"n = {value}.size_bytes if type({value}) is FileRegion else len({value})")
        else:
            self.line(f"n = len({value})")

    def _length(self, width: Fixed) -> None:
        """Write the pending values and ``n``."""
        if not self.flexible:
            self.pending.append((width.code, "n"))
            self._flush()
            return
        self._flush()
        with self.block("if n < 127:"):
            self.line("out.append(n + 1)")
        with self.block("else:"):
            self.line("out += uvarint(n + 1)")

    def _content(self, wire_type: WireType, value: str, depth: int) -> None:
        if isinstance(wire_type, Array):
            self._array(wire_type.element, value, depth)
        elif isinstance(wire_type, Blob) and wire_type.records:
            with self.block(f"if n < {_COPY_BELOW_BYTES} and type({value}) is not FileRegion:"):
                self.line(f"out += {value}")
            with self.block("elif n:"):
                self.line("chunks.append(out)")
                self.line(f"chunks.append({value})")
                self.line("out = bytearray()")
        else:
            self.line(f"out += {value}")

    def _array(self, element: WireType, value: str, depth: int) -> None:
        if isinstance(element, Fixed):
            with self.block(f"if n < {FEW}:"):
                self.line(f"out += write_few_{element.code}[n](*{value})")
            with self.block("else:"):
                self.line(f"out += numbers({element.code!r}, n).pack(*{value})")
            return
        with self.block(f"for m{depth + 1} in {value}:"):
            if isinstance(element, Struct):
                self._struct(self.fields(element.type), f"m{depth + 1}", depth + 1)
            else:
                self._sized(element, f"m{depth + 1}", False, depth + 1)

    def _grouped(self, field: Field, source: str, depth: int) -> None:
        """Write a flat list as an array of topics, each with an array of elements that lack it."""
        assert isinstance(field.type, Array) and isinstance(field.type.element, Struct)
        inner = self.ungrouped(field.type.element)
        bare = len(inner) == 1 and isinstance(inner[0].type, Fixed)  # numbers have no tagged fields of their own
        self.line(f"v{depth} = by_topic({source})")
        self.line(f"n = len(v{depth})")
        self._length(INT32)
        item = f"m{depth + 1}"
        with self.block(f"for topic, group in v{depth}.items():"):
            self._sized(Text(), "topic", False, depth + 1)
            self.line("n = len(group)")
            self._length(INT32)
            with self.block(f"for {item} in group:"):
                if bare:
                    self._field(inner[0], f"{item}.{inner[0].name}", depth + 1)
                    self._flush()
                else:
                    self._struct(inner, item, depth + 1)
            if self.flexible:
                self.line("out.append(0)")

    def _flush(self) -> None:
        if not self.pending:
            return
        struct, values = self.take_pending()
        self.line(f"out += {self.name_of_struct(struct, 'pack')}({', '.join(values)})")
