"""Batches that are well formed but for what they claim, and small ones that stand for very many records."""

import tracemalloc
from pathlib import Path
from struct import Struct
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.batches.append_checks import check_batch
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.record_walk import check_walk
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch
from kafkatool.core.protocol.records.compression import Codec, compress
from kafkatool.core.protocol.records.varints import read_varint
from tests.broker.storage.compaction.compacting import clean
from tests.broker.storage.logs import Later, log_config, make_log

_HEADER = Struct(">qiibIhiqqqhii")
_CRC = Struct(">I")


def _claiming(payload: bytes, count: int, attributes: int = 0) -> bytearray:
    """Make a batch of this payload, with the right checksum, that says it holds so many records."""
    size = _HEADER.size - 12 + len(payload)
    out = bytearray(_HEADER.pack(0, size, -1, 2, 0, attributes, count - 1, 1000, 1000, -1, -1, -1, count) + payload)
    _CRC.pack_into(out, 17, crc32c.crc32c(bytes(out[21:])))
    return out


def _bomb(count: int, *, timestamp: int = 1000) -> bytearray:
    """Make a batch of equal records, which nearly nothing is left of when it is compressed."""
    return encode_batch([Record(0, timestamp, b"k", b"v")] * count, codec=4, base_offset=0, last_offset=count - 1)


_SOUND = bytes(encode_batch([Record(i, 1000, None, b"value") for i in range(40)])[_HEADER.size :])


def _packed(records: bytes, count: int) -> bytearray:
    """Make a batch of these records, compressed, that says it holds so many."""
    return _claiming(compress(Codec.ZSTD, records), count, attributes=Codec.ZSTD)


@pytest.mark.spec("BRK-84")
@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (_claiming(b"garbage", 2**31 - 1), ErrorCode.MESSAGE_TOO_LARGE),
        (_claiming(b"garbage", 1), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(b"garbage", 2), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(b"", 1), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(b"\x80" * 20, 1), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND, 39), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND, 100), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND, 5), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND[:-1], 40), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND + b"garbage", 40), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND + b"garbage", 41), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(_SOUND[:500] + b"\xff" * 10 + _SOUND[510:], 40), ErrorCode.CORRUPT_MESSAGE),
        (_packed(_SOUND, 40), None),
        (_packed(_SOUND, 39), ErrorCode.CORRUPT_MESSAGE),
        (_packed(_SOUND, 41), ErrorCode.CORRUPT_MESSAGE),
        (_packed(_SOUND[:-1], 40), ErrorCode.CORRUPT_MESSAGE),
        (_packed(b"\0" * (105 << 20), 1), ErrorCode.MESSAGE_TOO_LARGE),
        (_claiming(_SOUND, 40), None),
        (_claiming(b"garbage", 1, attributes=5), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(b"garbage", 1, attributes=7), ErrorCode.CORRUPT_MESSAGE),
        (_bomb(100_000), ErrorCode.CORRUPT_MESSAGE),
        (_claiming(b"garbage", 1000, attributes=1), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_a_batch_claims_must_be_possible(batch: bytearray, code: ErrorCode | None) -> None:
    config = log_config()
    if code is None:
        check_batch(memoryview(batch), config, 1000, origin_client=True)
        return
    with pytest.raises(AppendError) as refused:
        check_batch(memoryview(batch), config, 1000, origin_client=True)
    assert refused.value.code == code


@pytest.mark.spec("BRK-84", "BRK-151")
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=80
    ),
    st.integers(0, 4),
)
def test_every_batch_of_records_passes(records: list[tuple[bytes | None, bytes | None]], codec: int) -> None:
    sent = encode_batch([Record(i, 1000 + i, key, value) for i, (key, value) in enumerate(records)], codec=codec)
    check_batch(memoryview(sent), log_config(), 1000, origin_client=True)


@pytest.mark.spec("BRK-84")
@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(0, 20_000), min_size=1, max_size=300), st.data())
def test_a_walk_finds_whichever_length_is_wrong(lengths: list[int], data: st.DataObject) -> None:
    """Records of a few lengths, which are walked in runs, and of any."""
    records = [bytes(encode_batch([Record(0, 0, None, bytes(n))])[_HEADER.size :]) for n in lengths]
    check_walk(b"".join(records), len(records))
    wrong = data.draw(st.integers(0, len(records) - 1))
    other = data.draw(st.integers(0, 20_000).filter(lambda n: n != lengths[wrong]))
    replaced = bytes(encode_batch([Record(0, 0, None, bytes(other))])[_HEADER.size :])
    head = replaced[: len(replaced) - _record_bytes(replaced)]
    body = records[wrong][len(records[wrong]) - _record_bytes(records[wrong]) :]
    with pytest.raises(CorruptRecordsError):
        check_walk(b"".join((*records[:wrong], head, body, *records[wrong + 1 :])), len(records))


def _record_bytes(record: bytes) -> int:
    return read_varint(record, 0)[0]


@pytest.mark.spec("BRK-84", "BRK-151")
@pytest.mark.parametrize("codec", range(5))
def test_the_smallest_records_pass_however_well_they_pack(codec: int) -> None:
    sent = encode_batch([Record(i, 1000, None, None) for i in range(100_000)], codec=codec)
    check_batch(memoryview(sent), log_config(), 1000, origin_client=True)


def _filled_with_bombs(directory: Path, later: Later, count: int, **options: Any) -> Log:
    log = make_log(directory, later, **options)
    for _ in range(3):  # as a follower gets them from a leader that took them
        records = _bomb(count)
        _HEADER.pack_into(records, 0, log.log_end_offset, *_HEADER.unpack_from(records)[1:])
        log.append_as_follower(memoryview(records))
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.spec("BRK-107")
def test_a_search_by_time_lists_no_records(tmp_path: Path) -> None:
    log = _filled_with_bombs(tmp_path, Later(), 100_000)
    assert log.size_bytes < 5000, "it stands for 300,000 records"
    tracemalloc.start()
    try:
        found = log.find_by_timestamp(1000, log.log_end_offset)
        assert found is not None and found.offset == 0
        assert log.find_by_timestamp(1001, log.log_end_offset) is None
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.spec("BRK-167")
@pytest.mark.slow
def test_compaction_lists_no_records(tmp_path: Path) -> None:
    options: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": "2000"}
    log = _filled_with_bombs(tmp_path, Later(), 30_000, **options)
    log.roll(log.log_end_offset)
    tracemalloc.start()
    try:
        clean(log)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    left = [h for s in list(log.segments)[:-1] for _, h in s.headers()]
    assert sum(h.record_count for h in left) <= 30_000


@pytest.mark.spec("BRK-107", "BRK-154")
def test_records_come_one_by_one() -> None:
    assert len(decode_records(_bomb(100_000))) == 100_000
