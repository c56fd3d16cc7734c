"""Zigzag numbers of variable length, as records of format v2 hold them (wire.md section 1)."""

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.types import Buffer

_MAX_BYTES = 10


def append_varint(out: bytearray, value: int) -> None:
    """Append a varint or varlong: the bytes are the same."""
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it. CorruptRecordsError past 10 bytes, IndexError past the end."""
    byte = data[position]
    if byte < 0x80:  # nearly all are: lengths, deltas, header counts
        return (byte >> 1) ^ -(byte & 1), position + 1
    number = byte & 0x7F
    for index in range(1, _MAX_BYTES):
        byte = data[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + index + 1
    raise CorruptRecordsError("a varint of more than 10 bytes")
