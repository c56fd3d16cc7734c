import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.batches.batch_filter import empty_batch
from kafkatool.broker.storage.batches.transaction_markers import read_marker
from kafkatool.broker.storage.compaction import compaction_round
from kafkatool.broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkatool.broker.storage.compaction.offset_map import ENTRY_BYTES
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, decode_records, iter_batches, read_header
from kafkatool.core.protocol.records.compression import Codec
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.compaction.compacting import (
    COMPACTED,
    append,
    clean,
    cleaner_of,
    compacted_log,
    consumed,
    latest,
    roll,
)
from tests.broker.storage.logs import Later, everything, make_log

_keys = st.sampled_from(["a", "b", "c", "d", "a key that is longer than the thirty-two bytes kept as they are"])
_values = st.one_of(st.none(), st.text("xyz", max_size=20))
_batches = st.tuples(
    st.just("append"), st.lists(st.tuples(_keys, _values), min_size=1, max_size=6), st.sampled_from(list(Codec))
)
_steps = st.lists(
    st.one_of(_batches, _batches, st.just(("roll",)), st.just(("clean",)), st.just(("open",))), max_size=25
)


@pytest.mark.spec("BRK-167")
@settings(deadline=None, max_examples=60)
@given(_steps)
def test_whatever_was_written_and_cleaned_each_key_has_its_last_value_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = compacted_log(directory)
    written: dict[int, object] = {}
    for step in [*steps, ("clean",), ("open",)]:
        match step:
            case ("append", pairs, codec):
                before = log.log_end_offset
                append(log, pairs, codec=codec)  # type: ignore[arg-type]
                added = consumed(log)[-len(pairs) :]  # type: ignore[arg-type]
                assert [r.offset for r in added] == list(range(before, log.log_end_offset))
                written |= {r.offset: r for r in added}
            case ("roll",):
                roll(log)
            case ("clean",):
                clean(log, log_cleaner_dedupe_buffer_size="1000")
            case _:
                log.close()
                reopened = compacted_log(directory)
                assert reopened.log_end_offset == log.log_end_offset
                reopened.state.cleaned_to = log.state.cleaned_to
                log = reopened
        found = consumed(log)
        assert all(written[r.offset] == r for r in found)
        assert latest(found) == latest(list(written.values()))  # type: ignore[arg-type]
        dirty = log.state.cleaned_to or 0
        assert [r for r in found if r.offset >= dirty] == [r for o, r in sorted(written.items()) if o >= dirty]


def _keys_left(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in consumed(log)]


@pytest.mark.spec("BRK-167")
def test_only_the_newest_of_each_key_stays_and_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, [("a", "1"), ("b", "1")])
    append(log, [("a", "2")])
    roll(log)
    append(log, [("a", "3"), ("b", "2"), ("a", "4")])
    before = everything(log)[-50:]
    assert clean(log) == 1
    assert _keys_left(log) == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (3, b"a", b"3"),
        (4, b"b", b"2"),
        (5, b"a", b"4"),
    ]
    assert everything(log)[-50:] == before
    assert log.state.cleaned_to == 3


