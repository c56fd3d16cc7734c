"""The compiler of a message class and a version into straight-line Python: no field is interpreted at run time.

Fields of fixed width that stand side by side, and the length of whatever follows them, are read and written by one
``struct`` call; arrays become loops in the same function. A LeaderAndIsr request of 10,000 partitions is what this is
for: it arrives at every controller failover, and a broker should not be busy with it for longer than it must.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from kafkatool.core.protocol.codec.decode_source import DecodeSource
from kafkatool.core.protocol.codec.encode_source import EncodeSource
from kafkatool.core.protocol.codec.types import Buffer, Chunk

Decode: TypeAlias = Callable[[Buffer, int], Any]
"""``decode(data, position) -> message``. Raises ProtocolError, struct.error or IndexError."""

Encode: TypeAlias = Callable[[Any, bytearray, list[Chunk], int], bytearray]
"""``encode(message, out, chunks, throttle_time_ms) -> last buffer``; see EncodeSource."""


_decoders: dict[tuple[type[object], int, bool], Decode] = {}
_encoders: dict[tuple[type[object], int, bool], Encode] = {}


def decoder(cls: type[object], version: int, flexible: bool) -> Decode:
    """Return the decode function of that class and version, made at its first use. Any thread; twice does no harm."""
    key = (cls, version, flexible)
    if (known := _decoders.get(key)) is not None:
        return known
    source = DecodeSource(cls, version, flexible)
    made = cast(Decode, source.compile("def decode(data, pos):", f"decode {cls.__name__} {version}"))
    return _decoders.setdefault(key, made)


def encoder(cls: type[object], version: int, flexible: bool) -> Encode:
    """Return the encode function of that class and version, made at its first use. Any thread; twice does no harm."""
    key = (cls, version, flexible)
    if (known := _encoders.get(key)) is not None:
        return known
    source = EncodeSource(cls, version, flexible)
    made = cast(
        Encode, source.compile("def encode(m, out, chunks, throttle_time_ms):", f"encode {cls.__name__} {version}")
    )
    return _encoders.setdefault(key, made)
