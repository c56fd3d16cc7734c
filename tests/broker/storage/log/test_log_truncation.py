from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import Later, everything, make_log

_OPTIONS: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100"}


@pytest.mark.spec("BRK-142", "BRK-60")
@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=15), st.integers(0, 60), st.booleans())
def test_cut_keeps_the_batches_wholly_below_the_offset_and_all_follows(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], offset: int, reopen: bool
) -> None:
    directory = tmp_path_factory.mktemp("log")
    later = Later()
    log = make_log(directory, later, **_OPTIONS)
    for number, count in enumerate(counts):
        log.append_as_leader(batch(count, timestamp=100 + number, producer=(5, 0, sum(counts[:number]))), number)
    before, total = everything(log), sum(counts)
    log.high_watermark = log.state.recovery_point = total

    log.truncate_to(offset)

    kept = [h for _, h in iter_batches(before) if h.last_offset < offset]
    end = total if offset >= total else sum(counts[: len(kept)])
    later.run()
    if reopen:
        log = make_log(directory, **_OPTIONS)
    else:
        assert (log.high_watermark, log.state.recovery_point) == (end, end)
        assert later.lowered == (end < total)
    assert log.log_end_offset == end
    assert everything(log) == before[: sum(h.size_bytes for h in kept)]
    assert log.leader_epochs.latest == (len(kept) - 1 if kept else None)
    sent = batch(2, timestamp=500, producer=(5, 0, end))
    assert log.append_as_leader(sent, 99).first_offset == end
    assert log.find_by_timestamp(500, end + 2) == (500, end, 99)
    assert log.read(end, 1000, end + 2, min_one_batch=True).size_bytes == len(sent)


@pytest.mark.spec("BRK-142")
@pytest.mark.parametrize(
    ("offset", "bases", "end"),
    [(6, [0, 2, 4], 6), (5, [0, 2, 4], 5), (4, [0, 2, 4], 4), (3, [0, 2], 3), (2, [0, 2], 2), (0, [0], 0)],
)
def test_a_cut_drops_the_segments_that_begin_behind_it(tmp_path: Path, offset: int, bases: list[int], end: int) -> None:
    later = Later()
    log = make_log(tmp_path, later, segment_bytes=str(2 * len(batch())))
    for _ in range(6):
        log.append_as_leader(batch(), 0)
    log.truncate_to(offset)
    later.run()
    assert ([s.base_offset for s in log.segments], log.log_end_offset) == (bases, end)
    assert sorted(path.name for path in tmp_path.glob("*.log*")) == [f"{base:020d}.log" for base in bases]


@pytest.mark.spec("BRK-142", "BRK-60")
@pytest.mark.parametrize("offset", [2, 9])
def test_a_cut_at_or_above_the_end_takes_an_epoch_without_records_and_nothing_else(tmp_path: Path, offset: int) -> None:
    later = Later()
    log = make_log(tmp_path, later)
    log.append_as_leader(batch(2), 1)
    log.leader_epochs.assign(4, 2)  # led, and wrote nothing
    log.high_watermark = log.state.recovery_point = 1
    log.truncate_to(offset)
    assert log.leader_epochs.entries == [(1, 0)]
    assert everything(log) == bytes(batch(2, epoch=1))
    assert (log.log_end_offset, log.high_watermark, log.state.recovery_point) == (2, 1, 1)
    assert not later.lowered


@pytest.mark.spec("BRK-142")
def test_the_log_start_is_capped_too(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(4):
        log.append_as_leader(batch(5), 0)
    log.advance_log_start(17)
    log.truncate_to(10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)


@pytest.mark.spec("BRK-142", "BRK-138")
def test_cut_below_the_first_segment_starts_over_there(tmp_path: Path) -> None:
    later = Later()
    log = make_log(tmp_path, later)
    log.truncate_fully_and_start_at(100)
    log.append_as_leader(batch(3), 1)
    log.high_watermark = 103
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert log.leader_epochs.entries == []
    later.run()
    assert [p.name for p in tmp_path.glob("*.log*")] == ["00000000000000000050.log"]
    assert make_log(tmp_path).log_end_offset == 50


@pytest.mark.spec("BRK-142")
def test_starting_over_at_the_same_offset_leaves_the_new_files_alone(tmp_path: Path) -> None:
    later = Later()
    log = make_log(tmp_path, later)
    log.append_as_leader(batch(3), 1)
    log.truncate_fully_and_start_at(0)
    log.append_as_leader(batch(2), 2)
    later.run()
    assert everything(log) == bytes(batch(2, epoch=2))
    assert make_log(tmp_path).log_end_offset == 2


@pytest.mark.spec("BRK-140", "BRK-142")
def test_a_flush_during_which_the_log_is_cut_and_grows_again_vouches_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path, Later())
    log.append_as_leader(batch(10), 0)
    flush = Segment.flush

    def cut_meanwhile(segment: Segment) -> None:
        flush(segment)
        log.truncate_to(0)
        log.append_as_leader(batch(10), 1)

    monkeypatch.setattr(Segment, "flush", cut_meanwhile)
    log.flush()
    assert log.state.recovery_point == 0
    monkeypatch.undo()
    log.flush()
    assert log.state.recovery_point == 10
