import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.records.batches import Record, encode_batch, iter_batches
from kafkatool.core.protocol.records.compression import Codec
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import content, make_log

_counts = st.lists(st.integers(1, 4), min_size=1, max_size=30)


def _filled(directory: Path, counts: list[int], **options: Any) -> Log:
    log = make_log(directory, **options)
    for number, count in enumerate(counts):
        log.append_as_leader(batch(count, timestamp=1000 + number * 10, step_ms=1), 0)
    return log


@pytest.mark.spec("BRK-94", "BRK-96", "BRK-133")
@settings(deadline=None)
@given(_counts, st.integers(100, 900), st.integers(0, 300), st.booleans(), st.data())
def test_a_read_gives_what_a_scan_of_all_batches_gives(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    segment_bytes: int,
    interval: int,
    reopen: bool,
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    options: dict[str, Any] = {"segment_bytes": str(max(segment_bytes, 120)), "index_interval_bytes": str(interval)}
    log = _filled(directory, counts, **options)
    if reopen:
        log.close()
        log = make_log(directory, clean=True, **options)
    offset = data.draw(st.integers(0, log.log_end_offset))
    upper = data.draw(st.integers(0, log.log_end_offset))
    max_bytes = data.draw(st.integers(0, 400))
    min_one = data.draw(st.booleans())

    read = log.read(offset, max_bytes, upper, min_one_batch=min_one)

    segment = log.segments.from_offset(offset)[0]
    whole = segment.region(0, segment.size_bytes).read()
    batches = [(p, h) for p, h in iter_batches(whole) if h.last_offset >= offset]
    below = [(p, h) for p, h in batches if h.last_offset < upper] if offset < upper else []
    expected, limit = b"", max_bytes
    if batches and offset < upper:
        if min_one:
            limit = max(max_bytes, batches[0][1].size_bytes)
        if limit >= batches[0][1].size_bytes and below:
            expected = whole[below[0][0] :][: min(limit, sum(h.size_bytes for _, h in below))]
    assert content(read) == expected
    assert read.size_bytes == len(expected)
    if batches:
        assert read.start == (offset, segment.base_offset, batches[0][0])
        assert log.offset_metadata(offset) == read.start


@pytest.mark.spec("BRK-94")
def test_offsets_outside_the_log_are_refused_and_the_end_is_empty(tmp_path: Path) -> None:
    log = _filled(tmp_path, [2, 3])
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100, 5, min_one_batch=True)
    assert log.read(5, 100, 5, min_one_batch=True) == (log.end, b"", 0)
    log.advance_log_start(2)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, 100, 5, min_one_batch=True)


@pytest.mark.spec("BRK-96")
def test_first_batch_larger_than_asked_for_is_not_taken(tmp_path: Path) -> None:
    read = _filled(tmp_path, [2]).read(0, 10, 2, min_one_batch=False)
    assert (read.start.offset, read.records, read.size_bytes) == (0, b"", 0)


