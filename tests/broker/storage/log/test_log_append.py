import errno
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import crc32c
import pytest

from kafkatool.broker.storage.batches.append_checks import check_batch
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.checkpoint import LEADER_EPOCHS
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.errors import CorruptRecordsError, OffsetOrderError, StorageError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import check_crc, decode_records, iter_batches, read_header
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.logs import Later, content, everything, log_config, make_log


def _refusal(log_dir: Path, records: bytearray, **overrides: Any) -> ErrorCode:
    log = make_log(log_dir, **overrides)
    with pytest.raises(AppendError) as caught:
        log.append_as_leader(records, 0)
    assert log.log_end_offset == 0
    assert everything(log) == b""
    return caught.value.code


@pytest.mark.spec("BRK-130", "BRK-86", "BRK-59")
def test_leader_gives_the_batch_its_offset_and_epoch_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(3), 4)
    info = log.append_as_leader(batch(2), 5)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms, info.duplicate) == (3, 4, None, False)
    stored = everything(log)
    assert stored == bytes(batch(3, epoch=4) + batch(2, base_offset=3, epoch=5))
    assert log.end == (5, 0, len(stored))
    assert log.leader_epochs.entries == [(4, 0), (5, 3)]


@pytest.mark.spec("BRK-85", "BRK-143")
@pytest.mark.parametrize("codec", ["producer", "gzip"])
@pytest.mark.parametrize("told", [-1, 0, 999])
def test_a_batch_that_tells_too_early_a_time_gets_that_of_its_records(tmp_path: Path, told: int, codec: str) -> None:
    """Sarama before 1.45.1 tells none: by that what was just written would be too old, and its producer forgotten."""
    log = make_log(tmp_path, compression_type=codec)
    sent = batch(3, timestamp=1000, step_ms=50, producer=(7, 0, 0))
    struct.pack_into(">q", sent, 35, told)
    struct.pack_into(">I", sent, 17, crc32c.crc32c(bytes(sent[21:])))
    log.append_as_leader(sent, 0)
    stored = everything(log)
    header = read_header(stored)
    assert header is not None and header.max_timestamp == 1100 and check_crc(memoryview(stored))
    assert log.newest_time_ms() == 1100
    found = log.find_by_timestamp(1040, 3)
    assert found is not None and found.offset == 1
    log.expire_producers(1100)
    assert log.append_as_leader(batch(3, timestamp=1000, step_ms=50, producer=(7, 0, 0)), 0).duplicate


