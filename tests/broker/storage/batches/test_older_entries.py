"""What producers of all ages send, laid out as the entries of a log of format 0 or 1 (ADM-91, ADM-92)."""

from collections.abc import Sequence
from struct import Struct

import pytest

from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.batches.produced_sets import as_stored
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
)
from kafkatool.core.protocol.records.compression import Codec, compress
from tests.broker.storage.batch_builders import batch, entry
from tests.broker.storage.logs import log_config

VERSIONS = {0: "0.9.0", 1: "0.10.2"}
KNOWN = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
NOW_MS = 1_600_000_000_000
LAST = 12
BASE = 10
RECORDS = [
    Record(0, 1005, b"key", b"value"),
    Record(1, 1009, None, b""),
    Record(2, 1001, b"", None, (("header", b"lost"),)),
]


def message_set(
    magic: int, codec: int, *, inner_offsets: Sequence[int] = (0, 1, 2), timestamp: int = 1009
) -> bytearray:
    """Make what a producer of that age sends of RECORDS."""
    plain = b"".join(
        entry(offset, r.value, magic=magic, key=r.key, timestamp=r.timestamp)
        for offset, r in zip(inner_offsets, RECORDS, strict=True)
    )
    if not codec:
        return bytearray(plain)
    packed = compress(codec, plain, magic=magic)
    return bytearray(entry(0, packed, magic=magic, key=None, attributes=codec, timestamp=timestamp))


def sent(source: int, codec: int) -> bytearray:
    return encode_batch(RECORDS, codec=codec) if source == 2 else message_set(source, codec)


def laid_out(records: bytearray, source: int, **overrides: str) -> OlderEntries:
    stored = as_stored(records, log_config(**overrides), message_set=source < 2, origin_client=True)
    assert isinstance(stored, OlderEntries)
    return stored


def stored(records: bytearray, source: int, **overrides: str) -> bytes:
    return b"".join(bytes(data) for data, _ in laid_out(records, source, **overrides).placed(BASE))


def code_of(records: bytearray, source: int, **overrides: str) -> ErrorCode:
    with pytest.raises(AppendError) as refused:
        laid_out(records, source, **overrides)
    return refused.value.code


