"""Entries of formats v0 and v1, as Kafka wrote them before 0.11, in compacted logs."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

import pytest

from kafkatool.core.protocol.records.batches import check_crc, iter_batches
from kafkatool.core.protocol.records.compression import Codec, compress
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME
from tests.broker.storage.compaction.compacting import Kept, append, clean, compacted_log, consumed, roll
from tests.broker.storage.logs import everything

_PREFIX = Struct(">qiIbb")
_TIME = Struct(">q")
_LENGTH = Struct(">i")


def _entry(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int, attributes: int = 0, timestamp: int = 0
) -> bytes:
    rest = _TIME.pack(timestamp) if magic else b""
    for field in (key, value):
        rest += _LENGTH.pack(-1) if field is None else _LENGTH.pack(len(field)) + field
    crc = zlib.crc32(bytes((magic, attributes)) + rest)
    return _PREFIX.pack(offset, 6 + len(rest), crc, magic, attributes) + rest


def _wrapper(pairs: Sequence[tuple[bytes, bytes]], base: int, codec: Codec, magic: int, flags: int = 0) -> bytes:
    inner = b"".join(
        _entry(i if magic else base + i, key, value, magic=magic, timestamp=50 + i)
        for i, (key, value) in enumerate(pairs)
    )
    last = base + len(pairs) - 1
    newest = 50 + len(pairs) - 1
    return _entry(last, None, compress(codec, inner), magic=magic, attributes=codec | flags, timestamp=newest)


@pytest.mark.spec("BRK-154", "BRK-167", "ADM-98")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_entries_are_cleaned_in_their_own_format(tmp_path: Path, codec: Codec, magic: int) -> None:
    log = compacted_log(tmp_path)
    pairs = [(b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"c", b"3"), (b"b", b"4")]
    if codec is Codec.NONE:
        data = b"".join(_entry(i, k, v, magic=magic, timestamp=50 + i) for i, (k, v) in enumerate(pairs))
    else:
        data = _wrapper(pairs, 0, codec, magic)
    log.append_as_follower(memoryview(data))
    roll(log)
    log.append_as_follower(memoryview(_entry(5, b"c", b"5", magic=magic, timestamp=60)))
    log.high_watermark = 6
    assert clean(log) == 1
    times = {i: 50 + i if magic else -1 for i in range(5)} | {5: 60 if magic else -1}
    left = [(2, b"a", b"2"), (3, b"c", b"3"), (4, b"b", b"4"), (5, b"c", b"5")]
    assert consumed(log) == [Kept(o, times[o], k, v) for o, k, v in left]
    headers = list(iter_batches(everything(log)))
    assert {h.magic for _, h in headers} == {magic}
    assert headers[0][1].codec == codec
    assert all(check_crc(everything(log), position) for position, _ in headers)
    reopened = compacted_log(tmp_path)
    assert consumed(reopened) == consumed(log)
    append(reopened, [("a", "now in format 2")])
    assert [r.offset for r in consumed(reopened)] == [2, 3, 4, 5, 6]


@pytest.mark.spec("BRK-154", "BRK-167", "ADM-98")
def test_the_brokers_time_on_a_compressed_entry_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    data = _wrapper([(b"a", b"0"), (b"b", b"1"), (b"a", b"2")], 0, Codec.GZIP, 1, LOG_APPEND_TIME)
    log.append_as_follower(memoryview(data))
    roll(log)
    log.high_watermark = 3
    clean(log)
    assert consumed(log) == [Kept(1, 52, b"b", b"1"), Kept(2, 52, b"a", b"2")]