@pytest.mark.spec("BRK-85")
def test_a_time_that_there_is_not_is_refused_and_the_brokers_own_is_no_matter_of_the_clients(tmp_path: Path) -> None:
    late = batch(2, timestamp=2**63 - 10, step_ms=9)
    struct.pack_into(">q", late, 27, 2**63 - 1)  # the time of the first record, from which others are told
    struct.pack_into(">q", late, 35, -1)
    struct.pack_into(">I", late, 17, crc32c.crc32c(bytes(late[21:])))
    assert _refusal(tmp_path / "a", bytearray(late)) is ErrorCode.INVALID_TIMESTAMP
    log = make_log(tmp_path / "b", message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(bytearray(late), 0)
    header = read_header(everything(log))
    assert header is not None and header.max_timestamp == info.log_append_time_ms


@pytest.mark.spec("BRK-84")
@pytest.mark.parametrize(
    "records",
    [
        batch()[:-1],
        batch() + batch(),
        batch(base_offset=1),
        batch()[:65] + b"\xff" + batch()[66:],
        bytearray(b"\0" * 80),
        bytearray(),
    ],
    ids=["cut", "two", "offset", "flipped", "zeros", "empty"],
)
def test_what_is_not_one_sound_batch_is_corrupt(tmp_path: Path, records: bytearray) -> None:
    assert _refusal(tmp_path, records) is ErrorCode.CORRUPT_MESSAGE


def _saying(count: int, last_offset_delta: int) -> bytearray:
    """Make a batch of two records whose header, with a good checksum, says this of them."""
    records = batch(2)
    records[23:27] = last_offset_delta.to_bytes(4, "big", signed=True)
    records[57:61] = count.to_bytes(4, "big", signed=True)
    records[17:21] = crc32c.crc32c(bytes(records[21:])).to_bytes(4, "big")
    return records


@pytest.mark.spec("BRK-84")
@pytest.mark.parametrize(("count", "last_offset_delta"), [(0, 1), (-1, 1), (2, 2), (2, 0), (3, 1)])
def test_a_batch_whose_count_is_not_positive_or_not_that_of_its_offsets_is_corrupt(
    tmp_path: Path, count: int, last_offset_delta: int
) -> None:
    assert _refusal(tmp_path, _saying(count, last_offset_delta)) is ErrorCode.CORRUPT_MESSAGE
    make_log(tmp_path).append_as_leader(_saying(2, 1), 0)


@pytest.mark.spec("BRK-84")
def test_a_batch_without_records_is_corrupt_though_all_in_it_agrees(tmp_path: Path) -> None:
    empty = _saying(0, -1)[:61]
    empty[8:12] = (len(empty) - 12).to_bytes(4, "big")
    empty[17:21] = crc32c.crc32c(bytes(empty[21:])).to_bytes(4, "big")
    assert _refusal(tmp_path, empty) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.spec("BRK-84")
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_is_corrupt(tmp_path: Path, magic: int) -> None:
    body = bytes([magic, 0]) + bytes(8 * magic) + b"\xff" * 4 + (1).to_bytes(4, "big") + b"v"
    old = bytes(8) + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    assert _refusal(tmp_path, bytearray(old)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.spec("TXN-71")
def test_a_plain_batch_inside_its_producers_transaction_is_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(producer=(7, 0, 0), attributes=0x10), 0, origin_client=False, verification=UNVERIFIED)
    with pytest.raises(AppendError) as refused:
        log.append_as_leader(batch(producer=(7, 0, 1)), 0)
    assert (refused.value.code, log.log_end_offset) == (ErrorCode.INVALID_TXN_STATE, 1)
    log.append_as_leader(batch(producer=(8, 0, 0)), 0)
    log.append_as_follower(memoryview(marker(commit=True, producer=(7, 0), base_offset=2)))
    assert log.append_as_leader(batch(producer=(7, 0, 1)), 0).first_offset == 3


@pytest.mark.spec("TXN-61")
def test_a_marker_without_a_transaction_is_noted_and_ends_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(producer=(8, 0, 0), attributes=0x10), 0, origin_client=False, verification=UNVERIFIED)
    for _ in range(2):  # and its repeat
        log.append_as_leader(marker(commit=False, producer=(9, 3), base_offset=0), 0, origin_client=False)
    known = log.state.producers.entries[9]
    assert (log.log_end_offset, known.epoch, known.coordinator_epoch, known.transaction_start) == (3, 3, 7, None)
    assert ([one.producer_id for one in log.open_transactions()], log.last_stable_offset) == ([8], 0)
    assert [file.read_bytes() for file in tmp_path.rglob("*.txnindex")] in ([], [b""]), "nothing in the index"
    log.append_as_leader(marker(commit=False, producer=(8, 0), base_offset=0), 0, origin_client=False)
    assert any(file.read_bytes() for file in tmp_path.rglob("*.txnindex")), "as of one that ends something"


@pytest.mark.spec("BRK-84", "TXN-71")
def test_clients_write_no_control_batches(tmp_path: Path) -> None:
    for name, attributes in (("plain", 0x20), ("transactional", 0x30)):
        assert _refusal(tmp_path / name, batch(attributes=attributes, producer=(7, 0, 0))) is ErrorCode.INVALID_RECORD