@pytest.mark.spec("ADM-89", "ADM-91", "ADM-92")
@pytest.mark.parametrize("topic_codec", ["producer", "uncompressed", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("codec", KNOWN)
@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_each_age_become_entries_of_the_log(magic: int, source: int, codec: Codec, topic_codec: str) -> None:
    overrides = {"message_format_version": VERSIONS[magic], "compression_type": topic_codec}
    entries = laid_out(sent(source, codec), source, **overrides)
    (found,) = entries.placed(BASE)
    data, batches = bytes(found[0]), found[1]
    wanted = codec if topic_codec == "producer" else Codec[topic_codec.upper().replace("UNCOMPRESSED", "NONE")]
    headers = [header for _, header in iter_batches(data)]
    assert entries.count == 3 and entries.append_time_ms is None
    assert [h.base_offset for h in headers] == ([LAST] if wanted else [BASE, BASE + 1, LAST])
    assert {(h.magic, h.codec) for h in headers} == {(magic, wanted)}
    assert [(b.position, b.header, b.base_offset, b.max_timestamp) for b in batches] == [
        (at, h, h.base_offset, h.max_timestamp) for at, h in iter_batches(data)
    ]
    assert all(check_crc(data, at) for at, _ in iter_batches(data))
    timed = magic and source
    assert max(h.max_timestamp for h in headers) == (1009 if timed else -1)
    records = [record for at, _ in iter_batches(data) for record in decode_records(data[at:])]
    times = [r.timestamp if timed else -1 for r in RECORDS]
    assert records == [
        Record(BASE + i, time, r.key, r.value) for i, (r, time) in enumerate(zip(RECORDS, times, strict=True))
    ]


@pytest.mark.spec("ADM-91")
def test_a_set_as_the_log_wants_it_keeps_its_bytes_but_for_the_offsets() -> None:
    offset = Struct(">q")
    for magic, version in VERSIONS.items():
        plain = message_set(magic, Codec.NONE)
        expected, position = bytearray(plain), 0
        for number, (at, header) in enumerate(iter_batches(bytes(plain))):
            offset.pack_into(expected, at, BASE + number)
            position = at + header.size_bytes
        assert position == len(expected)
        assert stored(plain, magic, message_format_version=version) == expected
    wrapper = message_set(1, Codec.GZIP)
    expected = bytearray(wrapper)
    offset.pack_into(expected, 0, LAST)
    assert stored(wrapper, 1, message_format_version="0.10.2") == expected


@pytest.mark.spec("ADM-91")
@pytest.mark.parametrize("offsets", [(0, 0, 0), (5, 6, 7), (0, 2, 4)], ids=str)
def test_wrong_offsets_inside_a_wrapper_are_put_right(offsets: tuple[int, int, int]) -> None:
    data = stored(message_set(1, Codec.GZIP, inner_offsets=offsets), 1, message_format_version="0.10.2")
    assert [(r.offset, r.timestamp) for r in decode_records(data)] == [(BASE, 1005), (BASE + 1, 1009), (LAST, 1001)]


@pytest.mark.spec("ADM-91")
def test_the_time_of_a_wrapper_is_that_of_its_newest_record() -> None:
    data = stored(message_set(1, Codec.GZIP, timestamp=7), 1, message_format_version="0.10.2")
    ((_, header),) = iter_batches(data)
    assert header.max_timestamp == 1009 and check_crc(data)


@pytest.mark.spec("ADM-91")
@pytest.mark.parametrize("codec", KNOWN)
@pytest.mark.parametrize("source", [0, 1, 2])
def test_the_brokers_time_is_put_on_each_entry(source: int, codec: Codec) -> None:
    config = {"message_format_version": "0.10.2", "message_timestamp_type": "LogAppendTime"}
    entries = laid_out(sent(source, codec), source, **config)
    now_ms = entries.append_time_ms
    assert now_ms is not None and now_ms > NOW_MS
    ((data, _),) = entries.placed(BASE)
    headers = list(iter_batches(bytes(data)))
    assert all(h.has_log_append_time and h.max_timestamp == now_ms and check_crc(data, at) for at, h in headers)
    assert {r.timestamp for at, _ in headers for r in decode_records(bytes(data)[at:])} == {now_ms}


@pytest.mark.spec("ADM-91")
def test_format_0_has_no_place_for_the_brokers_time() -> None:
    config = {"message_format_version": "0.9.0", "message_timestamp_type": "LogAppendTime"}
    entries = laid_out(sent(2, Codec.NONE), 2, **config)
    assert entries.append_time_ms is not None
    ((data, _),) = entries.placed(BASE)
    assert all(not h.attributes and h.max_timestamp == -1 for _, h in iter_batches(bytes(data)))


@pytest.mark.spec("ADM-92")
@pytest.mark.parametrize("magic", [0, 1])
def test_what_only_record_batches_can_tell_is_refused(magic: int) -> None:
    config = {"message_format_version": VERSIONS[magic]}
    unsupported = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert code_of(batch(2, producer=(5, 0, 0)), 2, **config) == unsupported
    assert code_of(batch(2, producer=(5, 0, 0), attributes=0x10), 2, **config) == unsupported
    marker = encode_marker(5, 0, Marker(True, 0), 1000)
    with pytest.raises(AppendError) as refused:
        as_stored(marker, log_config(**config), message_set=False, origin_client=False)
    assert refused.value.code == unsupported
    assert code_of(encode_batch(RECORDS, codec=Codec.ZSTD), 2, **config) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    for source in (0, 1, 2):
        zstd = code_of(sent(source, Codec.NONE), source, compression_type="zstd", **config)
        assert zstd == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.spec("ADM-91", "BRK-85")
@pytest.mark.parametrize("source", [0, 1, 2])
def test_the_topics_rules_for_records_hold_in_older_formats_too(source: int) -> None:
    config = {"message_format_version": "0.10.2"}
    assert code_of(sent(source, Codec.GZIP), source, cleanup_policy="compact", **config) == ErrorCode.INVALID_RECORD
    if source:
        late = {"message_timestamp_difference_max_ms": "1000", **config}
        assert code_of(sent(source, Codec.GZIP), source, **late) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.spec("ADM-91")
@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_no_entry_is_larger_than_the_topic_allows(source: int, codec: Codec) -> None:
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(sent(source, codec), source, message_format_version="0.10.2", max_message_bytes="30") == too_large
    if source == 1 and not codec:  # each by itself is small enough, all together are not
        ((data, _),) = laid_out(sent(1, codec), 1, message_format_version="0.10.2", max_message_bytes="60").placed(0)
        assert len(data) > 60


@pytest.mark.spec("ADM-91")
def test_a_wrapper_of_format_0_that_became_too_large_is_refused_before_anything_is_written() -> None:
    entries = laid_out(sent(1, Codec.GZIP), 1, message_format_version="0.9.0", max_message_bytes="40")
    with pytest.raises(AppendError) as refused:
        next(entries.placed(0))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.spec("ADM-97")
def test_many_entries_are_appended_so_many_at_a_time() -> None:
    many = encode_batch([Record(i, 1000, None, b"") for i in range(10_000)])
    pieces = list(laid_out(many, 2, message_format_version="0.10.2").placed(BASE))
    assert [len(batches) for _, batches in pieces] == [4096, 4096, 10_000 - 2 * 4096]
    assert all(batches[0].position == 0 for _, batches in pieces)
    assert [b.base_offset for _, batches in pieces for b in batches] == list(range(BASE, BASE + 10_000))
    assert b"".join(bytes(data) for data, _ in pieces) == stored(many, 2, message_format_version="0.10.2")
