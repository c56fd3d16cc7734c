import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.log.log import Log
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import everything, make_log

_OPTIONS: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100"}
_UNCHECKED = set(range(16))  # base offset, length and leader epoch lie outside the checksum; length is tested by cuts


def _write(directory: Path, counts: list[int]) -> tuple[list[bytes], list[str]]:
    """Write a log and do not close it; return the bytes of its batches, and the file each of them is in."""
    log = make_log(directory, **_OPTIONS)
    batches, files = [], []
    for number, count in enumerate(counts):
        data = batch(count, timestamp=1000 + number, producer=(5, 0, sum(counts[:number])))
        log.append_as_leader(data, number // 3)
        batches.append(bytes(data))
        files.append(f"{log.segments.active.base_offset:020d}.log")
    return batches, files


def _indexes(directory: Path) -> dict[str, bytes]:
    """Return what the index files of both kinds hold."""
    return {path.name: path.read_bytes() for kind in ("index", "timeindex") for path in directory.glob(f"*.{kind}")}


def _assert_holds(log: Log, batches: list[bytes], counts: list[int]) -> None:
    """Assert that it has exactly these batches, with everything derived from them."""
    assert everything(log) == b"".join(batches)
    assert log.log_end_offset == sum(counts[: len(batches)])
    starts = {number // 3: sum(counts[:number]) for number in range(len(batches) - 1, -1, -1) if number % 3 == 0}
    assert log.leader_epochs.entries == sorted(starts.items())
    kept = log.state.producers.entries[5].batches if batches else []
    assert [b.last_offset + 1 for b in kept][-1:] == ([log.log_end_offset] if batches else [])
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1, log.log_end_offset, min_one_batch=True)
        number = next(i for i in range(len(counts)) if sum(counts[: i + 1]) > offset)
        assert found.size_bytes == len(batches[number])
    assert log.state.recovery_point == 0, "what was scanned may be in the page cache only"
    log.flush()
    assert log.state.recovery_point == log.log_end_offset
    next_sequence = batch(producer=(5, 0, log.log_end_offset))
    assert log.append_as_leader(next_sequence, 9).first_offset == sum(counts[: len(batches)])
    log.close()
    anew = make_log(log.directory.with_name(f"{log.directory.name}-anew"), **_OPTIONS)
    bases = {segment.base_offset for segment in log.segments}  # an empty one at the end goes on
    for data in (*batches, bytes(next_sequence)):
        if anew.log_end_offset in bases - {0}:
            anew.roll(anew.log_end_offset)
        anew.append_as_follower(memoryview(data))
    anew.close()
    assert _indexes(log.directory) == _indexes(anew.directory)


_counts = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@pytest.mark.spec("BRK-137", "BRK-138")
@settings(deadline=None)
@given(_counts, st.data())
def test_cut_at_any_byte_loses_exactly_the_torn_batch_and_what_follows(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    batches, files = _write(directory, counts)
    victim = data.draw(st.integers(0, len(counts) - 1))
    before = sum(len(b) for b, f in zip(batches[:victim], files[:victim], strict=True) if f == files[victim])
    cut = before + data.draw(st.integers(0, len(batches[victim]) - 1))
    with (directory / files[victim]).open("r+b") as file:
        file.truncate(cut)
    log = make_log(directory, **_OPTIONS)
    if cut == before and before and victim + 1 < len(batches) and files[victim] != files[-1]:
        return  # a cut between batches before later segments is a gap in offsets, which compaction makes too
    if cut == before and not before and files[victim] != files[-1]:
        return  # likewise, a whole segment emptied
    _assert_holds(log, batches[:victim], counts)


@pytest.mark.spec("BRK-137", "BRK-138")
@settings(deadline=None)
@given(_counts, st.data())
def test_flipped_byte_loses_exactly_its_batch_and_what_follows(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    batches, files = _write(directory, counts)
    victim = data.draw(st.integers(0, len(counts) - 1))
    before = sum(len(b) for b, f in zip(batches[:victim], files[:victim], strict=True) if f == files[victim])
    at = data.draw(st.integers(0, len(batches[victim]) - 1).filter(lambda i: i not in _UNCHECKED))
    content = bytearray((directory / files[victim]).read_bytes())
    content[before + at] ^= data.draw(st.integers(1, 255))
    (directory / files[victim]).write_bytes(content)
    _assert_holds(make_log(directory, **_OPTIONS), batches[:victim], counts)


@pytest.mark.spec("BRK-137")
def test_after_a_clean_stop_nothing_is_scanned(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    log.close()
    path = tmp_path / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[65] ^= 1
    path.write_bytes(content)
    assert make_log(tmp_path, clean=True).log_end_offset == 3
    assert make_log(tmp_path).log_end_offset == 0


@pytest.mark.spec("BRK-137")
def test_segments_below_the_recovery_point_are_trusted(tmp_path: Path) -> None:
    batches, _ = _write(tmp_path, [1] * 12)
    log = make_log(tmp_path, **_OPTIONS)
    second = [s.base_offset for s in log.segments][1]
    path = tmp_path / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[65] ^= 1
    path.write_bytes(content)
    assert make_log(tmp_path, recovery_point=second, **_OPTIONS).log_end_offset == 12
    assert make_log(tmp_path, recovery_point=second - 1, **_OPTIONS).log_end_offset == 0
    assert len(batches) == 12


@pytest.mark.spec("BRK-136", "BRK-129")
def test_leftovers_of_an_interrupted_life_are_cleared(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(2), 0)
    log.close()
    for kind in ("log", "index", "timeindex", "txnindex"):
        (tmp_path / f"{7:020d}.{kind}.deleted").write_bytes(b"x")
        (tmp_path / f"{0:020d}.{kind}.cleaned").write_bytes(b"x")
        if kind != "log":
            (tmp_path / f"{9:020d}.{kind}").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("mine")
    log = make_log(tmp_path, clean=True)
    assert log.log_end_offset == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "notes.txt",
    ]


@pytest.mark.spec("BRK-136")
def test_a_finished_compaction_takes_the_place_of_the_segments_it_covers(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes="160")
    for _ in range(6):
        log.append_as_leader(batch(), 0)
    log.close()
    bases = [s.base_offset for s in log.segments]
    assert len(bases) == 3
    compacted = batch(base_offset=1, epoch=0) + batch(base_offset=3, epoch=0)
    (tmp_path / f"{0:020d}.log.swap").write_bytes(compacted)
    for kind in ("index", "timeindex"):
        (tmp_path / f"{0:020d}.{kind}.swap").write_bytes(b"junk")
    for clean in (True, False):
        log = make_log(tmp_path, clean=clean)
        assert [s.base_offset for s in log.segments] == [0, 4]
        assert everything(log) == bytes(compacted + batch(base_offset=4, epoch=0) + batch(base_offset=5, epoch=0))
        assert log.read(0, 1, 6, min_one_batch=True).start.position == 0
        assert not list(tmp_path.glob("*.swap"))
        log.close()
        assert not [p for p in tmp_path.glob("*index") if b"junk" in p.read_bytes()]


@pytest.mark.spec("BRK-139")
def test_producers_survive_a_clean_stop_and_a_crash(tmp_path: Path) -> None:
    log = make_log(tmp_path / "a", **_OPTIONS)
    for sequence in range(12):
        log.append_as_leader(batch(producer=(5, 1, sequence)), 0)
    shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    log.close()
    for directory, clean in ((tmp_path / "a", True), (tmp_path / "crashed", False)):
        again = make_log(directory, clean=clean, **_OPTIONS)
        assert again.append_as_leader(batch(producer=(5, 1, 11)), 0).duplicate
        assert again.append_as_leader(batch(producer=(5, 1, 12)), 0).first_offset == 12


@pytest.mark.spec("BRK-139")
def test_clean_directory_without_snapshots_forgets_idempotence(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(producer=(5, 1, 0)), 0)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    assert make_log(tmp_path, clean=True).state.producers.entries == {}


@pytest.mark.spec("BRK-60")
def test_epoch_cache_is_trimmed_to_the_log_at_start(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for epoch in (1, 2, 3):
        log.append_as_leader(batch(2), epoch)
    log.leader_epochs.assign(8, 6)
    log.close()
    assert make_log(tmp_path, clean=True, log_start_offset=3).leader_epochs.entries == [(2, 3), (3, 4)]


@pytest.mark.spec("BRK-137")
def test_the_epochs_of_records_that_recovery_cuts_off_go_though_their_file_has_them(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for epoch in (1, 2, 3):
        log.append_as_leader(batch(2), epoch)
    log.flush()
    log.abandon()
    with (tmp_path / f"{0:020d}.log").open("r+b") as file:
        file.truncate(2 * len(batch(2)) + 5)
    assert make_log(tmp_path).leader_epochs.entries == [(1, 0), (2, 2)]


@pytest.mark.spec("BRK-138")
@pytest.mark.parametrize("clean", [True, False])
def test_the_log_ends_behind_its_last_batch_or_at_the_base_of_an_empty_last_segment(
    tmp_path: Path, clean: bool
) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(3), 0)
    log.close()
    assert make_log(tmp_path, clean=clean).log_end_offset == 3
    (tmp_path / f"{7:020d}.log").touch()
    assert make_log(tmp_path, clean=True).log_end_offset == 7


@pytest.mark.spec("BRK-136")
@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_directory_gets_segment_0(tmp_path: Path, clean: bool) -> None:
    log = make_log(tmp_path, clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert [p.name for p in tmp_path.glob("*.log")] == [f"{0:020d}.log"]


@pytest.mark.spec("BRK-137")
@pytest.mark.parametrize("size_bytes", [12, 48])
def test_a_batch_that_says_it_is_smaller_than_a_header_ends_the_log(tmp_path: Path, size_bytes: int) -> None:
    log = make_log(tmp_path)
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    at = len(batch())
    content[at + 8 : at + 12] = size_bytes.to_bytes(4, "big")
    path.write_bytes(content)
    assert make_log(tmp_path).log_end_offset == 1
    assert path.stat().st_size == at


@pytest.mark.spec("BRK-137")
@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("recovery_point", [0, 100])
def test_a_gap_between_segments_ends_no_log_whatever_the_policy_is_by_now(
    tmp_path: Path, policy: str, recovery_point: int
) -> None:
    """A follower has the gaps of its leader's log, which was compacted once."""
    log = make_log(tmp_path, cleanup_policy="delete", **_OPTIONS)
    for base in range(0, 400, 20):
        log.append_as_follower(memoryview(batch(2, base_offset=base, epoch=1)))
    before = everything(log)
    assert len(log.segments) > 3
    log.flush()
    log.abandon()
    found = make_log(tmp_path, recovery_point=recovery_point, cleanup_policy=policy, **_OPTIONS)
    assert everything(found) == before
    assert found.log_end_offset == 382


@pytest.mark.spec("BRK-137")
@pytest.mark.parametrize("left", [b"", bytes(100)], ids=["no data", "zeros"])
def test_of_segments_whose_records_a_power_cut_took_nothing_is_left(tmp_path: Path, left: bytes) -> None:
    batches, files = _write(tmp_path, [1] * 12)
    names = sorted(set(files))
    lost = files.index(names[1])
    for name in names[1:]:
        (tmp_path / name).write_bytes(left)
    with (tmp_path / names[0]).open("r+b") as file:
        file.truncate(sum(map(len, batches[: lost - 1])))
    log = make_log(tmp_path, **_OPTIONS)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == names[:1]
    _assert_holds(log, batches[: lost - 1], [1] * 12)


@pytest.mark.spec("BRK-137")
def test_an_empty_segment_behind_a_gap_below_the_recovery_point_is_the_end_of_the_log(tmp_path: Path) -> None:
    """All below it was on the disk: the gap was rightful, and its offsets are not given to other records."""
    log = make_log(tmp_path, **_OPTIONS)
    log.append_as_leader(batch(2), 1)
    log.flush()
    log.abandon()
    (tmp_path / f"{9:020d}.log").touch()
    assert make_log(tmp_path, recovery_point=9, **_OPTIONS).log_end_offset == 9
    assert make_log(tmp_path, recovery_point=8, **_OPTIONS).log_end_offset == 2
