"""All APIs in all versions: what is written is read back, and no prefix or damage does more than raise ProtocolError."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Chunk
from kafkatool.core.protocol.frames import (
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kafkatool.core.protocol.messages import describe_topic_partitions as pages
from tests.core.protocol.codec.messages import EVERY_VERSION, case_name, messages

_FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_VERY_FEW = settings(_FEW, max_examples=1)  # each tries every position of the frame
every_version = pytest.mark.parametrize(("api", "version", "cls"), EVERY_VERSION, ids=case_name)


def _join(chunks: list[Chunk]) -> bytes:
    assert all(isinstance(c, bytes | bytearray | memoryview) for c in chunks)
    return b"".join(c for c in chunks if isinstance(c, bytes | bytearray | memoryview))


def _encode(api: Api, version: int, message: object) -> bytes:
    """Return the frame without its length."""
    if isinstance(message, api.request):
        frame = encode_request(api, version, 7, "me", message)
    else:
        frame = _join(encode_response(api, version, 7, message))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def _decode(api: Api, version: int, cls: type[object], frame: bytes | bytearray | memoryview) -> object:
    if cls is api.response:
        correlation_id, message = decode_response(api, version, frame)
        assert correlation_id == 7
        return message
    header, body = decode_header(api, frame)
    assert header == (api.key, version, 7, None if (api.name, version) == ("ControlledShutdown", 0) else "me")
    return decode_request(api, version, frame, body)


@pytest.mark.spec("BRK-162", "BRK-9", "ADM-12", "TXN-103")
@every_version
@_FEW
@given(data=st.data())
def test_what_is_written_is_read_back(api: Api, version: int, cls: type[object], data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    frame = _encode(api, version, message)
    assert _decode(api, version, cls, frame) == message
    assert _decode(api, version, cls, bytearray(frame)) == message
    assert _decode(api, version, cls, memoryview(frame + b"left over")) == message


@pytest.mark.spec("BRK-10")
@every_version
@_VERY_FEW
@given(data=st.data())
def test_every_prefix_is_refused(api: Api, version: int, cls: type[object], data: st.DataObject) -> None:
    frame = _encode(api, version, data.draw(messages(cls, version)))
    for end in range(len(frame)):
        with pytest.raises(ProtocolError):
            _decode(api, version, cls, frame[:end])


@pytest.mark.spec("BRK-10")
@every_version
@_VERY_FEW
@given(data=st.data())
def test_damaged_bytes_raise_nothing_but_protocol_errors(
    api: Api, version: int, cls: type[object], data: st.DataObject
) -> None:
    """A decode that succeeds is fine: most bytes are values. A huge count must be refused before it is allocated."""
    frame = bytearray(_encode(api, version, data.draw(messages(cls, version))))
    header_bytes = 12 if cls is api.request else 4
    for position in range(header_bytes, len(frame)):
        for byte in (0x00, 0x7F, 0xFF):
            damaged = frame[:position] + bytes([byte]) + frame[position + 1 :]
            try:
                _decode(api, version, cls, damaged)
            except ProtocolError:
                pass


@pytest.mark.spec("ADM-14")
def test_a_nullable_struct_begins_with_minus_one_or_with_one() -> None:
    """Of Kafka 3.7 and later alone: the classes of 2.8.2 have none to hold it against."""

    def encoded(cursor: pages.Cursor | None) -> bytes:
        request = pages.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=0, cursor=cursor)
        return encode_request(pages.API, 0, 1, "c", request)

    without, with_one = encoded(None), encoded(pages.Cursor(topic_name="t", partition_index=7))
    assert without.endswith(b"\x01" + bytes(4) + b"\xff" + b"\0")  # no topics, the limit, no cursor, no tags
    assert with_one[4:] == without[4:-2] + b"\x01" + b"\x02t" + (7).to_bytes(4) + b"\0" + b"\0"
