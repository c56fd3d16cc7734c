"""Record batches: what is written is read back, damage is found, formats v0 and v1 are read."""

import gzip
import itertools
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.errors import CorruptRecordsError, RecordsTooLargeError
from kafkatool.core.protocol.records import compression
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
    set_base_offset_and_epoch,
)
from kafkatool.core.protocol.records.compression import Codec, compress, decompress, unpacked
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME

_some_bytes = st.none() | st.binary(max_size=40)
_headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), _some_bytes), max_size=2)


@st.composite
def _records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 6))):
        timestamp = draw(st.integers(-1, 2**50))
        headers = tuple(draw(_headers))
        records.append(Record(offset, timestamp, draw(_some_bytes), draw(_some_bytes), headers))
        offset += draw(st.integers(1, 1000))
    return records


@pytest.mark.spec("BRK-151", "BRK-152")
@settings(deadline=None, max_examples=60)
@given(records=_records(), codec=st.sampled_from(Codec))
def test_what_is_written_is_read_back(records: list[Record], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, leader_epoch=3, producer_id=4, producer_epoch=5, base_sequence=6)
    assert decode_records(batch) == records
    assert check_crc(batch)
    header = read_header(batch)
    assert header is not None
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert (header.codec, header.record_count, header.size_bytes) == (codec, len(records), len(batch))
    assert header[2:4] + header[9:12] == (3, 2, 4, 5, 6)


@pytest.mark.spec("BRK-151", "BRK-152")
def test_a_batch_worked_out_by_hand() -> None:
    """One record, key ``k``, value null, header ``h`` = ``v``, 2 ms after the base time; checksum taken bit by bit."""
    record = Record(10, 1002, b"k", None, (("h", b"v"),))
    batch = encode_batch([record], base_timestamp=1000, leader_epoch=7)
    body = bytes.fromhex("16000400026b010202680276")
    covered = struct.pack(">hiqqqhii", 0, 0, 1000, 1002, -1, -1, -1, 1) + body
    assert bytes(batch) == struct.pack(">qiibI", 10, 49 + len(body), 7, 2, _crc32c(covered)) + covered


@pytest.mark.spec("BRK-152")
def test_a_record_of_nulls_and_large_numbers_worked_out_by_hand() -> None:
    """Null key, value and header value; 3 ms before the base time; offset 300 and a header of 64 bytes take two bytes."""
    name = "\u00e4" * 32
    record = Record(310, 997, None, None, ((name, None),))
    batch = encode_batch([Record(10, 1000, None, b""), record], base_timestamp=1000)
    first = bytes.fromhex("0c 00 00 00 01 00 00")
    body = bytes.fromhex("00 05 d804 01 01 02 8001") + name.encode() + b"\x01"
    assert bytes(batch[61:]) == first + b"\x94\x01" + body
    assert decode_records(batch)[1] == record


def _of_snappy(data: bytes) -> bytes:
    """Unpack a block of snappy, by its description."""
    size_bytes, at = 0, 0
    for shift in itertools.count(0, 7):
        size_bytes |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag, at = data[at], at + 1
        if tag & 3 == 0:  # bytes as they are
            length, extra = tag >> 2, max(0, (tag >> 2) - 59)
            if extra:
                length = int.from_bytes(data[at : at + extra], "little")
            at += extra
            out += data[at : at + length + 1]
            at += length + 1
            continue
        if tag & 3 == 1:
            length, back, at = 4 + (tag >> 2 & 7), tag >> 5 << 8 | data[at], at + 1
        else:
            width = 2 * (tag & 3) - 2
            length, back, at = 1 + (tag >> 2), int.from_bytes(data[at : at + width], "little"), at + width
        for _ in range(length):
            out.append(out[-back])
    assert len(out) == size_bytes
    return bytes(out)


@pytest.mark.spec("BRK-151")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_only_the_records_part_is_compressed_by_the_codec_of_that_number(codec: Codec) -> None:
    records = [Record(i, 5, b"key", b"value" * 40) for i in range(20)]
    plain, packed = encode_batch(records), encode_batch(records, codec=codec)
    others: dict[Codec, Any] = {
        Codec.GZIP: gzip.decompress,
        Codec.LZ4: lz4.frame.decompress,
        Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
        Codec.SNAPPY: lambda data: _of_snappy(data[20:]),  # one block behind Java's header
    }
    assert bytes(others[codec](bytes(packed[HEADER_BYTES:]))) == bytes(plain[HEADER_BYTES:])
    assert packed[22] == {Codec.GZIP: 1, Codec.SNAPPY: 2, Codec.LZ4: 3, Codec.ZSTD: 4}[codec]
    assert (plain[22], packed[23:HEADER_BYTES], packed[:8]) == (0, plain[23:HEADER_BYTES], plain[:8])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.spec("BRK-151")