@pytest.mark.spec("BRK-167")
def test_a_batch_keeps_its_offsets_producer_and_sequence_and_what_stays_of_it_its_bytes(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    log.append_as_leader(batch(3, key=b"a", producer=(7, 1, 0), step_ms=5), 4)
    log.append_as_leader(batch(2, key=b"a", producer=(7, 1, 3)), 4)
    log.append_as_leader(batch(1, key=b"b", producer=(8, 0, 0)), 4)
    log.append_as_leader(batch(1, key=b"b", producer=(8, 0, 1)), 4)
    roll(log)
    log.high_watermark = log.log_end_offset
    headers = {h.base_offset: h for _, h in iter_batches(everything(log))}
    clean(log)
    left = {h.base_offset: h for _, h in iter_batches(everything(log))}
    assert list(left) == [3, 6]
    for base, header in left.items():
        was = headers[base]
        assert (header.last_offset, header.producer_id, header.producer_epoch, header.base_sequence) == (
            was.last_offset,
            was.producer_id,
            was.producer_epoch,
            was.base_sequence,
        )
        assert header.partition_leader_epoch == 4
    assert left[3].record_count == 1
    assert log.log_end_offset == 7


@pytest.mark.spec("BRK-167", "BRK-91", "TXN-68")
def test_an_empty_batch_stays_where_it_holds_a_producers_last_sequence(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    log.append_as_leader(batch(2, key=b"a", producer=(7, 1, 0)), 0)
    log.append_as_leader(batch(1, key=b"a"), 0)
    roll(log)
    log.high_watermark = log.log_end_offset
    clean(log)
    kept = [h for _, h in iter_batches(everything(log))]
    assert [(h.base_offset, h.last_offset, h.record_count) for h in kept] == [(0, 1, 0), (2, 2, 1)]
    reopened = compacted_log(tmp_path)
    assert reopened.append_as_leader(batch(1, key=b"c", producer=(7, 1, 2)), 0).first_offset == 3
    assert reopened.append_as_leader(batch(2, key=b"a", producer=(7, 1, 0)), 0).duplicate


@pytest.mark.spec("BRK-167")
def test_a_tombstone_stays_for_delete_retention_after_it_was_first_cleaned(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms="60000", segment_bytes="130")  # too small to grow together

    def round_on(key: str) -> None:
        append(log, [(key, "1")])
        roll(log)
        assert clean(log) == 1

    append(log, [("a", "1"), ("b", "1"), ("a", None)])
    roll(log)
    clean(log)
    assert _keys_left(log) == [(1, b"b", b"1"), (2, b"a", None)]
    round_on("c")
    assert (2, b"a", None) in _keys_left(log)  # the last file that is clean is hardly younger
    past = time.time() - 120
    os.utime(log.segments.first.file.fileno(), (past, past))
    round_on("d")
    assert _keys_left(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


@pytest.mark.spec("BRK-167", "TXN-68")
def test_nothing_is_cleaned_above_the_high_watermark_or_an_open_transaction(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in "123":
        append(log, [("a", value)])
        roll(log)
    log.high_watermark = 2
    clean(log)
    assert [r.offset for r in consumed(log)] == [1, 2]
    log.high_watermark = 3
    opened = log.append_as_leader(
        batch(key=b"z", producer=(9, 0, 0), attributes=0x10), 0, origin_client=False, verification=UNVERIFIED
    )
    roll(log)
    append(log, [("a", "4"), ("a", "5")])
    roll(log)
    assert log.last_stable_offset == opened.first_offset
    clean(log)
    assert [r.offset for r in consumed(log)] == [2, 3, 4, 5]


@pytest.mark.spec("BRK-167", "BRK-103", "TXN-68")
def test_records_of_aborted_transactions_go_and_their_markers_after_them(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms="0")
    for commit, offset in ((True, 0), (False, 3)):
        for data in (
            batch(2, base_offset=offset, key=b"t%d" % offset, producer=(9, 0, offset), attributes=0x10, epoch=0),
            marker(commit=commit, producer=(9, 0), base_offset=offset + 2),
        ):
            log.append_as_follower(memoryview(data))
    log.append_as_follower(memoryview(batch(base_offset=6, key=b"x", epoch=0, producer=(9, 0, 5))))
    roll(log)
    log.high_watermark = log.log_end_offset
    clean(log)
    left = [(h.base_offset, h.is_control) for _, h in iter_batches(everything(log))]
    assert left == [(0, False), (2, True), (5, True), (6, False)]
    found = log.read(0, 10_000, 7, min_one_batch=True)
    assert [a.first_offset for a in log.aborted_transactions(found, 7)] == [3]
    for time_back in (20, 10):  # the next rounds find nothing left of the aborted one
        for segment in list(log.segments)[:-1]:
            os.utime(segment.file.fileno(), (time.time() - time_back,) * 2)
        append(log, [(f"n{time_back}", "1")])
        roll(log)
        clean(log)
    assert [h.base_offset for _, h in iter_batches(everything(log))] == [0, 2, 6, 7, 8]
    assert compacted_log(tmp_path).last_stable_offset == 9


def transaction(log: Log, producer_id: int, *keys: str, commit: bool) -> None:
    """Append one of these records as a follower does, and its marker."""
    for number, key in enumerate(keys):
        written = batch(
            base_offset=log.log_end_offset,
            key=key.encode(),
            value=b"of %d" % producer_id,
            producer=(producer_id, 0, number),
            attributes=TRANSACTIONAL,
            epoch=0,
        )
        log.append_as_follower(memoryview(written))
    ended = marker(commit=commit, producer=(producer_id, 0), base_offset=log.log_end_offset)
    log.append_as_follower(memoryview(ended))
    log.high_watermark = log.log_end_offset


@pytest.mark.spec("TXN-68", "BRK-167")
def test_records_of_committed_transactions_compete_by_key_and_those_of_aborted_ones_do_not(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, [("a", "1"), ("b", "1"), ("c", "1")])
    transaction(log, 7, "a", "x", commit=True)
    transaction(log, 8, "b", "y", commit=False)
    transaction(log, 9, "x", "z", commit=True)
    roll(log)
    clean(log)
    left = [(r.key, r.value) for r in consumed(log) if len(r.key or b"") == 1]
    assert left == [(b"b", b"1"), (b"c", b"1"), (b"a", b"of 7"), (b"x", b"of 9"), (b"z", b"of 9")]


@pytest.mark.spec("TXN-68")
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_stays_for_delete_retention_from_the_pass_that_first_found_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    now_s = time.time()
    monkeypatch.setattr(compaction_round, "time", SimpleNamespace(time=lambda: now_s))
    log = compacted_log(tmp_path, delete_retention_ms="60000", segment_bytes="130")  # too small to grow together
    transaction(log, 7, "a", commit=commit)
    transaction(log, 7, "b", commit=commit)  # its last batch is not that of the first transaction

    def round_on(key: str) -> list[tuple[int, int]]:
        """Clean once; return offset and time of the markers that are left."""
        append(log, [(key, "1")])
        roll(log)
        for segment in list(log.segments)[:-1]:  # as files are that were written a day ago
            os.utime(segment.file.fileno(), (now_s - 86_400,) * 2)
        assert clean(log) == 1
        found = []
        for position, header in iter_batches(data := everything(log)):
            if header.is_control:
                (record,) = decode_records(data[position : position + header.size_bytes])
                said = read_marker(data[position : position + header.size_bytes])
                assert said is not None and (said.committed, said.coordinator_epoch) == (commit, 7)
                assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (7, 0, record.timestamp)
                found.append((header.base_offset, record.timestamp))
        return found

    both = [(1, 1000), (3, 1000)]
    assert round_on("a") == both, "the record was there when the round began"
    assert round_on("c") == both, "found alone"
    now_s += 59.9
    assert round_on("d") == both
    now_s += 0.2
    assert round_on("e") == both[1:], "the other's last batch is there still: it tells the sequence"
    reopened = compacted_log(tmp_path)
    assert reopened.last_stable_offset == reopened.log_end_offset


@pytest.mark.spec("TXN-68")
def test_a_control_batch_that_kafka_has_emptied_ends_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    opened = batch(key=b"a", producer=(7, 0, 0), attributes=TRANSACTIONAL, epoch=0)
    emptied = empty_batch(memoryview(marker(commit=False, producer=(7, 0), base_offset=1)))
    log.append_as_follower(memoryview(opened))
    log.append_as_follower(memoryview(emptied))
    log.high_watermark = log.log_end_offset
    assert [one.first_offset for one in log.open_transactions()] == [0]
    reopened = compacted_log(tmp_path)
    assert (reopened.last_stable_offset, [one.first_offset for one in reopened.open_transactions()]) == (0, [0])
    header = read_header(emptied)
    assert header is not None and header.record_count == 0
    pass_ = CleanedTransactions([])
    begun = read_header(opened)
    assert begun is not None and not pass_.is_aborted(begun)
    assert pass_.end(header) == (False, None)
    whole = read_header(marker(commit=True, producer=(7, 0), base_offset=2))
    assert whole is not None and pass_.end(whole) == (True, None), "its record is left still"


@pytest.mark.spec("BRK-167")
def test_the_share_of_dirty_bytes_and_the_age_of_records_decide_whether_a_log_is_cleaned(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    log = compacted_log(tmp_path, min_cleanable_dirty_ratio="0.5")
    append(log, [("a", "1"), ("a", "2")] * 3, timestamp=now)
    roll(log)
    assert clean(log) == 1  # all of it was dirty
    append(log, [(key, "1") for key in "bcdefgh"], timestamp=now)
    append(log, [(key, "1") for key in "ijklmno"], timestamp=now)
    roll(log)
    clean(log)
    append(log, [("a", "3")], timestamp=now)
    roll(log)
    assert clean(log) == 0
    log.update_config(make_log(tmp_path / "other", **{**COMPACTED, "min_compaction_lag_ms": "3600000"}).config)
    assert clean(log) == 0
    log.update_config(make_log(tmp_path / "other", **COMPACTED).config)
    assert clean(log) == 1


@pytest.mark.spec("BRK-167")
def test_however_little_is_dirty_it_is_compacted_once_it_is_old_enough(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    lags: dict[str, Any] = {"min_cleanable_dirty_ratio": "1", "segment_bytes": "100000"}
    log = compacted_log(tmp_path / "log", **lags, max_compaction_lag_ms="3600000")
    append(log, [("a", "1"), ("a", "2")], timestamp=now - 1_800_000)
    roll(log)
    assert clean(log) == 0, "half an hour old"
    log.update_config(make_log(tmp_path / "other", **{**COMPACTED, **lags, "max_compaction_lag_ms": "60000"}).config)
    assert clean(log) == 1
    assert latest(consumed(log)) == {b"a": b"2"}
    append(log, [("b", "1"), ("b", "2")], timestamp=now - 30_000)
    append(log, [("b", "3")], timestamp=now - 30_000)
    assert len(log.segments) == 2, "no batch is a minute younger than the first"
    append(log, [("b", "4")], timestamp=now + 40_000)
    assert len(log.segments) == 3, "what is in the active segment could not be compacted"
    unbound = {**COMPACTED, **lags, "max_compaction_lag_ms": "60000", "cleanup_policy": "delete"}
    log.update_config(make_log(tmp_path / "third", **unbound).config)
    append(log, [("c", "1")], timestamp=now + 400_000)
    assert len(log.segments) == 3, "it is not compacted any more"


@pytest.mark.spec("BRK-167")
def test_small_segments_grow_together_and_their_old_files_go(tmp_path: Path) -> None:
    later = Later()
    log = compacted_log(tmp_path, later, segment_bytes="100000")
    for number in range(10):
        append(log, [("a", str(number)), (f"k{number}", "1")])
        roll(log)
    later.jobs.clear()
    clean(log)
    assert [s.base_offset for s in log.segments] == [0, 20]
    assert len(list(tmp_path.glob("*.deleted"))) > 10
    later.run()
    assert not list(tmp_path.glob("*.deleted"))
    assert latest(consumed(log)) == {b"a": b"9", **{b"k%d" % n: b"1" for n in range(10)}}


@pytest.mark.spec("BRK-167")
def test_a_map_too_small_for_all_keys_cleans_bit_by_bit(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(40):
        append(log, [(f"k{number % 20}", str(number))])
    roll(log)
    assert clean(log, log_cleaner_dedupe_buffer_size=str(7 * ENTRY_BYTES)) > 2
    assert latest(consumed(log)) == {b"k%d" % n: b"%d" % (n + 20) for n in range(20)}
    assert log.state.cleaned_to == 40


@pytest.mark.spec("BRK-167")
def test_a_damaged_batch_stops_the_cleaning_of_its_log_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacted_log(tmp_path)
    append(log, [("a", "1")])
    append(log, [("a", "2")])
    roll(log)
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cleaner = cleaner_of(log)
    assert cleaner.clean_dirtiest()
    assert not cleaner.clean_dirtiest()
    assert path.read_bytes() == data
    assert "cannot be compacted" in caplog.text
    assert not list(tmp_path.glob("*.cleaned"))


@pytest.mark.spec("BRK-167", "BRK-143")
def test_with_both_policies_old_segments_go_too(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, cleanup_policy="compact,delete", retention_ms="1000")
    append(log, [("a", "1"), ("b", "1"), ("a", "2")])
    roll(log)
    append(log, [("c", "1")], timestamp=int(time.time() * 1000) + 60_000)
    clean(log)
    assert [r.offset for r in consumed(log)] == [1, 2, 3]
    assert log.apply_retention() == 1
    assert [r.offset for r in consumed(log)] == [3]


@pytest.mark.spec("BRK-167", "BRK-142")
def test_a_cut_below_what_was_cleaned_makes_it_dirty_again(tmp_path: Path) -> None:
    later = Later()
    log = compacted_log(tmp_path, later)
    append(log, [("a", "1"), ("b", "1")])
    append(log, [("c", "1"), ("d", "1")])
    roll(log)
    clean(log)
    written = later.checkpointed
    log.truncate_to(2)
    assert (log.state.cleaned_to, later.checkpointed) == (2, written + 1)
