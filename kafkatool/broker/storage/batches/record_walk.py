"""A walk along the records of a batch, from length to length, without reading them: are they as many as it says?

It costs 0.1 us for each record, and next to nothing where records are equally long, as those of one producer often are:
then the first bytes of many are compared in one step.
"""

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.records.varints import read_varint

SMALLEST_RECORD_BYTES = 7  # its length, attributes, two deltas, and the lengths of key, value and headers
_STRETCH = 64  # records looked at in one step, one way or the other
_WORTH_ANOTHER = 16


def check_walk(records: bytes, count: int, position: int = 0) -> None:
    """Check that from ``position`` to the end there are ``count`` records. Raises CorruptRecordsError."""
    end, left, stretch = len(records), count, _STRETCH
    try:
        while left:
            after = _walk(records, position, 1)
            alike = _alike(records, position, after, min(left, stretch, (end - position) // (after - position)))
            position += alike * (after - position)
            left -= alike
            if alike == stretch:
                stretch *= 4
                continue
            stretch = _STRETCH
            if alike < _WORTH_ANOTHER:
                steps = min(left, _STRETCH)
                position = _walk(records, position, steps)
                left -= steps
    except IndexError as e:
        raise CorruptRecordsError("records are cut off") from e
    if position != end:
        what = "are cut off" if position > end else f"are followed by {end - position} bytes"
        raise CorruptRecordsError(f"{count} records {what}")


def _walk(records: bytes, position: int, count: int) -> int:
    """Return the position after the next ``count`` records. Raises CorruptRecordsError, IndexError."""
    for _ in range(count):
        byte = records[position]
        if byte < 0x80:  # the usual cases by hand: this is the path of every append
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif (second := records[position + 1]) < 0x80:
            length, position = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), position + 2
        else:
            length, position = read_varint(records, position)
        if length < SMALLEST_RECORD_BYTES - 1:
            raise CorruptRecordsError(f"a record of {length} bytes")
        position += length
    return position


def _alike(records: bytes, start: int, after: int, most: int) -> int:
    """Return how many records from ``start`` on, ``most`` at most, say that they are as long as the first."""
    step = after - start
    at, more = start, True
    while more and most:
        column = records[at : at + step * (most - 1) + 1 : step]
        more = column[0] >= 0x80  # another byte of the length follows
        most = len(column) - len(column.lstrip(column[:1]))
        at += 1
    return most