@pytest.mark.spec("BRK-107")
@settings(deadline=None)
@given(_counts, st.integers(100, 600), st.integers(0, 300), st.booleans(), st.data())
def test_look_up_by_time_finds_the_first_record_not_older(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    segment_bytes: int,
    interval: int,
    reopen: bool,
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    options: dict[str, Any] = {"segment_bytes": str(max(segment_bytes, 120)), "index_interval_bytes": str(interval)}
    log = make_log(directory, **options)
    times: list[int] = []
    for count in counts:
        start = data.draw(st.integers(1000, 1100))
        log.append_as_leader(batch(count, timestamp=start, step_ms=3), 2)
        times += [start + 3 * i for i in range(count)]
    if reopen:
        log.close()
        log = make_log(directory, clean=True, **options)
    wanted, upper = data.draw(st.integers(990, 1120)), data.draw(st.integers(0, len(times)))
    expected = next(((t, o, 2) for o, t in enumerate(times) if t >= wanted), None)
    if expected is not None and expected[1] >= upper:
        expected = None
    assert log.find_by_timestamp(wanted, upper) == expected


@pytest.mark.spec("BRK-133")
def test_an_index_whose_entries_hold_first_offsets_as_kafka_1_wrote_them_works(tmp_path: Path) -> None:
    log = _filled(tmp_path, [3] * 20, index_interval_bytes="0")
    log.close()
    path = tmp_path / "00000000000000000000.index"
    data = path.read_bytes()
    older = b"".join(
        (int.from_bytes(data[i : i + 4], "big") - 2).to_bytes(4, "big") + data[i + 4 : i + 8]
        for i in range(0, len(data), 8)
    )
    path.write_bytes(older)
    log = make_log(tmp_path, clean=True)
    size = len(batch(3, step_ms=1))
    for offset in range(60):
        assert log.read(offset, 1, 60, min_one_batch=True).start.position == offset // 3 * size


@pytest.mark.spec("BRK-135")
def test_a_missing_index_is_rebuilt_when_it_is_needed(tmp_path: Path) -> None:
    log = _filled(tmp_path, [2] * 50, segment_bytes="2000", index_interval_bytes="200")
    log.close()
    for path in (*tmp_path.glob("*.index"), *tmp_path.glob("*.timeindex")):
        path.unlink()
    log = make_log(tmp_path, clean=True, segment_bytes="2000")
    assert log.log_end_offset == 100
    for offset in range(100):
        read = log.read(offset, 1, 100, min_one_batch=True)
        ((_, header),) = iter_batches(content(read))
        assert header.base_offset == offset // 2 * 2


@pytest.mark.spec("BRK-135")
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("trouble", ["missing", "torn", "below"])
def test_whichever_index_is_bad_is_made_anew(tmp_path: Path, kind: str, trouble: str) -> None:
    log = _filled(tmp_path, [2] * 300, index_interval_bytes="200")
    log.close()
    path = tmp_path / f"{0:020d}{kind}"
    entry = 8 if kind == ".index" else 12
    whole = path.read_bytes()
    assert len(whole) > 4 * entry
    if trouble == "missing":
        path.unlink()
    elif trouble == "torn":
        path.write_bytes(whole[:-3])
    elif kind == ".index":
        path.write_bytes(whole + b"\xff" * 4 + (9999).to_bytes(4, "big"))  # one below the base
    else:
        path.write_bytes(whole + (9999).to_bytes(8, "big") + b"\xff" * 4)
    log = make_log(tmp_path, clean=True)
    for offset in range(0, 600, 7):
        ((_, header),) = iter_batches(content(log.read(offset, 1, 600, min_one_batch=True)))
        assert header.base_offset == offset // 2 * 2
        time_ms = 1000 + offset // 2 * 10
        assert log.find_by_timestamp(time_ms, 600) == (time_ms, offset // 2 * 2, 0)
    log.close()
    made = path.read_bytes()
    entries = [made[at : at + entry] for at in range(0, len(made), entry)]
    assert len(made) % entry == 0 and entries == sorted(entries) and 0 < len(made) < len(whole)


@pytest.mark.spec("BRK-144")
def test_a_region_taken_before_its_segment_was_erased_can_still_be_sent(tmp_path: Path) -> None:
    log = _filled(tmp_path, [1] * 4, segment_bytes="120")
    read = log.read(0, 1000, 4, min_one_batch=True)
    segment = log.segments.first
    segment.mark_deleted()
    segment.erase()
    segment.release()
    assert len(content(read)) == read.size_bytes > 0


@pytest.mark.spec("BRK-107")
def test_a_disk_that_is_slow_to_give_a_large_batch_holds_up_no_search_in_another_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large batches are unpacked one at a time in the process: each is read before its turn."""
    slow, other = make_log(tmp_path / "slow"), make_log(tmp_path / "other")
    for log in (slow, other):
        large = encode_batch([Record(0, 1000, None, bytes(6_000_000))], codec=Codec.GZIP)
        log.append_as_leader(large, 1)
    read, reading, go_on, found = FileRegion.read, threading.Event(), threading.Event(), threading.Event()

    def read_slowly(region: FileRegion) -> bytes:
        if region.fd_owner is slow.segments.active.file:
            reading.set()
            go_on.wait(60)
        return read(region)

    def search() -> None:
        if other.find_by_timestamp(1000, 1) is not None:
            found.set()

    monkeypatch.setattr(FileRegion, "read", read_slowly)
    threads = [threading.Thread(target=slow.find_by_timestamp, args=(1000, 1)), threading.Thread(target=search)]
    try:
        threads[0].start()
        assert reading.wait(30)
        threads[1].start()
        assert found.wait(30), "it waits for the disk of the other log"
    finally:
        go_on.set()
        for thread in threads:
            thread.join()


@pytest.mark.spec("BRK-94")
@pytest.mark.parametrize(
    ("at", "damage"), [(16, b"\7"), (0, bytes(20)), (8, b"\x7f\xff\xff\xff")], ids=["magic", "zeros", "length"]
)
@pytest.mark.parametrize("batch_number", [1, 5])
def test_what_follows_an_unreadable_header_is_not_taken_for_what_compaction_left_out(
    tmp_path: Path, at: int, damage: bytes, batch_number: int
) -> None:
    """A reader that was given the next segment would skip good records, and a follower be in sync without them."""
    log = _filled(tmp_path, [1] * 12, segment_bytes="300")
    assert len(log.segments) == 3
    size = len(batch(1))
    in_each = 300 // size
    segment = log.segments.from_offset(batch_number).__iter__().__next__()
    position = (batch_number % in_each) * size
    with segment.transaction_index_path.with_suffix(".log").open("r+b") as file:
        file.seek(position + at)
        file.write(damage)
    log.close()
    log = make_log(tmp_path, clean=True, segment_bytes="300")
    for offset in range(batch_number, (batch_number // in_each + 1) * in_each):
        with pytest.raises(CorruptRecordsError, match=f"the batch at position {position} has no readable header"):
            log.read(offset, 1 << 20, 12, min_one_batch=True)
    for offset in (0, (batch_number // in_each + 1) * in_each):
        read = log.read(offset, 1 << 20, 12, min_one_batch=True)
        assert next(iter_batches(memoryview(content(read))))[1].base_offset == offset
    assert log.offset_metadata(batch_number).segment_base is None
    log.close()


def test_a_segment_whose_index_is_made_anew_is_read_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a reader that holds no lock, while another, or retention, was the first to look into it."""
    log = _filled(tmp_path, [1] * 12, segment_bytes="300")
    log.close()
    for index in tmp_path.glob("*.index"):
        index.unlink()
    log = make_log(tmp_path, clean=True, segment_bytes="300")
    first = next(iter(log.segments))
    headers = first.headers
    seen: list[int | None] = []

    def looked_at(*where: int) -> Any:
        for item in headers(*where):
            yield item
            if not seen and not where:  # the whole segment, for its index
                seen.append(None)
                seen[:] = [log.read(offset, 1 << 20, 12, min_one_batch=True).start.offset for offset in (0, 1, 2)]

    monkeypatch.setattr(first, "headers", looked_at, raising=False)
    assert first.find(1) is not None
    assert seen == [0, 1, 2]
    log.close()


def test_a_look_up_by_time_waits_for_the_index_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the largest time so far it would pass over the segment, and a consumer begin behind what it asked for."""
    log = _filled(tmp_path, [1] * 12, segment_bytes="300")
    wanted = log.find_by_timestamp(1010, 12)
    assert wanted is not None and wanted.offset == 1
    log.close()
    for index in tmp_path.glob("*.index"):
        index.unlink()
    log = make_log(tmp_path, clean=True, segment_bytes="300")
    first = next(iter(log.segments))
    headers, found = first.headers, list[int]()
    began = threading.Event()

    def look() -> None:
        began.set()
        one = log.find_by_timestamp(1010, 12)
        found.append(-1 if one is None else one.offset)

    looking = threading.Thread(target=look)

    def looked_at(*where: int) -> Any:
        for number, item in enumerate(headers(*where)):
            if number == 0 and not where:  # the whole segment, for its index
                looking.start()
                assert began.wait(60)
                looking.join(0.2)  # long enough for a look that does not wait
            yield item

    monkeypatch.setattr(first, "headers", looked_at, raising=False)
    assert first.find(1) is not None
    looking.join(60)
    assert found == [1]
    log.close()


@pytest.mark.spec("BRK-137", "BRK-94")
@pytest.mark.parametrize("with_index", [True, False])
def test_damage_at_the_end_of_a_log_that_was_stopped_well_is_cut_before_anything_comes_behind_it(
    tmp_path: Path, with_index: bool
) -> None:
    """Else what is acknowledged from then on can be read by nobody, and the next scan takes it."""
    log = _filled(tmp_path, [1] * 5)
    size = len(batch(1))
    log.close()
    with next(tmp_path.glob("*.log")).open("r+b") as file:
        file.seek(3 * size + 16)
        file.write(b"\7")
    if not with_index:
        next(tmp_path.glob("*.index")).unlink()
    log = make_log(tmp_path, clean=True)
    assert (log.log_end_offset, log.state.disk_lags) == (3, True)
    for _ in range(3):
        log.append_as_leader(batch(1), 0)
    log.close()
    log = make_log(tmp_path)
    assert log.log_end_offset == 6
    for offset in range(6):
        read = log.read(offset, 1, 6, min_one_batch=True)
        assert next(iter_batches(memoryview(content(read))))[1].base_offset == offset
    log.close()


@pytest.mark.spec("BRK-141")
def test_the_last_batch_is_gone_when_it_was_deleted(tmp_path: Path) -> None:
    log = _filled(tmp_path, [1, 1])
    assert log.newest_at(1, log.end) is not None
    log.high_watermark = 2
    log.advance_log_start(2)
    assert log.newest_at(1, log.end) is None