def test_offset_and_epoch_are_patched_without_touching_the_checksum() -> None:
    two = encode_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")])
    data = bytearray(two + two)
    set_base_offset_and_epoch(data, len(two), 500, 9)
    (_, first), (position, second) = iter_batches(data)
    assert (first.base_offset, first.partition_leader_epoch) == (0, -1)
    assert (second.base_offset, second.last_offset, second.next_offset) == (500, 501, 502)
    assert (position, second.partition_leader_epoch) == (len(two), 9)
    assert check_crc(data, position)
    assert [r.offset for r in decode_records(data[position:])] == [500, 501]


@pytest.mark.spec("BRK-151")
def test_attributes_and_the_time_of_the_append() -> None:
    batch = encode_batch(
        [Record(0, 5, None, b"a")], attributes=LOG_APPEND_TIME | TRANSACTIONAL | CONTROL, max_timestamp=99
    )
    header = read_header(batch)
    assert header is not None
    assert header.is_control and header.is_transactional and header.has_log_append_time
    assert bytes(batch[21:23]) == b"\0\x38"
    for bit, told in ((0x08, "has_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control")):
        one = read_header(encode_batch([Record(0, 5, None, b"a")], attributes=bit))
        assert one is not None
        names = ("has_log_append_time", "is_transactional", "is_control")
        assert [name for name in names if getattr(one, name)] == [told]
    assert decode_records(batch)[0].timestamp == 99


def test_a_batch_may_keep_its_offsets_when_compaction_left_no_record() -> None:
    batch = encode_batch([], base_offset=10, last_offset=19, producer_id=1, producer_epoch=0, base_sequence=5)
    header = read_header(batch)
    assert header is not None
    assert (header.base_offset, header.next_offset, header.record_count) == (10, 20, 0)
    assert decode_records(batch) == []
    with pytest.raises(ValueError, match="first and last offset"):
        encode_batch([])


@pytest.mark.spec("BRK-151")
def test_any_flipped_bit_under_the_checksum_is_found() -> None:
    batch = encode_batch([Record(0, 5, b"k", b"value")])
    for position, bit in itertools.product(range(17, len(batch)), range(8)):
        damaged = bytearray(batch)
        damaged[position] ^= 1 << bit
        assert not check_crc(damaged), (position, bit)


@pytest.mark.spec("BRK-96")
def test_a_cut_batch_at_the_end_is_left_out() -> None:
    batch = encode_batch([Record(0, 5, b"k", b"value")])
    for end in range(len(batch)):
        assert [p for p, _ in iter_batches(batch + batch[:end])] == [0]
        assert not check_crc(batch[:end])
        with pytest.raises(CorruptRecordsError):
            decode_records(batch[:end])


@pytest.mark.spec("BRK-151")
@settings(deadline=None, max_examples=60)
@given(records=_records(), codec=st.sampled_from(Codec), data=st.data())
def test_damaged_records_raise_nothing_but_corrupt_records_errors(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = encode_batch(records, codec=codec)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    try:
        decode_records(batch)
    except CorruptRecordsError:
        pass


@pytest.mark.spec("BRK-151")
@pytest.mark.parametrize("damage", ["magic", "length"])
def test_what_cannot_be_a_header(damage: str) -> None:
    batch = encode_batch([Record(0, 5, b"k", b"value")])
    if damage == "magic":
        batch[16] = 3
    else:
        batch[8:12] = struct.pack(">i", 48)
    with pytest.raises(CorruptRecordsError):
        list(iter_batches(batch))


# --- codecs ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-151")
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size_bytes", [0, 1, 32 * 1024, 200_000])
def test_codecs_over_their_block_sizes(codec: Codec, size_bytes: int) -> None:
    data = (b"some text, again and again " * 10_000)[:size_bytes]
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    for end in range(0, len(packed), 1 + len(packed) // 50):
        try:
            decompress(codec, packed[:end])
        except CorruptRecordsError:
            pass


@pytest.mark.spec("BRK-151")
def test_other_writers_forms_are_read() -> None:
    data = b"written by others " * 100
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data))) == data
    assert decompress(Codec.GZIP, gzip.compress(data)) == data


@pytest.mark.spec("BRK-151")
def test_lz4_blocks_are_independent_as_java_demands() -> None:
    packed = compress(Codec.LZ4, b"x" * 100)
    assert packed[:7] == bytes.fromhex("04224d18604082")
    assert packed[4] & 0x20


@pytest.mark.spec("BRK-151")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, 5, 7])
def test_what_is_not_compressed_is_refused(codec: int) -> None:
    with pytest.raises(CorruptRecordsError):
        decompress(codec, b"\xff\xfe not compressed at all")


@pytest.mark.spec("BRK-151", "SEC-102")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_decompresses_to_more_than_the_limit_is_refused(codec: Codec) -> None:
    limit_bytes = 1_000_000
    plain = bytes(range(250)) * 4000
    for data in (plain, plain[:70_000]):
        assert decompress(codec, compress(codec, data), limit_bytes=limit_bytes) == data
    for data in (plain + b"x", bytes(50_000_000)):
        with pytest.raises(RecordsTooLargeError, match=f"{codec.name} records decompress to more than 1000000 bytes"):
            decompress(codec, compress(codec, data), limit_bytes=limit_bytes)
    with pytest.raises(RecordsTooLargeError, match="more than 1000000"):
        decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(plain + b"x")), limit_bytes=limit_bytes)


