"""Batches as entries of older formats, and back: nothing lost that the older format can hold."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.records import compression
from kafkatool.core.protocol.records.batches import CONTROL, Record, decode_records, encode_batch, read_header
from kafkatool.core.protocol.records.compression import Codec, compress, decompress
from kafkatool.core.protocol.records.down_conversion import NotConvertibleError, down_converted
from kafkatool.core.protocol.records.legacy import parse_entries, read_entries
from kafkatool.core.protocol.records.message_sets import read_set_header, up_converted

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def same(records: Any) -> Any:
    return records


def converted(batch: bytes | bytearray, magic: int, from_offset: int = 0) -> bytes:
    header = read_header(batch)
    assert header is not None
    return b"".join(down_converted(batch, header, magic, from_offset, same))


@pytest.mark.spec("ADM-93")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_gaps_of_compaction_stay_and_the_wrapper_has_the_last_records_offset(magic: int, codec: Codec) -> None:
    kept = [Record(offset, offset * 10, b"k", b"v") for offset in (12, 17, 19)]
    batch = encode_batch(kept, codec=codec, base_offset=10, last_offset=25)
    assert converted(batch, magic, 20) == b"", "a wrapper all of which lies below is nothing to go on from"
    found = list(read_entries(converted(batch, magic, 17)))
    assert [e.offset for e in found] == ([12, 17, 19] if codec else [17, 19])
    if codec:
        header = read_header(converted(batch, magic))
        assert header is not None and header.base_offset == 19
        assert header.max_timestamp == (190 if magic else -1)
        (wrapper,) = parse_entries(converted(batch, magic))
        inside = parse_entries(decompress(codec, wrapper.value or b"", magic=magic))
        assert [e.offset for e in inside] == ([0, 5, 7] if magic else [12, 17, 19]), "from the first, or as they are"


@pytest.mark.spec("ADM-93")
def test_entries_of_format_1_become_entries_of_format_0() -> None:
    records = [Record(100 + i, 7, b"k", b"v" * i) for i in range(3)]
    wrapper = converted(encode_batch(records, codec=Codec.GZIP), 1)
    assert [(e.offset, e.magic, e.value) for e in read_entries(converted(wrapper, 0))] == [
        (r.offset, 0, r.value) for r in records
    ]
    assert converted(wrapper, 1) == wrapper


@pytest.mark.spec("ADM-93")
def test_lz4_of_format_0_has_the_header_checksum_its_clients_compute() -> None:
    """xxHash32 of magic and descriptor, its second byte; of the descriptor alone from format 1 on (KAFKA-3160)."""
    assert compress(Codec.LZ4, b"abc", magic=0)[:7].hex() == "04224d1860401a"
    assert compress(Codec.LZ4, b"abc", magic=1)[:7].hex() == "04224d18604082"


@pytest.mark.spec("ADM-93")
def test_markers_and_batches_that_compaction_emptied_give_nothing() -> None:
    control = encode_batch(
        [Record(0, 1, b"\0\0\0\0", b"\0\0\0\0\0\1")], attributes=CONTROL, producer_id=1, producer_epoch=0
    )
    assert converted(control, 1) == b""
    assert converted(encode_batch([], base_offset=3, last_offset=5), 1) == b""


@pytest.mark.spec("ADM-93", "ADM-97")
def test_what_no_older_format_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConvertibleError):
        converted(encode_batch([Record(0, 1, b"k", b"v" * 99)], codec=Codec.ZSTD), 1)
    monkeypatch.setattr(compression, "_MANY_AT_A_TIME_BYTES", 100)
    monkeypatch.setattr(compression.decompress, "__kwdefaults__", {"magic": 2, "limit_bytes": 1000})
    with pytest.raises(NotConvertibleError):
        converted(encode_batch([Record(0, 1, b"k", b"v" * 2000)], codec=Codec.GZIP), 1)


@pytest.mark.spec("ADM-91", "ADM-93")
@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-1, 2**62), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)),
        min_size=1,
        max_size=8,
    ),
    codec=st.sampled_from(OLD_CODECS),
    magic=st.integers(0, 1),
)
def test_down_and_up_again_keeps_all_that_the_format_has(
    rows: list[tuple[int, bytes | None, bytes | None]], codec: Codec, magic: int
) -> None:
    records = [Record(i, time_ms, key, value, (("h", b"x"),)) for i, (time_ms, key, value) in enumerate(rows)]
    entries = converted(encode_batch(records, codec=codec), magic)
    header = read_set_header(entries)
    assert (header.magic, header.codec) == (magic, codec)
    again = up_converted(entries, header, codec, same)
    expected = [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in records]
    assert decode_records(again) == expected
    found = read_header(again)
    assert found is not None and found.max_timestamp == max(r.timestamp for r in expected)


@pytest.mark.spec("ADM-90")
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_to_a_message_set_is_refused_and_does_no_more(data: st.DataObject) -> None:
    magic, codec = data.draw(st.integers(0, 1)), data.draw(st.sampled_from(OLD_CODECS))
    good = converted(encode_batch([Record(0, 5, b"k", b"value")], codec=codec), magic)
    damaged = bytearray(good)
    at = data.draw(st.integers(8, len(good) - 1))  # the offset is the broker's to give
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordsError):
        up_converted(damaged, read_set_header(damaged), codec, same)
