import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from kafkatool.broker.storage.compaction import compaction_round, log_cleaner
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment import segment, segment_swap
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segment_file import SegmentFile
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.compaction.compacting import append, clean, cleaner_of, compacted_log, consumed, latest, roll
from tests.broker.storage.crashing import Killed, Steps, kill_while_compacting
from tests.broker.storage.logs import Later, broker_config, content, make_log


def _written(directory: Path) -> dict[bytes | None, bytes]:
    """Write a log of several segments in two groups, not closed; return the last value of each key."""
    log = compacted_log(directory, segment_bytes="400")
    for number in range(18):
        append(log, [(f"k{number % 5}", f"value {number}"), (f"d{number % 3}", None if number > 14 else "x")])
    assert len(log.segments) > 4
    expected = latest(consumed(log))
    log.flush()
    return expected


def _recovered(directory: Path, recovery_point: int = 0) -> Log:
    return compacted_log(directory, segment_bytes="400", recovery_point=recovery_point)


@pytest.mark.slow
@pytest.mark.spec("BRK-136", "BRK-137", "BRK-167")
def test_a_crash_at_any_step_of_a_round_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _written(tmp_path / "before")
    steps = Steps(monkeypatch)
    number, killed = 0, True
    while killed:
        directory = tmp_path / f"killed-{number}"
        shutil.copytree(tmp_path / "before", directory)
        log = _recovered(directory)
        records = {r.offset: r for r in consumed(log)}
        steps.taken, steps.last = 0, number
        try:
            clean(log)
            killed = False
        except Killed:
            pass
        steps.last = None
        shutil.copytree(directory, tmp_path / "trusted")
        trusted = _recovered(tmp_path / "trusted", log.log_end_offset)  # nothing is scanned, indexes are believed
        assert latest(consumed(trusted)) == expected, number
        shutil.rmtree(tmp_path / "trusted")
        after = _recovered(directory)
        found = consumed(after)
        assert latest(found) == expected, number
        assert all(records[r.offset] == r for r in found), number
        assert after.log_end_offset == log.log_end_offset, number
        assert not [p.name for p in directory.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")], number
        clean(after)
        assert latest(consumed(after)) == expected, number
        shutil.rmtree(directory)
        number += 1
    assert number > 30


@pytest.mark.spec("BRK-136")
def test_an_unfinished_split_of_kafkas_is_undone(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes="100000")
    for value in range(4):
        append(log, [("a", str(value))])
    size = len((tmp_path / "00000000000000000000.log").read_bytes())
    log.close()
    whole = (tmp_path / "00000000000000000000.log").read_bytes()
    (tmp_path / "00000000000000000000.log.cleaned").write_bytes(whole[: size // 2])
    (tmp_path / "00000000000000000002.log.swap").write_bytes(whole[size // 2 :])
    opened = compacted_log(tmp_path)
    assert [r.offset for r in consumed(opened)] == [0, 1, 2, 3]
    assert len(opened.segments) == 1


@pytest.mark.spec("BRK-136", "BRK-103")
def test_the_index_of_aborted_transactions_outlives_a_crash_in_the_last_renaming(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms="0")
    append(log, [("a", "1")])
    log.close()
    index = tmp_path / "00000000000000000000.txnindex"
    index.with_name(index.name + ".swap").write_bytes(bytes(34))
    make_log(tmp_path, clean=True)  # the segment lies below the recovery point: it is not scanned
    assert index.read_bytes() == bytes(34)


@pytest.mark.spec("BRK-167", "BRK-146")
def test_a_full_disk_leaves_the_log_as_it_was_and_its_dir_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later = Later()
    log = compacted_log(tmp_path, later)
    for value in "123":
        append(log, [("a", value)])
    roll(log)
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.log")}

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Segment, "write", no_space)
        cleaner = cleaner_of(log)
        assert cleaner.clean_dirtiest()
        assert not cleaner.clean_dirtiest()  # not again at once
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.log*")} == before
    assert not later.errors
    assert "cannot be compacted now" in caplog.text
    append(log, [("a", "4")])
    assert clean(log) == 1
    assert [r.offset for r in consumed(log)] == [2, 3]


@pytest.mark.spec("BRK-167", "BRK-146")
def test_a_broken_disk_takes_the_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Later()
    log = compacted_log(tmp_path, later)
    append(log, [("a", "1"), ("a", "2")])
    roll(log)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "write", broken)
    cleaner_of(log).clean_dirtiest()
    assert [e.errno for e in later.errors] == [errno.EIO]


@pytest.mark.spec("BRK-167", "BRK-142")
def test_a_batch_cut_off_while_it_is_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted_log(tmp_path)
    for value in "123":
        append(log, [("a", value)])
    roll(log)
    append(log, [("b", "1")])

    def half_read(_: object) -> bool:
        log.truncate_to(2)
        return False

    cleaner = cleaner_of(log)
    with monkeypatch.context() as cutting:
        cutting.setattr(compaction_round, "check_crc", half_read)
        assert cleaner.clean_dirtiest()
    roll(log)
    assert cleaner.clean_dirtiest()
    assert [r.offset for r in consumed(log)] == [1]


@pytest.mark.spec("BRK-167")
def test_a_file_that_is_gone_is_not_asked_for_without_a_pause(tmp_path: Path) -> None:
    later = Later()
    log = compacted_log(tmp_path, later)
    append(log, [("a", "1"), ("a", "2")])
    roll(log)
    log.segments.first.release()
    (tmp_path / "00000000000000000000.log").unlink()
    cleaner = cleaner_of(log)
    assert cleaner.clean_dirtiest()
    assert not cleaner.clean_dirtiest()
    assert not later.errors


@pytest.mark.spec("BRK-167", "BRK-146")
def test_a_log_whose_times_cannot_be_read_goes_offline_and_the_others_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Later()
    logs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        logs.append(compacted_log(tmp_path / name, later, min_compaction_lag_ms="1"))
        append(logs[-1], [("a", "1"), ("a", "2")])
        roll(logs[-1])
    bad = logs[0].segments.first

    def times(segment: Segment) -> float:
        if segment is bad:
            raise OSError(errno.EIO, "Input/output error")
        return 0

    monkeypatch.setattr(log_cleaner, "newest_ms", times)
    assert log_cleaner.LogCleaner(broker_config(), lambda: logs).clean_dirtiest()
    assert [e.errno for e in later.errors] == [errno.EIO]
    assert [r.offset for r in consumed(logs[1])] == [1]


@pytest.mark.spec("BRK-167", "BRK-142", "BRK-143")
@pytest.mark.parametrize("how", ["cut", "start over", "retention", "close"])
def test_what_happens_to_the_log_during_a_round_wins(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted_log(tmp_path, cleanup_policy="compact,delete")
    for value in range(12):
        append(log, [("a", str(value)), ("b", str(value))])
    roll(log)
    finish = segment_swap.SegmentCopy.finish

    def meanwhile(copy: segment_swap.SegmentCopy, modified_ms: float) -> object:
        if how == "cut":
            log.truncate_to(7)
        elif how == "start over":
            log.truncate_fully_and_start_at(100)
        elif how == "retention":
            log.advance_log_start(list(log.segments)[1].base_offset)
            log.apply_retention()
        else:
            log.close()
        return finish(copy, modified_ms)

    monkeypatch.setattr(segment_swap.SegmentCopy, "finish", meanwhile)
    cleaner_of(log).clean_dirtiest()
    monkeypatch.undo()
    assert not list(tmp_path.glob("*.cleaned"))
    if how == "cut":
        assert [r.offset for r in consumed(log)] == list(range(log.log_end_offset))
        assert 5 < log.log_end_offset <= 7
    elif how == "start over":
        assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    elif how == "retention":
        assert [r.offset for r in consumed(log)] == list(range(log.log_start_offset, 24))
    else:
        assert [r.offset for r in consumed(compacted_log(tmp_path))] == list(range(24))


@pytest.mark.spec("BRK-167", "BRK-144")
def test_a_reader_that_opens_a_file_as_it_is_replaced_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = compacted_log(tmp_path, segment_bytes="10000")
    for value in range(20):
        append(log, [("a", str(value))])
    roll(log)
    log.segments.first.release()
    opened: list[Path] = []

    def too_late(path: Path, *, create: bool = False) -> SegmentFile:
        opened.append(path)
        if len(opened) == 1:
            clean(log)
        return SegmentFile(path, create=create)

    monkeypatch.setattr(segment, "SegmentFile", too_late)
    found = log.read(19, 10_000, 20, min_one_batch=True)
    assert [h.base_offset for _, h in iter_batches(content(found))] == [19]


@pytest.mark.spec("BRK-167", "BRK-144")
def test_readers_never_notice_a_round(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, Later(), file_delete_delay_ms="0")
    newest: dict[bytes, int] = {}
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            offset = 0
            while offset < log.log_end_offset:
                data = content(log.read(offset, 500, log.log_end_offset, min_one_batch=True))
                for position, header in iter_batches(data):
                    for record in decode_records(data[position:]):
                        if record.value != b"%d" % record.offset:
                            wrong.append(record)
                    offset = header.next_offset
                if not data:
                    break

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(25):
            base = log.log_end_offset
            records = [Record(i, 1000, b"k%d" % ((base + i) % 7), b"%d" % (base + i)) for i in range(5)]
            log.append_as_leader(encode_batch(records), 0)
            log.high_watermark = log.log_end_offset
            newest |= {b"k%d" % ((base + i) % 7): base + i for i in range(5)}
            roll(log)
            clean(log)
            log.release_idle()
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert {r.key: r.offset for r in consumed(log)} == newest


@pytest.mark.slow
@pytest.mark.spec("BRK-136", "BRK-137", "BRK-167")
def test_kill_nine_in_the_middle_of_rounds_loses_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for _ in range(int(os.environ.get("KAFKATOOL_KILLS", "4"))):
        seen = kill_while_compacting(directory)
        log = compacted_log(directory, segment_bytes="1000")
        end = log.log_end_offset
        assert end >= seen > 0
        assert latest(consumed(log)) == {b"k%d" % (n % 11): b"%d" % n for n in range(max(0, end - 11), end)}


@pytest.mark.spec("BRK-137", "BRK-167")
def test_a_torn_tail_behind_cleaned_segments_is_cut_and_the_rest_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in range(9):
        append(log, [("a", str(value)), (f"k{value}", "1")])
    clean(log)
    expected = consumed(log)
    with (tmp_path / f"{log.segments.active.base_offset:020d}.log").open("ab") as file:
        file.write(bytes(batch(base_offset=log.log_end_offset))[:-3])
    assert consumed(compacted_log(tmp_path)) == expected