@pytest.mark.spec("BRK-85")
def test_size_limits_have_their_own_codes(tmp_path: Path) -> None:
    assert _refusal(tmp_path, batch(value=bytes(200)), max_message_bytes="200") is ErrorCode.MESSAGE_TOO_LARGE
    assert _refusal(tmp_path, batch(value=bytes(200)), segment_bytes="200") is ErrorCode.RECORD_LIST_TOO_LARGE
    just_fits = str(len(batch(value=bytes(200))))
    log = make_log(tmp_path, max_message_bytes=just_fits, segment_bytes=just_fits)
    assert log.append_as_leader(batch(value=bytes(200)), 0).first_offset == 0


@pytest.mark.spec("BRK-85")
def test_timestamp_too_far_from_now_is_refused(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    limit: dict[str, Any] = {"message_timestamp_difference_max_ms": "60000"}
    assert _refusal(tmp_path, batch(timestamp=now - 120_000), **limit) is ErrorCode.INVALID_TIMESTAMP
    assert _refusal(tmp_path, batch(2, timestamp=now, step_ms=120_000), **limit) is ErrorCode.INVALID_TIMESTAMP
    make_log(tmp_path, **limit).append_as_leader(batch(timestamp=now), 0)


@pytest.mark.spec("BRK-85")
@pytest.mark.parametrize(("off_ms", "refused"), [(-501, True), (-500, False), (500, False), (501, True)])
def test_a_time_is_refused_when_it_is_off_by_more_than_the_limit(off_ms: int, refused: bool) -> None:
    config = log_config(message_timestamp_difference_max_ms="500")
    records = memoryview(batch(timestamp=10_000 + off_ms))
    if refused:
        with pytest.raises(AppendError) as caught:
            check_batch(records, config, 10_000, origin_client=True)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    else:
        check_batch(records, config, 10_000, origin_client=True)


@pytest.mark.spec("BRK-85")
def test_compacted_topic_takes_no_record_without_a_key(tmp_path: Path) -> None:
    assert _refusal(tmp_path, batch(key=None), cleanup_policy="compact") is ErrorCode.INVALID_RECORD
    make_log(tmp_path, cleanup_policy="compact,delete").append_as_leader(batch(), 0)


@pytest.mark.spec("BRK-130", "BRK-86")
def test_log_append_time_replaces_the_producers_time_and_the_checksum(tmp_path: Path) -> None:
    log = make_log(tmp_path, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    info = log.append_as_leader(batch(2, timestamp=5, step_ms=7), 0)
    stored = content(log.read(0, 1000, 2, min_one_batch=True))
    header = read_header(stored)
    assert header is not None
    assert info.log_append_time_ms == header.max_timestamp >= before
    assert header.attributes & 0x08
    assert check_crc(stored)
    assert {r.timestamp for r in decode_records(stored)} == {info.log_append_time_ms}


@pytest.mark.spec("BRK-91")
@pytest.mark.parametrize("producer_id", [0, 7])
def test_repeat_of_an_idempotent_batch_is_answered_with_its_first_offsets(tmp_path: Path, producer_id: int) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(2, producer=(producer_id, 0, 0)), 0)
    log.append_as_leader(batch(1, producer=(producer_id, 0, 2)), 0)
    again = log.append_as_leader(batch(2, producer=(producer_id, 0, 0)), 0)
    assert (again.first_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert log.log_end_offset == 3
    with pytest.raises(AppendError) as caught:
        log.append_as_leader(batch(producer=(producer_id, 0, 9)), 0)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.spec("BRK-91", "BRK-59")
def test_follower_takes_several_batches_as_they_are_and_learns_epochs_and_producers(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    sent = batch(2, epoch=3, producer=(7, 0, 40)) + batch(base_offset=5, epoch=4) + batch(base_offset=6, epoch=4)[:30]
    log.append_as_follower(memoryview(sent))
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert everything(log) == bytes(sent[:-30])
    assert log.leader_epochs.entries == [(3, 0), (4, 5)]
    assert log.append_as_leader(batch(producer=(7, 0, 42)), 4).first_offset == 6


@pytest.mark.spec("BRK-161")
@pytest.mark.parametrize("magic", [0, 1])
def test_old_format_batches_are_stored_unchanged_and_empty_the_epoch_cache(tmp_path: Path, magic: int) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(), 2)
    body = bytes([magic, 0]) + bytes(8 * magic) + b"\xff" * 4 + (1).to_bytes(4, "big") + b"v"  # no key, value "v"
    old = (1).to_bytes(8, "big") + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    log.append_as_follower(memoryview(old))
    assert log.log_end_offset == 2
    assert everything(log).endswith(old)
    assert log.leader_epochs.entries == []


@pytest.mark.spec("BRK-75")
def test_only_an_empty_log_takes_a_batch_that_begins_before_its_end_and_only_one_that_reaches_it(
    tmp_path: Path,
) -> None:
    log = make_log(tmp_path)
    log.truncate_fully_and_start_at(4)
    with pytest.raises(OffsetOrderError):
        log.append_as_follower(memoryview(batch(4, base_offset=0, epoch=1)))  # ends at 3
    assert (log.log_start_offset, log.log_end_offset, everything(log)) == (4, 4, b"")
    taken = batch(5, base_offset=0, epoch=1)  # ends at 4
    log.append_as_follower(memoryview(taken + batch(1, base_offset=5, epoch=1)))
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert [segment.base_offset for segment in log.segments] == [0], "begun anew where the batch begins"
    assert everything(log).startswith(bytes(taken))
    with pytest.raises(OffsetOrderError):
        log.append_as_follower(memoryview(batch(3, base_offset=5, epoch=1)))
    assert log.log_end_offset == 6, "it is not empty any more"


def test_follower_keeps_the_good_batches_before_a_bad_one(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    bad = batch(base_offset=1)
    bad[65] ^= 1
    with pytest.raises(CorruptRecordsError):
        log.append_as_follower(memoryview(batch() + bad))
    assert log.log_end_offset == 1
    with pytest.raises(OffsetOrderError):
        log.append_as_follower(memoryview(batch()))  # offset 0 again


def test_empty_log_whose_start_lies_inside_the_leaders_batch_takes_that_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.truncate_fully_and_start_at(12)
    log.append_as_follower(memoryview(batch(5, base_offset=10, epoch=0)))
    assert (log.log_start_offset, log.log_end_offset) == (12, 15)
    assert [s.base_offset for s in log.segments] == [10]


@pytest.mark.spec("BRK-131")
def test_segments_roll_by_size_time_index_and_offset(tmp_path: Path) -> None:
    size = len(batch())
    log = make_log(tmp_path, segment_bytes=str(2 * size), segment_ms="100")
    for timestamp in (1000, 1050, 1060, 1200):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    assert [s.base_offset for s in log.segments] == [0, 2, 3]
    log.append_as_follower(memoryview(batch(base_offset=2**31 + 3, timestamp=1210)))
    assert [s.base_offset for s in log.segments] == [0, 2, 3, 2**31 + 3]
    log.update_config(log_config(segment_index_bytes="24", index_interval_bytes="0"))
    for _ in range(4):
        log.append_as_leader(batch(timestamp=1210), 0)
    assert len(log.segments) == 6


@pytest.mark.spec("BRK-131")
@pytest.mark.parametrize(
    ("base", "count", "rolls"),
    [(2**31 - 1, 1, False), (2**31, 1, True), (2**31 - 2, 2, False), (2**31 - 1, 2, True)],
)
def test_a_segment_takes_offsets_up_to_the_largest_that_an_index_can_hold(
    tmp_path: Path, base: int, count: int, rolls: bool
) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(), 0)
    log.append_as_follower(memoryview(batch(count, base_offset=base)))
    assert [s.base_offset for s in log.segments] == ([0, base] if rolls else [0])


@pytest.mark.spec("BRK-131")
def test_followers_batches_are_spread_over_segments(tmp_path: Path) -> None:
    sent = b"".join(bytes(batch(base_offset=i)) for i in range(7))
    log = make_log(tmp_path, segment_bytes=str(len(sent) // 7 * 3))
    log.append_as_follower(memoryview(sent))
    assert [s.base_offset for s in log.segments] == [0, 3, 6]
    assert everything(log) == sent


@pytest.mark.spec("BRK-131")
def test_empty_segment_whose_base_is_too_far_below_makes_way(tmp_path: Path) -> None:
    later = Later()
    log = make_log(tmp_path, later)
    log.append_as_follower(memoryview(batch(base_offset=2**33)))
    assert [s.base_offset for s in log.segments] == [2**33]
    later.run()
    assert sorted(p.name for p in tmp_path.glob("*.log*")) == [f"{2**33:020d}.log"]


@pytest.mark.spec("BRK-137")
def test_preallocated_segment_is_trimmed_at_roll_and_close(tmp_path: Path) -> None:
    log = make_log(tmp_path, preallocate="true", segment_bytes="1000")
    log.append_as_leader(batch(), 0)
    assert (tmp_path / "00000000000000000000.log").stat().st_size == 1000
    log.close()
    assert (tmp_path / "00000000000000000000.log").stat().st_size == len(batch())


@pytest.mark.spec("BRK-146")
def test_failed_write_is_reported_and_the_log_end_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Later()
    log = make_log(tmp_path, later)
    log.append_as_leader(batch(), 0)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(), 0)
    assert log.log_end_offset == 1
    assert [e.errno for e in later.errors] == [28]


@pytest.mark.spec("BRK-132")
def test_index_entries_hold_the_last_offset_and_where_its_batch_begins(tmp_path: Path) -> None:
    log = make_log(tmp_path, index_interval_bytes="100")
    for timestamp in (1000, 5000, 3000, 4000, 9000):
        log.append_as_leader(batch(2, timestamp=timestamp), 0)
    log.close()
    size = len(batch(2))
    index = (tmp_path / "00000000000000000000.index").read_bytes()
    times = (tmp_path / "00000000000000000000.timeindex").read_bytes()
    positions = [(int.from_bytes(index[i : i + 4], "big"), int.from_bytes(index[i + 4 : i + 8], "big")) for i in (0, 8)]
    assert positions == [(5, 2 * size), (9, 4 * size)]
    assert len(index) == 16
    assert [times[i : i + 12] for i in (0, 12)] == [
        (5000).to_bytes(8, "big") + (3).to_bytes(4, "big"),
        (9000).to_bytes(8, "big") + (9).to_bytes(4, "big"),
    ]


@pytest.mark.spec("BRK-132")
@pytest.mark.parametrize(("less", "offsets"), [(0, [2, 4]), (1, [1, 2, 3, 4])])
def test_an_entry_is_due_when_more_than_the_interval_was_written(tmp_path: Path, less: int, offsets: list[int]) -> None:
    log = make_log(tmp_path, index_interval_bytes=str(len(batch()) - less))
    for _ in range(5):
        log.append_as_leader(batch(), 0)
    log.close()
    index = (tmp_path / f"{0:020d}.index").read_bytes()
    assert [int.from_bytes(index[at : at + 4], "big") for at in range(0, len(index), 8)] == offsets


def test_stored_batches_parse_back_to_what_was_sent(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value=value), 0)
    stored = everything(log)
    assert [decode_records(stored[p : p + h.size_bytes])[0].value for p, h in iter_batches(stored)] == [b"a", b"b"]


@pytest.mark.spec("BRK-59", "BRK-140")
def test_the_file_has_an_epoch_before_the_recovery_point_passes_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(3), 4)
    assert LeaderEpochCache(tmp_path / LEADER_EPOCHS).entries == []

    def no_disk(_: LeaderEpochCache) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(LeaderEpochCache, "sync", no_disk)
        with pytest.raises(StorageError):
            log.flush()
    assert log.state.recovery_point == 0
    log.flush()
    assert LeaderEpochCache(tmp_path / LEADER_EPOCHS).entries == [(4, 0)]
    assert log.state.recovery_point == 3


@pytest.mark.spec("BRK-131")
@pytest.mark.parametrize("timestamp", [-1, 1000])
def test_without_timestamps_a_segments_age_is_that_of_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    log = make_log(tmp_path, segment_ms="60000")
    log.append_as_leader(batch(timestamp=timestamp), 0)
    now = time.time()
    for later_s, segments in ((59, 1), (61, 1 if timestamp >= 0 else 2)):
        monkeypatch.setattr(time, "time", lambda later_s=later_s: now + later_s)
        log.append_as_leader(batch(timestamp=timestamp), 0)
        assert len(log.segments) == segments


@pytest.mark.spec("BRK-131")
def test_a_batch_rolls_when_it_is_more_than_segment_ms_younger_than_the_segments_first(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_ms="100")
    for timestamp, segments in ((1000, 1), (1090, 1), (1100, 1), (1101, 2), (1201, 2), (1202, 3)):
        log.append_as_leader(batch(timestamp=timestamp), 0)
        assert len(log.segments) == segments, timestamp


@pytest.mark.spec("BRK-131")
def test_a_segment_is_named_by_the_base_offset_of_its_first_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=str(2 * len(batch(3))))
    for _ in range(3):
        log.append_as_leader(batch(3), 0)
    assert sorted(p.name for p in tmp_path.glob("*.log")) == [f"{0:020d}.log", f"{6:020d}.log"]


