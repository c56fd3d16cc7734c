"""Frames out of a stream of bytes, and what their first fields say; of a few APIs the bodies, too."""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_header, decode_request, decode_response
from kafkatool.core.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    fetch,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from tests.core.protocol.apis import APIS

_LENGTH: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">4xi")
_HEAD: Final = struct.Struct(">4xhhih")  # key, version, correlation id, length of the client id
_MAX_BYTES: Final = 1 << 28  # a longer one is another protocol: the first bytes of TLS, for one

Fields = Mapping[str, Any]
_NOTHING: Final[Fields] = {}
_REQUESTS: Final[Mapping[int, Callable[[Any], Fields]]] = {
    join_group.API.key: lambda asked: {"group": asked.group_id, "member": asked.member_id},
    sync_group.API.key: lambda asked: {
        "group": asked.group_id,
        "member": asked.member_id,
        "generation": asked.generation_id,
    },
    init_producer_id.API.key: lambda asked: {
        "transactional_id": asked.transactional_id,
        "producer_id": asked.producer_id,
        "epoch": asked.producer_epoch,
    },
    end_txn.API.key: lambda asked: {
        "transactional_id": asked.transactional_id,
        "producer_id": asked.producer_id,
        "epoch": asked.producer_epoch,
        "committed": asked.committed,
    },
    **dict.fromkeys(
        (add_partitions_to_txn.API.key, add_offsets_to_txn.API.key, txn_offset_commit.API.key),
        lambda asked: {"transactional_id": asked.transactional_id},
    ),
    write_txn_markers.API.key: lambda asked: {"producers": [marker.producer_id for marker in asked.markers]},
    fetch.API.key: lambda asked: {"from": _offsets(asked, "fetch_offset")},  # these say which of two went back
}


def _offsets(message: Any, field: str) -> dict[str, int]:
    return {f"{of.topic}-{p.partition}": getattr(p, field) for of in message.topics for p in of.partitions}


def _code(told: Any) -> Fields:
    return {"code": told.error_code}


_ANSWERS: Final[Mapping[int, Callable[[Any], Fields]]] = {
    join_group.API.key: lambda told: {
        "code": told.error_code,
        "member": told.member_id,
        "generation": told.generation_id,
    },
    init_producer_id.API.key: lambda told: {
        "code": told.error_code,
        "producer_id": told.producer_id,
        "epoch": told.producer_epoch,
    },
    offset_fetch.API.key: lambda told: {"code": told.error_code, "offsets": _offsets(told, "committed_offset")},
    **{api.API.key: _code for api in (sync_group, heartbeat, leave_group, end_txn, add_offsets_to_txn)},
}


class NotFramesError(Exception):
    """The stream is not Kafka's protocol in the clear."""


class Splitter:
    """Cuts one direction of a connection into frames, lengths included, whatever segments it comes in."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """What there is of a frame that is not whole yet."""
        return bytes(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames that are whole with this. Raises NotFramesError."""
        self._rest += chunk
        frames, start = [], 0
        while len(self._rest) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest, start)
            if not 0 <= length <= _MAX_BYTES:
                raise NotFramesError(f"a length of {length}")
            end = start + _LENGTH.size + length
            if end > len(self._rest):
                break
            frames.append(bytes(self._rest[start:end]))
            start = end
        del self._rest[:start]
        return frames


class Asked(NamedTuple):
    """A request. ``api`` is its name, or its key where it has none here; ``size`` is in bytes, with the length."""

    key: int
    api: str
    version: int
    correlation: int
    client: str | None
    size: int
    body: Fields


def read_request(frame: bytes) -> Asked | None:
    """Read a request's header, and of some APIs the body; None: it has no header, as a login's tokens have none."""
    if len(frame) < _HEAD.size:
        return None
    key, version, correlation, length = _HEAD.unpack_from(frame)
    client = frame[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace") if length >= 0 else None
    api = APIS.get(key)
    body = _NOTHING
    if api is not None and key in _REQUESTS:
        body = _fields(lambda: _REQUESTS[key](_request(api, version, frame)))
    return Asked(key, api.name if api else str(key), version, correlation, client, len(frame), body)


def _request(api: Api, version: int, frame: bytes) -> Any:
    data = memoryview(frame)[_LENGTH.size :]
    return decode_request(api, version, data, decode_header(api, data)[1])


def correlation_of(answer: bytes) -> int:
    """Return the request that an answer is to; -1 where it is too short to say so."""
    return int(_CORRELATION.unpack_from(answer)[0]) if len(answer) >= _CORRELATION.size else -1


def read_answer(asked: Asked, frame: bytes) -> Fields:
    """Return an answer's code, and what else is of interest, where that costs little; else nothing."""
    if asked.key not in _ANSWERS:
        return _NOTHING
    data = memoryview(frame)[_LENGTH.size :]
    return _fields(lambda: _ANSWERS[asked.key](decode_response(APIS[asked.key], asked.version, data)[1]))


def _fields(read: Callable[[], Fields]) -> Fields:
    try:
        return read()
    except ProtocolError:  # a version not known here, or bytes that are none
        return _NOTHING