@pytest.mark.spec("BRK-151", "SEC-102")
def test_a_few_kilobytes_cannot_fill_the_memory() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(compression.MAX_DECOMPRESSED_BYTES + 1)))
    assert len(bomb) < 10_000
    with pytest.raises(RecordsTooLargeError, match="more than 104857600 bytes"):
        decompress(Codec.ZSTD, bomb)


@pytest.mark.slow
def test_of_large_ones_there_is_one_at_a_time_of_small_ones_as_many_as_threads() -> None:
    small, large = (compress(Codec.ZSTD, bytes(size)) for size in (4 << 20, (4 << 20) + 1))
    inside, most = [0], [0]
    lock, together = threading.Lock(), threading.Barrier(3)

    def use_small() -> None:
        with unpacked(Codec.ZSTD, small):
            together.wait(60)  # all three have theirs

    def use_large() -> None:
        for _ in range(20):
            with unpacked(Codec.ZSTD, large) as data:
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                assert decompress(Codec.ZSTD, large) == data  # others can run meanwhile
                with lock:
                    inside[0] -= 1

    with ThreadPoolExecutor(3) as pool:
        for use in (use_small, use_large):
            for done in [pool.submit(use) for _ in range(3)]:
                done.result()
    assert most == [1]


# --- v0 and v1 -------------------------------------------------------------------------------------------------


def _entry(
    offset: int, value: bytes | None, *, magic: int, attributes: int = 0, timestamp: int = 0, key: bytes | None = b"k"
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.spec("BRK-154")
@pytest.mark.parametrize("magic", [0, 1])
def test_plain_entries(magic: int) -> None:
    data = _entry(5, b"a", magic=magic, timestamp=77) + _entry(9, None, magic=magic, timestamp=78)
    found = list(iter_batches(data + b"\0" * 5))
    assert [(h.magic, h.base_offset, h.next_offset, h.max_timestamp) for _, h in found] == [
        (magic, 5, 6, 77 if magic else -1),
        (magic, 9, 10, 78 if magic else -1),
    ]
    (first, _), (second, _) = found
    assert check_crc(data, first) and check_crc(data, second)
    covered = {*range(12, second)} - {16}  # the checksum and what it covers; the magic decides on the layout
    for position, bit in itertools.product(covered, range(8)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << bit
        assert not check_crc(damaged, first), (position, bit)
    assert decode_records(data) == [Record(5, 77 if magic else -1, b"k", b"a")]
    assert decode_records(data[second:]) == [Record(9, 78 if magic else -1, b"k", None)]
    keyless = _entry(10, b"", magic=magic, timestamp=79, key=None)
    assert decode_records(keyless) == [Record(10, 79 if magic else -1, None, b"")]


@pytest.mark.spec("BRK-154")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_entries(codec: Codec, magic: int) -> None:
    base = 100 if magic == 0 else 0
    inner = b"".join(_entry(base + i, b"%d" % i, magic=magic, timestamp=50 + i) for i in range(3))
    packed = compress(codec, inner)
    if codec is Codec.LZ4 and magic == 0:
        packed = packed[:6] + b"\x00" + packed[7:]  # the checksum writers of v0 got wrong
    data = _entry(102, packed, magic=magic, attributes=codec, timestamp=52)
    assert [(r.offset, r.timestamp, r.value) for r in decode_records(data)] == [
        (100 + i, 50 + i if magic else -1, b"%d" % i) for i in range(3)
    ]
    stamped = _entry(102, packed, magic=magic, attributes=codec | LOG_APPEND_TIME, timestamp=99)
    assert {r.timestamp for r in decode_records(stamped)} == {99 if magic else -1}


@pytest.mark.spec("BRK-154")
@pytest.mark.parametrize(
    "inner",
    [None, gzip.compress(b"", mtime=0), gzip.compress(b"\0" * 30, mtime=0)],
    ids=["no-value", "empty", "zeros"],
)
def test_a_wrapper_without_readable_entries(inner: bytes | None) -> None:
    with pytest.raises(CorruptRecordsError):
        decode_records(_entry(102, inner, magic=1, attributes=1))


@pytest.mark.spec("BRK-154")
def test_every_damaged_byte_of_an_entry_is_read_or_refused() -> None:
    data = _entry(5, gzip.compress(_entry(0, b"a", magic=1)), magic=1, attributes=1)
    for position in range(len(data)):
        for byte in (0, 0x7F, 0xFF):
            damaged = data[:position] + bytes([byte]) + data[position + 1 :]
            try:
                decode_records(damaged)
            except CorruptRecordsError:
                pass
