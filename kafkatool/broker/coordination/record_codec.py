"""The encoding of keys and values in the logs of the coordinators: a version, then fields of the old protocol."""

import struct

from kafkatool.core.errors import CorruptRecordsError


class RecordWriter:
    """Writes one key or value, its version first."""

    def __init__(self, version: int) -> None:
        self.data = bytearray(struct.pack(">h", version))

    def add(self, layout: str, *values: int) -> None:
        self.data += struct.pack(">" + layout, *values)

    def string(self, value: str | None) -> None:
        if value is None:
            self.add("h", -1)
        else:
            encoded = value.encode()
            self.add("h", len(encoded))
            self.data += encoded

    def bytes(self, value: bytes) -> None:
        self.add("i", len(value))
        self.data += value


class RecordReader:
    """Reads one key or value of ``topic``. Every method raises CorruptRecordsError where the bytes end early."""

    def __init__(self, data: bytes | memoryview, topic: str) -> None:
        self._topic = topic
        self._data = bytes(data)
        self._at = 0

    def take(self, layout: str) -> int:
        try:
            (value,) = struct.unpack_from(">" + layout, self._data, self._at)
        except struct.error as e:
            raise CorruptRecordsError(f"record of {self._topic} ends early: {e}") from e
        self._at += struct.calcsize(">" + layout)
        return int(value)

    def _slice(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise CorruptRecordsError(f"record of {self._topic} ends early: {size} bytes wanted at {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def nullable(self) -> str | None:
        size = self.take("h")
        return None if size == -1 else self._slice(size).decode(errors="replace")

    def string(self) -> str:
        return self.nullable() or ""

    def bytes(self) -> bytes:
        size = self.take("i")
        return b"" if size == -1 else self._slice(size)

    def unsigned_varint(self) -> int:
        value = shift = 0
        while (byte := self.take("B")) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 28:
                raise CorruptRecordsError(f"record of {self._topic} has a length of more than 5 bytes")
        return value | byte << shift

    def compact_string(self) -> str:
        return self._slice(self.unsigned_varint() - 1).decode(errors="replace")

    def skip_tags(self) -> None:
        """Pass over tagged fields: none is needed here."""
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self._slice(self.unsigned_varint())