@pytest.mark.spec("BRK-132", "BRK-135")
def test_no_entry_is_that_of_a_segments_first_append_and_a_roll_adds_the_largest_time(tmp_path: Path) -> None:
    log = make_log(tmp_path, index_interval_bytes="0", segment_bytes=str(3 * len(batch())))
    for timestamp in (1000, 3000, 2000, 500):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    index = (tmp_path / f"{0:020d}.index").read_bytes()
    size = len(batch())
    assert [index[i : i + 8] for i in range(0, len(index), 8)] == [
        n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in (1, 2)
    ]
    times = (tmp_path / f"{0:020d}.timeindex").read_bytes()
    assert times == (3000).to_bytes(8, "big") + (1).to_bytes(4, "big"), "it grew no more"
    log.close()
    assert (tmp_path / f"{3:020d}.index").read_bytes() == b""
    assert (tmp_path / f"{3:020d}.timeindex").read_bytes() == (500).to_bytes(8, "big") + bytes(4)


@pytest.mark.spec("BRK-132")
def test_entries_wait_in_memory_for_a_flush_and_of_one_append_of_a_follower_each_batch_has_one(tmp_path: Path) -> None:
    log = make_log(tmp_path, index_interval_bytes="0")
    log.append_as_follower(memoryview(b"".join(bytes(batch(base_offset=i, timestamp=1000 + i)) for i in range(3))))
    index, times = (tmp_path / f"{0:020d}{kind}" for kind in (".index", ".timeindex"))
    assert (index.read_bytes(), times.read_bytes()) == (b"", b"")
    log.flush()
    size = len(batch())
    assert index.read_bytes() == b"".join(n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in (1, 2))
    assert times.read_bytes() == b"".join((1000 + n).to_bytes(8, "big") + n.to_bytes(4, "big") for n in (1, 2))


@pytest.mark.spec("BRK-132")
def test_the_largest_time_that_no_entry_tells_is_added_at_the_roll(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=str(2 * len(batch())))
    for timestamp in (1000, 3000, 2000):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    assert (tmp_path / f"{0:020d}.timeindex").read_bytes() == (3000).to_bytes(8, "big") + (1).to_bytes(4, "big")


@pytest.mark.spec("BRK-140")
def test_the_recovery_point_moves_after_log_and_indexes_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path, index_interval_bytes="0")
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    synced: list[tuple[str, int]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().suffix, log.state.recovery_point))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    log.flush()
    assert {(suffix, 0) for suffix in (".log", ".index", ".timeindex")} <= set(synced)
    assert {point for _, point in synced} == {0}
    assert log.state.recovery_point == 3
