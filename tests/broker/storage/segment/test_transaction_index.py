from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.storage.batches.transaction_markers import (
    Marker,
    OpenTransaction,
    abort_marker,
    encode_marker,
    read_marker,
)
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment import segment
from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction, OpenTransactionIndex, read_aborted
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.compaction.compacting import clean, compacted_log, roll
from tests.broker.storage.full_disk import files_up_to
from tests.broker.storage.logs import content, make_log

_TRANSACTIONAL = 0x10
_INDEX = "00000000000000000000.txnindex"


def _aborted(log: Log, start: int, upper: int, *, max_bytes: int = 1 << 20) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.read(start, max_bytes, upper, min_one_batch=True), upper)


@pytest.mark.spec("BRK-103", "BRK-107", "BRK-153", "TXN-63")
def test_replicated_transactions_move_the_last_stable_offset_and_aborts_are_listed(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    sent = (
        batch(2, base_offset=0, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
        + batch(2, base_offset=2, producer=(2, 0, 0), attributes=_TRANSACTIONAL)
        + marker(commit=False, producer=(1, 0), base_offset=4)
    )
    log.append_as_follower(memoryview(sent))
    log.high_watermark = 5
    assert log.last_stable_offset == 2
    log.append_as_follower(memoryview(marker(commit=True, producer=(2, 0), base_offset=5)))
    assert log.last_stable_offset == 2, "its marker is not replicated yet"
    log.high_watermark = 6
    assert log.last_stable_offset == 6
    aborted = AbortedTransaction(producer_id=1, first_offset=0, last_offset=4, last_stable_offset=2)
    assert list(read_aborted(tmp_path / _INDEX)) == [aborted]
    assert _aborted(log, 1, 5) == [aborted]
    assert _aborted(log, 5, 6) == []


@pytest.mark.spec("BRK-103", "BRK-142")
def test_cutting_the_marker_off_reopens_the_transaction(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch(2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(data + marker(commit=False, producer=(1, 0), base_offset=2)))
    log.truncate_to(2)
    log.high_watermark = 2
    assert log.last_stable_offset == 0
    assert _aborted(log, 0, 2) == []


@pytest.mark.spec("BRK-103")
def test_only_what_overlaps_the_records_that_were_read_is_listed_over_all_segments(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes="200")  # two batches in each
    for first in (0, 3, 6):
        data = batch(2, base_offset=first, producer=(first, 0, 0), attributes=_TRANSACTIONAL)
        log.append_as_follower(memoryview(data))
        log.append_as_follower(memoryview(marker(commit=False, producer=(first, 0), base_offset=first + 2)))
    log.append_as_follower(memoryview(batch(2, base_offset=9)))
    log.high_watermark = 11
    assert len(log.segments) > 2
    by_start = {start: [one.first_offset for one in _aborted(log, start, 11)] for start in range(11)}
    assert by_start == {n: [n // 3 * 3] for n in range(9)} | {9: [], 10: []}
    assert log.aborted_transactions(log.read(0, 10, 11, min_one_batch=False), 11) == []


@pytest.mark.spec("BRK-103", "TXN-65")
@pytest.mark.parametrize("segment_bytes", ["100000", "300"])
def test_every_one_of_several_that_overlap_each_other_is_listed(tmp_path: Path, segment_bytes: str) -> None:
    log = make_log(tmp_path, segment_bytes=segment_bytes)
    steps = ["1", "2", "1 aborts", "3", "2 aborts", "", "3 aborts", "4", "4 commits", "1", "1 aborts"]
    steps += ["5", "6", "6 aborts", "5 aborts"]  # whose markers come in another order than their records
    for offset, step in enumerate(steps):
        producer, _, ends = step.partition(" ")
        if ends:
            sent = marker(commit=ends == "commits", producer=(int(producer), 0), base_offset=offset)
        elif producer:
            sent = batch(base_offset=offset, producer=(int(producer), 0, offset), attributes=_TRANSACTIONAL)
        else:
            sent = batch(base_offset=offset)
        log.append_as_follower(memoryview(sent))
    log.high_watermark = len(steps)
    aborted = [(1, 0, 2), (2, 1, 4), (3, 3, 6), (1, 9, 10), (5, 11, 14), (6, 12, 13)]
    for start in range(len(steps)):
        for upper in range(start + 1, len(steps) + 1):
            read = content(log.read(start, 1 << 20, upper, min_one_batch=True))
            end = max(header.next_offset for _, header in iter_batches(read))
            told = [(one.producer_id, one.first_offset, one.last_offset) for one in _aborted(log, start, upper)]
            assert told == [one for one in aborted if one[1] < end and one[2] >= start], (start, upper)
    assert len(_aborted(log, 0, len(steps))) == (6 if segment_bytes == "100000" else 3)


@pytest.mark.spec("BRK-103", "BRK-146")
def test_an_entry_for_which_the_disk_has_no_room_is_not_there_in_part(tmp_path: Path) -> None:
    """Those that follow would be read from where they do not begin."""
    entries = [AbortedTransaction(number, 10 * number, 10 * number + 9, 10 * number + 10) for number in range(3)]
    index = OpenTransactionIndex(tmp_path / _INDEX)
    index.append(entries[0])
    with files_up_to(34 + 20), pytest.raises(OSError, match="20 of 34"):
        index.append(entries[1])
    assert list(read_aborted(tmp_path / _INDEX)) == entries[:1]
    index.append(entries[2])
    index.close()
    assert list(read_aborted(tmp_path / _INDEX)) == [entries[0], entries[2]]


@pytest.mark.spec("BRK-137")
def test_recovery_rebuilds_the_index_of_aborted_transactions(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch(2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(data + marker(commit=False, producer=(1, 0), base_offset=2)))
    before = (tmp_path / _INDEX).read_bytes()
    assert len(before) == 34
    (tmp_path / _INDEX).write_bytes(before * 2)
    again = make_log(tmp_path)
    again.high_watermark = 3
    assert (tmp_path / _INDEX).read_bytes() == before
    assert again.last_stable_offset == 3


@pytest.mark.spec("BRK-103", "BRK-167")
def test_a_read_that_begins_in_a_gap_of_compaction_lists_what_was_aborted_behind_it(tmp_path: Path) -> None:
    log = _log_with_an_abort_at_2(tmp_path)
    clean(log)
    found = log.read(1, 1 << 20, 6, min_one_batch=True)
    assert found.start.segment_base == 2, "the record at 1 went with compaction, it had no key"
    assert [a.first_offset for a in log.aborted_transactions(found, 6)] == [2]


@pytest.mark.spec("BRK-103", "BRK-167")
def test_a_segment_replaced_while_its_aborts_are_looked_up_is_looked_at_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log_with_an_abort_at_2(tmp_path)
    roll(log)
    found = log.read(2, 1 << 20, 6, min_one_batch=True)
    asked: list[Path] = []

    def too_late(path: Path, start: int) -> Iterator[AbortedTransaction]:
        asked.append(path)
        if len(asked) > 1:
            return read_aborted(path, start)
        clean(log)
        return iter(())  # the file had another name already

    monkeypatch.setattr(segment, "read_aborted", too_late)
    assert [a.first_offset for a in log.aborted_transactions(found, 6)] == [2]


@pytest.mark.spec("BRK-103")
def test_readers_far_behind_look_once_at_a_segment_in_which_nothing_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of their fetches asks all segments that follow: an abort may be there whose records lie here."""
    log = make_log(tmp_path)
    for offset in range(4):
        log.append_as_follower(memoryview(batch(base_offset=offset)))
        roll(log)
    looked: list[str] = []
    exists = Path.exists

    def noted(path: Path) -> bool:
        looked.append(path.name)
        return exists(path)

    monkeypatch.setattr(Path, "exists", noted)
    found = log.read(0, 1 << 20, 4, min_one_batch=True)
    for _ in range(3):
        assert log.aborted_transactions(found, 4) == []
    assert sorted(looked) == [f"{base:020d}.txnindex" for base in range(5)]
    transaction = batch(1, base_offset=4, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(transaction + marker(commit=False, producer=(1, 0), base_offset=5)))
    found = log.read(4, 1 << 20, 6, min_one_batch=True)
    assert [a.first_offset for a in log.aborted_transactions(found, 6)] == [4]


@pytest.mark.spec("BRK-103", "TXN-65")
def test_a_read_looks_no_further_than_where_all_that_it_could_hold_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path)
    for number in range(20):
        transaction = batch(1, base_offset=2 * number, producer=(1, 0, number), attributes=_TRANSACTIONAL)
        log.append_as_follower(
            memoryview(transaction + marker(commit=False, producer=(1, 0), base_offset=2 * number + 1))
        )
    entries = list(read_aborted(tmp_path / _INDEX))
    taken: list[int] = []

    def noted(path: Path, start: int) -> Iterator[AbortedTransaction]:
        for one in read_aborted(path, start):
            taken.append(one.first_offset)
            yield one

    monkeypatch.setattr(segment, "read_aborted", noted)
    found = log.read(20, 400, 40, min_one_batch=True)
    assert isinstance(found.records, FileRegion)
    end = max(header.next_offset for _, header in iter_batches(found.records.read()))
    assert 22 < end < 30
    assert log.aborted_transactions(found, 40) == [one for one in entries if 20 <= one.first_offset < end]
    assert taken[0] == 20
    assert taken[-1] <= end


@pytest.mark.spec("BRK-153")
def test_a_commit_needs_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(segment, "OpenTransactionIndex")
    log = make_log(tmp_path)
    transaction = batch(2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(transaction + marker(commit=True, producer=(1, 0), base_offset=2)))
    log.high_watermark = 3
    assert log.last_stable_offset == 3
    assert not list(tmp_path.glob("*.txnindex"))


def _log_with_an_abort_at_2(directory: Path) -> Log:
    """Make a log: its first segment holds 0 and 1, the next the aborted records 2 to 4 and their marker."""
    log = compacted_log(directory)
    for offset, key in enumerate((b"a", None)):
        log.append_as_follower(memoryview(batch(base_offset=offset, key=key)))
    roll(log)
    aborted = batch(3, base_offset=2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(aborted + marker(commit=False, producer=(1, 0), base_offset=5)))
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.spec("BRK-153")
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read_by_its_type_and_its_coordinators_epoch(commit: bool) -> None:
    assert read_marker(bytes(marker(commit=commit, producer=(1, 0), base_offset=4))) == (commit, 7)
    unknown = batch(key=b"\0\0\0\2", value=b"\0\0\0\0\0\7", producer=(1, 0, -1), attributes=0x30)
    assert read_marker(bytes(unknown)) is None


@pytest.mark.spec("BRK-153")
def test_a_marker_is_written_as_it_is_read() -> None:
    made = abort_marker(OpenTransaction(1, 0, 7, 0), 1000)
    assert made == marker(commit=False, producer=(1, 0), base_offset=0)
    for commit in (True, False):
        ends = encode_marker(1, 0, Marker(commit, coordinator_epoch=7), 1000)
        assert ends == marker(commit=commit, producer=(1, 0), base_offset=0)
