"""The functions that compiled code calls: unsigned varints, tagged fields, runs of numbers, elements by topic."""

from struct import Struct
from typing import Any

from kafkatool.core.errors import ProtocolError, TooManyElementsError
from kafkatool.core.protocol.codec.types import Buffer

FEW = 64
_STRUCTS = {code: [Struct(f">{count}{code}") for count in range(FEW)] for code in "iq"}
READ_FEW = {code: [struct.unpack_from for struct in structs] for code, structs in _STRUCTS.items()}
WRITE_FEW = {code: [struct.pack for struct in structs] for code, structs in _STRUCTS.items()}
"""What reads and writes so many numbers in a row, by their code and count below FEW: replica lists are short and many."""


def numbers_struct(code: str, count: int) -> Struct:
    """Return the struct of ``count`` numbers in a row. That of few is made beforehand."""
    return _STRUCTS[code][count] if count < FEW else Struct(f">{count}{code}")


def uvarint(value: int) -> bytes:
    """Write a number seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def too_many(field: str) -> TooManyElementsError:
    """Return the error of a request with more elements than are taken."""
    return TooManyElementsError(f"{field}: more elements than one request may have")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it. ProtocolError past 5 bytes, IndexError past the end."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError("a varint of more than 5 bytes")


def malformed(field: str, length: int) -> ProtocolError:
    """Make the error of a length or count that is negative, past the end, or null where that is not allowed."""
    return ProtocolError(f"{field}: length {length} is not allowed or runs past the end")


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after the tagged fields at ``position``: none is known here, so all are skipped."""
    count, position = read_uvarint(data, position)
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size_bytes, position = read_uvarint(data, position)
        if tag <= last:
            raise ProtocolError(f"tag {tag} after tag {last}")
        last = tag
        position += size_bytes
        if position > len(data):
            raise malformed(f"tagged field {tag}", size_bytes)
    return position


def by_topic(elements: list[Any]) -> dict[str, list[Any]]:
    """Group elements by their topic, topics in the order they first appear."""
    groups: dict[str, list[Any]] = {}
    for element in elements:
        groups.setdefault(element.topic, []).append(element)
    return groups
