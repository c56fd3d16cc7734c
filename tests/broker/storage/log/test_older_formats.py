"""Logs of formats 0 and 1: all that a log does, with entries instead of record batches (ADM-98)."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.batches.produced_sets import as_stored
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_writer import AppendInfo
from kafkatool.core.protocol.records.batches import Record, check_crc, decode_records, encode_batch, iter_batches
from kafkatool.core.protocol.records.compression import Codec
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import content, everything, log_config, make_log

VERSIONS = {0: "0.9.0", 1: "0.10.2"}
KNOWN = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
both = pytest.mark.parametrize("magic", [0, 1])
each_codec = pytest.mark.parametrize("codec", KNOWN)


def options(magic: int, **more: str) -> dict[str, Any]:
    return {"message_format_version": VERSIONS[magic], **more}


def append(log: Log, count: int = 5, *, codec: int = 0, first_ms: int = 1000) -> AppendInfo:
    """Append records ``v<offset>``, a millisecond apart."""
    end = log.log_end_offset
    records = [Record(i, first_ms + i, b"k%d" % i, b"v%d" % (end + i)) for i in range(count)]
    entries = as_stored(encode_batch(records, codec=codec), log.config, message_set=False, origin_client=True)
    assert isinstance(entries, OlderEntries)
    return log.append_entries(entries)


def read(log: Log, offset: int, upper: int | None = None) -> list[Record]:
    """Return the records of one read."""
    data = content(log.read(offset, 1 << 20, log.log_end_offset if upper is None else upper, min_one_batch=True))
    return [record for at, _ in iter_batches(data) for record in decode_records(data[at:])]


def check_whole(log: Log, start: int, end: int) -> None:
    """Check that each offset is found, with its record, and that all bytes are whole entries."""
    for offset in range(start, end):
        assert any(r.offset == offset and r.value == b"v%d" % offset for r in read(log, offset)), offset
    data = everything(log)
    assert all(check_crc(data, at) for at, _ in iter_batches(data))
    assert sum(h.size_bytes for _, h in iter_batches(data)) == len(data)


@pytest.mark.spec("ADM-98")
@both
@each_codec
def test_what_is_appended_is_read_from_each_offset(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = make_log(tmp_path, **options(magic, segment_bytes="700", index_interval_bytes="0"))
    for number in range(12):
        info = append(log, codec=codec, first_ms=1000 + number * 10)
        assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (5 * number, 5 * number + 4, None)
    assert len(log.segments) > 2
    # each segment begins with its first record: also where the wrapper that is first in it tells its last
    assert all(read(log, s.base_offset)[0].offset == s.base_offset for s in log.segments)
    assert all(s.base_offset % 5 == 0 for s in log.segments) or not codec
    check_whole(log, 0, 60)
    log.close()
    check_whole(make_log(tmp_path, clean=True, **options(magic)), 0, 60)


@pytest.mark.spec("ADM-98", "BRK-161")
@both
def test_it_has_no_epochs(tmp_path: Path, magic: int) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(3), 4)
    assert log.leader_epochs.entries == [(4, 0)]
    log.update_config(log_config(**options(magic)))
    append(log)
    assert log.leader_epochs.entries == []
    log.update_config(log_config())
    log.append_as_leader(batch(3), 5)
    assert log.leader_epochs.entries == [(5, 8)]
    assert [h.magic for _, h in iter_batches(everything(log))] == [2, *[magic] * 5, 2]


@pytest.mark.spec("ADM-89")
def test_another_format_is_for_what_is_appended_from_then_on(tmp_path: Path) -> None:
    log = make_log(tmp_path, **options(0))
    append(log, 2)
    for magic in (1, 0):
        log.update_config(log_config(**options(magic)))
        append(log, 2, codec=Codec.GZIP)
    assert [h.magic for _, h in iter_batches(everything(log))] == [0, 0, 1, 0]
    assert [(r.offset, r.timestamp) for r in read(log, 0)] == [(0, -1), (1, -1), (2, 1000), (3, 1001), (4, -1), (5, -1)]


@pytest.mark.spec("ADM-98", "BRK-107", "ADM-91")
@each_codec
def test_format_1_is_searched_by_time(tmp_path: Path, codec: Codec) -> None:
    log = make_log(tmp_path, **options(1, segment_bytes="700", index_interval_bytes="0"))
    for number in range(12):
        append(log, codec=codec, first_ms=1000 + number * 10)
    assert log.newest_time_ms() == 1114
    for number in range(12):
        for i in range(5):
            found = log.find_by_timestamp(1000 + number * 10 + i, 60)
            assert found is not None and (found.offset, found.leader_epoch) == (number * 5 + i, None)
    assert log.find_by_timestamp(1115, 60) is None
    log.close()
    again = make_log(tmp_path, clean=True, **options(1))
    found = again.find_by_timestamp(1055, 60)
    assert found is not None and (found.offset, found.timestamp_ms) == (30, 1060)


@pytest.mark.spec("ADM-98")
@each_codec
def test_format_0_has_no_times_but_its_files(tmp_path: Path, codec: Codec) -> None:
    log = make_log(tmp_path, **options(0, segment_bytes="700", index_interval_bytes="0", retention_ms="3600000"))
    for _ in range(12):
        append(log, codec=codec)
    assert log.newest_time_ms() is None and log.find_by_timestamp(0, 60) is None
    assert all(segment.time_index.count == 0 for segment in log.segments)
    first, second, *_ = list(log.segments)
    log.high_watermark = 60
    assert log.apply_retention() == 0
    long_ago = time.time() - 7200
    os.utime(first.file.fileno(), (long_ago, long_ago))
    assert log.apply_retention() == 1
    assert log.log_start_offset == second.base_offset
    check_whole(log, second.base_offset, 60)


@pytest.mark.spec("ADM-98", "BRK-137")
@both
@each_codec
def test_recovery_keeps_what_is_whole(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = make_log(tmp_path, **options(magic, index_interval_bytes="0"))
    for _ in range(4):
        append(log, codec=codec)
    data = everything(log)
    starts = [at for at, _ in iter_batches(data)]
    torn = data[: starts[-1] + 20]
    (tmp_path / f"{0:020d}.log").write_bytes(torn)
    again = make_log(tmp_path, **options(magic))
    end = 15 if codec else 19
    assert (again.log_end_offset, everything(again)) == (end, data[: starts[-1]])
    check_whole(again, 0, end)
    assert append(again, codec=codec).first_offset == end
    check_whole(again, 0, end + 5)


@pytest.mark.spec("ADM-98", "BRK-142")
@both
@each_codec
@pytest.mark.parametrize("cut", range(21))
def test_it_is_cut_before_the_entry_that_holds_the_offset(tmp_path: Path, magic: int, codec: Codec, cut: int) -> None:
    """A wrapper goes whole, and the log ends where its first record was: what it held besides is fetched again."""
    log = make_log(tmp_path, **options(magic, segment_bytes="700", index_interval_bytes="0"))
    for _ in range(4):
        append(log, codec=codec)
    log.high_watermark = 20
    log.truncate_to(cut)
    end = cut - cut % 5 if codec else cut
    assert (log.log_end_offset, log.high_watermark) == (end, end)
    check_whole(log, 0, end)
    assert append(log, codec=codec).first_offset == end
    log.close()
    check_whole(make_log(tmp_path, clean=True, **options(magic)), 0, end + 5)


@pytest.mark.spec("ADM-98", "BRK-161")
@both
@each_codec
def test_a_follower_has_the_leaders_bytes_and_segments_that_begin_with_their_first_record(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    leader = make_log(tmp_path / "leader", **options(magic, segment_bytes="100000"))
    for _ in range(12):
        append(leader, codec=codec)
    follower = make_log(tmp_path / "follower", **options(magic, segment_bytes="700", index_interval_bytes="0"))
    follower.append_as_follower(memoryview(everything(leader)))
    assert everything(follower) == everything(leader)
    assert follower.log_end_offset == 60 and len(follower.segments) > 2
    assert all(read(follower, s.base_offset)[0].offset == s.base_offset for s in follower.segments)
    check_whole(follower, 0, 60)


@pytest.mark.spec("ADM-98", "BRK-142")
@both
def test_a_log_that_starts_inside_a_wrapper_is_cut_back_to_its_start(tmp_path: Path, magic: int) -> None:
    """A follower whose leader's records were deleted up to there: the wrapper comes whole, and is in the way of a cut."""
    leader = make_log(tmp_path / "leader", **options(magic))
    for _ in range(2):
        append(leader, codec=Codec.GZIP)
    follower = make_log(tmp_path / "follower", log_start_offset=3, **options(magic))
    follower.append_as_follower(memoryview(everything(leader)))
    check_whole(follower, 3, 10)
    follower.truncate_to(4)
    assert (follower.log_start_offset, follower.log_end_offset) == (3, 3)
    follower.append_as_follower(memoryview(everything(leader)))
    check_whole(follower, 3, 10)


@pytest.mark.spec("ADM-98", "BRK-131")
@both
def test_a_segment_is_rolled_by_the_time_of_its_records_or_of_its_making(tmp_path: Path, magic: int) -> None:
    log = make_log(tmp_path, **options(magic, segment_ms="1000"))
    append(log, 1, first_ms=1000)
    append(log, 1, first_ms=1500)
    assert len(log.segments) == 1
    append(log, 1, first_ms=2500)
    assert len(log.segments) == (2 if magic else 1)
    log.segments.active.created_ms -= 3_600_000
    append(log, 1, first_ms=2501)
    assert len(log.segments) == 2
