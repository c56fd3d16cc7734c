"""The five codecs of record batches, written so that every Kafka client can read them (BRK-151).

gzip and zstd are as the libraries make them. snappy is written in the blocks of the snappy-java library, which
librdkafka and the others understand too; raw snappy is read as well. lz4 is the frame format with independent blocks,
the only kind Java's reader takes. Source: Kafka 2.3.1 common/record/CompressionType.java,
KafkaLZ4BlockOutputStream.java.

Decompressing is bounded: a few kilobytes can stand for gigabytes, and a writer could end its readers.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from struct import Struct
from typing import Any

import cramjam

from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.codec.types import Buffer


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


MAX_DECOMPRESSED_BYTES = 104_857_600
"""Records of one batch, decompressed: what socket.request.max.bytes allows uncompressed ones (default)."""

_MANY_AT_A_TIME_BYTES = 4 * 1024 * 1024
_one_large = threading.RLock()
_LARGEST_RATIO = {Codec.GZIP: 1032, Codec.LZ4: 255}  # by their formats; zstd's has none to speak of
_FIRST_GUESS_BYTES = 64 * 1024
_USUAL_RATIO = 8
_GROWTH = 8
_BUFFER_FULL = "failed to write whole buffer"

_SNAPPY_JAVA_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = _SNAPPY_JAVA_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, compatible with
_SNAPPY_BLOCK_BYTES = 32 * 1024
_SNAPPY_BLOCK = Struct(">i")

_LZ4_START = b"\x04\x22\x4d\x18\x60\x40"  # magic; version 1, independent blocks; blocks up to 64 KiB
_LZ4_HEADER = _LZ4_START + b"\x82"  # and the checksum of the two bytes before
_LZ4_HEADER_OF_FORMAT_0 = _LZ4_START + b"\x1a"  # its clients want the checksum over the magic as well (KAFKA-3160)
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_BLOCK = Struct("<I")
_LZ4_STORED = 1 << 31  # the block is not compressed
_LZ4_END = _LZ4_BLOCK.pack(0)


def compress(codec: int, data: Buffer, *, magic: int = 2) -> bytes:
    """Compress ``data`` for that record format. ValueError for a codec that does not exist."""
    match Codec(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data), _LZ4_HEADER_OF_FORMAT_0 if magic == 0 else _LZ4_HEADER)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))


@contextmanager
def unpacked(codec: int, data: Buffer, *, magic: int = 2) -> Iterator[bytes]:
    """Give ``data`` decompressed while the block runs; raises as ``decompress``.

    Of what comes to more than 4 MB there is one at a time in the process: each may take a hundred, from a request of some
    kilobytes, and all handlers may be asked for that at once.
    """
    try:
        small = decompress(codec, data, magic=magic, limit_bytes=_MANY_AT_A_TIME_BYTES)
    except RecordsTooLargeError:
        pass
    else:
        yield small
        return
    with _one_large:
        yield decompress(codec, data, magic=magic)


def decompress(codec: int, data: Buffer, *, magic: int = 2, limit_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress ``data``. CorruptRecordsError if that fails, RecordsTooLargeError if it gives more than the limit.

    ``magic`` 0: writers of that format put a wrong header checksum into lz4 frames (KAFKA-3160); it is not checked.
    """
    try:
        match Codec(codec):
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return _bounded(Codec.GZIP, data, cramjam.gzip, limit_bytes)
            case Codec.SNAPPY:
                return _decompress_snappy(memoryview(data), limit_bytes)
            case Codec.LZ4:
                if magic == 0 and bytes(data[: len(_LZ4_START)]) == _LZ4_START:
                    data = _LZ4_HEADER + bytes(data[len(_LZ4_HEADER) :])
                return _bounded(Codec.LZ4, data, cramjam.lz4, limit_bytes)
            case Codec.ZSTD:
                return _bounded(Codec.ZSTD, data, cramjam.zstd, limit_bytes)
    except ValueError as unknown:
        raise CorruptRecordsError(f"there is no compression codec {codec}") from unknown
    except cramjam.DecompressionError as broken:
        raise CorruptRecordsError(f"records cannot be decompressed with {Codec(codec).name}: {broken}") from broken


def _bounded(codec: Codec, data: Buffer, library: Any, limit_bytes: int) -> bytes:
    if len(data) * _LARGEST_RATIO.get(codec, MAX_DECOMPRESSED_BYTES) <= limit_bytes:
        return bytes(library.decompress(data))
    size = max(_FIRST_GUESS_BYTES, len(data) * _USUAL_RATIO)
    while True:
        size = min(size, limit_bytes)
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: library.decompress_into(data, buffer)])
        except cramjam.DecompressionError as e:
            if str(e) != _BUFFER_FULL:
                raise
        if size == limit_bytes:
            raise _too_large(codec, len(data), limit_bytes)
        size *= _GROWTH


def _too_large(codec: Codec, size_bytes: int, limit_bytes: int) -> RecordsTooLargeError:
    return RecordsTooLargeError(
        f"{size_bytes} bytes of {codec.name} records decompress to more than {limit_bytes} bytes"
    )


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_SNAPPY_JAVA_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        parts += (_SNAPPY_BLOCK.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if data[: len(_SNAPPY_JAVA_MAGIC)] != _SNAPPY_JAVA_MAGIC:
        if cramjam.snappy.decompress_raw_len(data) > limit_bytes:
            raise _too_large(Codec.SNAPPY, len(data), limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(data))
    parts = []
    left_bytes = limit_bytes
    position = len(_SNAPPY_JAVA_HEADER)
    while position < len(data):
        start = position + _SNAPPY_BLOCK.size
        if start > len(data):
            raise CorruptRecordsError("snappy block is cut off")
        (size_bytes,) = _SNAPPY_BLOCK.unpack_from(data, position)
        position = start + size_bytes
        if size_bytes < 0 or position > len(data):
            raise CorruptRecordsError(f"snappy block of {size_bytes} bytes runs past the end")
        left_bytes -= cramjam.snappy.decompress_raw_len(data[start:position])
        if left_bytes < 0:
            raise _too_large(Codec.SNAPPY, len(data), limit_bytes)
        parts.append(bytes(cramjam.snappy.decompress_raw(data[start:position])))
    return b"".join(parts)


def _compress_lz4(data: memoryview, header: bytes) -> bytes:
    parts = [header]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LZ4_BLOCK.pack(len(block)), block)
        else:
            parts += (_LZ4_BLOCK.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)
