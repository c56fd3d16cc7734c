"""Frames and headers around messages, encoded and decoded: the door of this room."""

from struct import Struct, error
from typing import Any, NamedTuple

from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.compiler import decoder, encoder
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.primitives import malformed, skip_tagged_fields
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Buffer, Chunk

_LENGTH = Struct(">i")
_HEADER_0 = Struct(">hhi")
_CLIENT_ID = Struct(">h")
_API_VERSIONS = 18
_UNSUPPORTED_VERSION = b"\0\x23"  # error 35, with which an answer begins
_CONTROLLED_SHUTDOWN = 7


class RequestHeader(NamedTuple):
    """The header of a request. ``client_id`` is None where the peer gave none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, message: object) -> bytes:
    """Return a complete frame, length first. ProtocolError if a field cannot be written in that version."""
    out = bytearray(4)
    out += _HEADER_0.pack(api.key, version, correlation_id)
    if (api.key, version) != (_CONTROLLED_SHUTDOWN, 0):
        name = b"" if client_id is None else client_id.encode()
        out += _CLIENT_ID.pack(-1 if client_id is None else len(name)) + name
    if api.is_flexible(version):
        out.append(0)
    chunks = _encode(api, api.request, version, message, out, 0)
    if len(chunks) == 1:
        return bytes(out)
    return b"".join(c.read() if isinstance(c, FileRegion) else c for c in chunks)


def encode_response(
    api: Api, version: int, correlation_id: int, message: object, *, throttle_time_ms: int = 0
) -> list[Chunk]:
    """Return a complete frame, length first, in parts to be sent in order. ProtocolError as in ``encode_request``.

    A ``throttle_time_ms`` above 0 is told instead of the message's own, where that version has room for it.
    """
    out = bytearray(4)
    out += _LENGTH.pack(correlation_id)
    if api.is_flexible(version) and api.key != _API_VERSIONS:
        out.append(0)
    return _encode(api, api.response, version, message, out, throttle_time_ms)


def decode_header(api: Api, frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a request frame (without its length), and the offset of its body.

    The version is not held against those known. ProtocolError for malformed bytes.
    """
    try:
        key, version, correlation_id = _HEADER_0.unpack_from(frame)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(key, version, correlation_id, None), _HEADER_0.size
        (length,) = _CLIENT_ID.unpack_from(frame, _HEADER_0.size)
        position = _HEADER_0.size + _CLIENT_ID.size
        client_id = None
        if length != -1:
            end = position + length
            if length < 0 or end > len(frame):
                raise malformed("client_id", length)
            client_id = str(frame[position:end], "utf-8", "replace")
            position = end
        if api.is_flexible(version):
            position = skip_tagged_fields(frame, position)
    except (error, IndexError) as short:
        raise ProtocolError(f"request header of {len(frame)} bytes is cut off") from short
    return RequestHeader(key, version, correlation_id, client_id), position


def decode_request(api: Api, version: int, frame: Buffer, body_offset: int) -> Any:
    """Return the request in a frame. ProtocolError for a version not known and for malformed bytes (BRK-10)."""
    if not api.knows(version):
        raise ProtocolError(f"{api.name} has no version {version} here")
    return _decode(api, api.request, version, frame, body_offset)


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Any]:
    """Return correlation id and message of a response frame without its length. ProtocolError for malformed bytes.

    A broker refuses a version of ApiVersions that it does not know in version 0, which every client reads (KIP-511).
    """
    try:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        position = _LENGTH.size
        if api.is_flexible(version) and api.key != _API_VERSIONS:
            position = skip_tagged_fields(frame, position)
    except (error, IndexError) as short:
        raise ProtocolError(f"{api.name} response header of {len(frame)} bytes is cut off") from short
    try:
        return correlation_id, _decode(api, api.response, version, frame, position)
    except ProtocolError:
        if api.key != _API_VERSIONS or frame[position : position + len(_UNSUPPORTED_VERSION)] != _UNSUPPORTED_VERSION:
            raise
        return correlation_id, _decode(api, api.response, 0, frame, position)


def _decode(api: Api, cls: type[object], version: int, frame: Buffer, position: int) -> Any:
    try:
        return decoder(cls, version, api.is_flexible(version))(frame, position)
    except ProtocolError as wrong:
        raise type(wrong)(f"{cls.__name__} version {version}: {wrong}") from wrong
    except (error, IndexError) as short:
        raise ProtocolError(f"{cls.__name__} version {version} is cut off after {len(frame)} bytes") from short


def _encode(
    api: Api, cls: type[object], version: int, message: object, out: bytearray, throttle_time_ms: int
) -> list[Chunk]:
    if not api.knows(version):
        raise ProtocolError(f"{api.name} has no version {version} here")
    chunks: list[Chunk] = []
    try:
        chunks.append(encoder(cls, version, api.is_flexible(version))(message, out, chunks, throttle_time_ms))
    except (error, AttributeError, TypeError, UnicodeEncodeError) as wrong:  # null, out of range, wrong type
        raise ProtocolError(f"{cls.__name__} version {version} cannot be written: {wrong}") from wrong
    if len(chunks) == 1:
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
        return chunks
    size_bytes = sum(c.size_bytes if isinstance(c, FileRegion) else len(c) for c in chunks)
    _LENGTH.pack_into(out, 0, size_bytes - _LENGTH.size)
    return [c for c in chunks if c]
